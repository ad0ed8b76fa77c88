"""The inferred schema of a pipeline: inferred once, stored, and shared by its sources.

``_blizzard/{pipeline}_schema.json`` beside the checkpoints::

    {"schema_version": 1, "inferred_ts": 1706450500,
     "sample": {"files": ["date=…/a.ndjson.gz", …], "records": 1234, "skipped_lines": 0},
     "left_out": {"Id": "differs only in case from 'id'"},
     "fields": [{"name": "time", "type": "string"}, …],         # as under schema.fields
     "added": {"device": 1706459000}}                           # with evolve: add, and since when

One conditional request creates it if it is missing, so a second writer uses the schema of the
first. It is never inferred again by itself. Without ``evolve: add`` it never changes. After it is
deleted, the next start with new files infers it again. Declared columns are not in it and win over
it.

With ``evolve: add`` columns are appended and never removed. Each change replaces exactly the
version that it was made from. It is saved before any file with the new column, so a process that
goes on after a crash uses the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import SCHEMA_VERSION, check_version
from blizzard_core.errors import Conflict, NotFound, SchemaUnknown, StateError
from blizzard_core.limits import INFERRED_COLUMNS
from blizzard_core.log import get_logger
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.formats import FormatSettings, NdjsonOptions
from blizzard_core.settings.schema import RESCUED, FieldSettings
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.text import counted
from blizzard_py.job import FieldSpec, RowSchema, UnexpectedField
from blizzard_py.schema.field_specs import field_document, field_spec
from blizzard_py.schema.inference import Inference, Inferred, Rules
from blizzard_py.sources.files.order_guard import evenly
from blizzard_py.sources.files.sampling import add_sample
from blizzard_py.state.state_paths import schema_path

if TYPE_CHECKING:
    from blizzard_py.schema.evolution import Takes

# The most tries if others change the file meanwhile.
_TRIES = 10
_REMEDY = "restore the file, or delete it to infer the schema again"


@dataclass(frozen=True, slots=True)
class _SchemaDocument:
    """The document above; a field's settings are checked as those of a configuration."""

    fields: list[Any]
    left_out: dict[str, str]
    sample: dict[str, Any]
    inferred_ts: int
    added: dict[str, int] | None = None


_LINES = NdjsonOptions()


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """The content of the file; ``sample`` and ``added`` as documented above."""

    fields: tuple[FieldSpec, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    sample: dict[str, Any] = field(default_factory=dict)
    inferred_ts: int = 0
    added: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "inferred_ts": self.inferred_ts,
            "sample": self.sample,
            "left_out": self.left_out,
            "fields": [field_document(spec) for spec in self.fields],
            **({"added": self.added} if self.added else {}),
        }

    @classmethod
    def from_json(cls, document: Any, where: str) -> StoredSchema:
        """Return the schema of a document. Raises `StateError` naming ``where``."""
        check_version(document, where, (SCHEMA_VERSION,))
        found = decode_document(_SchemaDocument, document, where, _REMEDY, open_=True)
        try:
            settings = [FieldSettings.model_validate(item) for item in found.fields]
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise StateError(f"{where}: fields.{place}: {first['msg']}; {_REMEDY}") from None
        return cls(
            tuple(map(field_spec, settings)),
            found.left_out,
            found.sample,
            found.inferred_ts,
            found.added or {},
        )


def describe_schema(
    origin: Literal["declared", "inferred", "added", "sample", "unknown"],
    fields: Sequence[FieldSpec],
    stored: StoredSchema | None = None,
) -> dict[str, Any]:
    """Return a pipeline's columns as ``blizzard schema`` shows them.

    ``origin``: declared in the configuration; inferred and stored; declared, with those that new
    fields have added; inferred now from a sample; unknown, because there is no file yet.
    """
    return {
        "origin": origin,
        "fields": [field_document(spec) for spec in fields],
        "left_out": stored.left_out if stored else {},
        "sample": (stored.sample or None) if stored else None,
        "inferred_ts": stored.inferred_ts if stored and origin == "inferred" else None,
    }


class InferredSchema:
    """A source's view of its pipeline's schema, as far as it is to be inferred."""

    def __init__(
        self,
        pipeline: str,
        settings: PipelineSettings,
        source: Storage,
        sink: Storage,
        clock: Callable[[], float],
        form: FormatSettings = _LINES,
    ) -> None:
        self._format = form
        self._settings = settings.schema_
        self._declared = tuple(map(field_spec, self._settings.fields))
        by = settings.sink.partition_by
        used_names = [*(spec.name for spec in self._declared), *(by.keys if by else ())]
        used_names += [*settings.sink.metadata_columns, *settings.path_types]
        if self._settings.unexpected_fields == "capture":
            used_names.append(RESCUED)
        self._rules = Rules(
            self._settings.advanced.coerce_conflicts_to_utf8,
            self._settings.advanced.infer_timestamps,
            frozenset(name.lower() for name in used_names),
            frozenset(spec.input_name for spec in self._declared),
        )
        self._source = source
        self._sink = sink
        self._clock = clock
        self.path = schema_path(pipeline)
        self._log = get_logger(pipeline=pipeline)

    def fields(self, files: Sequence[Entry]) -> tuple[FieldSpec, ...]:
        """All columns; if they are to be inferred and not known yet, from ``files``, and kept.

        Raises `SchemaConflict`, `SchemaUnknown`, `StateError`, `StorageError`.
        """
        stored = self.read_stored()
        if stored is None and not self._settings.infer:
            return self._declared
        if stored is None:
            stored = self._keep(self.infer(files))
        return self.combine(stored)

    def evolve(
        self, schema: RowSchema, found: Sequence[UnexpectedField], takes: Takes
    ) -> RowSchema:
        """Return the schema with a column for each new field that can be one.

        Raises `StateError`, `StorageError`; `Conflict` where others change the file all the time.
        """
        from blizzard_py.schema.evolution import evolved  # noqa: PLC0415  # it brings Arrow along

        for last in (*[False] * _TRIES, True):
            stored, version = self._versioned(schema.fields)
            columns = self.combine(stored)
            fresh = [each for each in found if each.name not in stored.left_out]
            rules = replace(self._rules, taken=frozenset())
            result = evolved(columns, self._rules.taken, fresh, rules, takes)
            room = max(0, INFERRED_COLUMNS - len(stored.left_out))
            left_out = dict(list(result.left_out.items())[:room])
            if result.waiting:
                self._log.warning("fields_wait", fields=result.waiting, limit="max_new_columns")
            if result.added or left_out:
                now = int(self._clock())
                stored = replace(
                    stored,
                    fields=(*stored.fields, *result.added),
                    left_out=stored.left_out | left_out,
                    added=stored.added | {spec.name: now for spec in result.added},
                )
                try:
                    self._sink.put_if(self.path, checkpoint.encode(stored.to_json()), version)
                except Conflict:
                    if last:
                        raise
                    continue
                self._log_changes(result.added, left_out)
            break
        return replace(schema, fields=self.combine(stored), left_out=tuple(stored.left_out))

    def _versioned(self, fields: Sequence[FieldSpec]) -> tuple[StoredSchema, str | None]:
        """Return the stored schema, or without it the table's columns of running jobs."""
        where = f"{self._sink.uri}/{self.path}"
        try:
            raw, version = self._sink.read_versioned(self.path)
        except NotFound:
            declared = {spec.name for spec in self._declared}
            rest = tuple(spec for spec in fields if spec.name not in declared)
            return StoredSchema(rest), None
        return StoredSchema.from_json(checkpoint.parsed(raw, where), where), version

    def _log_changes(self, added: Sequence[FieldSpec], left_out: Mapping[str, str]) -> None:
        if added:
            self._log.info(
                "schema_evolved",
                fields=[field_document(spec) for spec in added],
                kept=f"{self._sink.uri}/{self.path}",
            )
        for name, reason in left_out.items():
            self._log.warning("field_left_out", field=name, reason=reason)

    def combine(self, stored: StoredSchema) -> tuple[FieldSpec, ...]:
        """Return declared columns, then stored ones with other names."""
        rules = self._rules
        rest = [
            spec
            for spec in stored.fields
            if spec.name.lower() not in rules.taken and spec.input_name not in rules.read
        ]
        return (*self._declared, *rest)

    def read_stored(self) -> StoredSchema | None:
        """Return what the file says, None if there is none. Writes nothing."""
        return checkpoint.load(self._sink, self.path, StoredSchema.from_json)

    def infer(self, files: Sequence[Entry]) -> StoredSchema:
        """Return what a sample of ``files`` says now. Writes nothing."""
        sample = evenly(files, self._settings.advanced.sample_files)
        inference = Inference(self._rules)
        self._add_files(inference, sample)
        found = inference.result()
        self._check(found, len(sample))
        counts = {"records": found.records, "skipped_lines": found.skipped_lines}
        paths = [file.path for file in sample]
        sampled = {"files": paths, **counts}
        return StoredSchema(found.fields, found.left_out, sampled, int(self._clock()))

    def compare(self, files: Sequence[Entry]) -> tuple[StoredSchema | None, Inferred]:
        """Return the kept fields, and all fields, declared ones as well, by a sample of ``files``.

        Columns of the path and ours are left out. Raises `StateError`, `StorageError`.
        """
        declared = {spec.name.lower() for spec in self._declared}
        rules = replace(
            self._rules,
            coerce_conflicts=True,
            taken=frozenset(self._rules.taken - declared),
            read=frozenset(),
        )
        inference = Inference(rules)
        sample = evenly(files, self._settings.advanced.sample_files)
        self._add_files(inference, sample)
        found = inference.result()
        return self.read_stored() if self._settings.is_found_out else None, found

    def _add_files(self, inference: Inference, sample: Sequence[Entry]) -> None:
        limit = self._settings.advanced.sample_bytes_per_file
        for file in sample:
            add_sample(inference, self._source, file, limit, self._format)

    def _check(self, found: Inferred, files: int) -> None:
        if not found.fields and not self._declared:
            why = f" ({found.problem})" if found.problem else ""
            raise SchemaUnknown(
                f"{self._source.uri}: no field was found in {counted(files, 'file')} to infer a"
                f" schema from{why}; correct them, raise schema.advanced.sample_bytes_per_file for"
                " longer lines, or declare schema.fields"
            )

    def _keep(self, found: StoredSchema) -> StoredSchema:
        try:
            self._sink.put_if(self.path, checkpoint.encode(found.to_json()), None)
        except Conflict:
            # Another source was first, or our own write's answer was lost.
            stored = self.read_stored()
            if stored is None:
                raise
            return stored
        sample = found.sample
        self._log.info(
            "schema_inferred",
            fields=len(found.fields),
            files=len(sample["files"]),
            records=sample["records"],
        )
        self._log_changes((), found.left_out)
        return found

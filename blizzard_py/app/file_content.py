"""The content of one file, for `blizzard explain`: its beginning, read as a task would read it.

Writes nothing. A file that cannot be read is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from blizzard_core.limits import EXPLAINED_BYTES
from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.app.new_fields import known_columns
from blizzard_py.explain import Explanation
from blizzard_py.explain.content import Content, FileColumn, Match
from blizzard_py.formats.names import format_of
from blizzard_py.formats.ndjson.unexpected import first, shown_name
from blizzard_py.formats.path_columns import path_values
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.formats.typed_rows import can_become, unexpected_names
from blizzard_py.job import FieldSpec, IngestSettings, JobFile
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import Piece
from blizzard_py.schema.field_specs import field_document
from blizzard_py.schema.file_types import named_columns
from blizzard_py.schema.types import arrow_type
from blizzard_py.sources.context import SourceContext

_TYPE_CHARACTERS = 200


def with_content(config: Config, parts: SourceContext, found: Explanation) -> Explanation:
    """Add to an explanation what the file's beginning shows, if the file is there."""
    if found.file is None or found.path is None or found.verdict == "ignored":
        return found
    columns, _ = known_columns(config, parts)
    entry = Entry(found.path, found.file.size, found.file.modified_ts)
    content = read_content(parts.stores.source, entry, parts.ingest.with_fields(columns))
    return replace(found, content=content)


class _EnoughError(Exception):
    """The beginning of the file has been read, and shows no record."""


@dataclass(slots=True)
class _Beginning:
    """The facts that were read so far. ``columns`` are those that the file names."""

    columns: Mapping[str, pa.DataType | None] = field(default_factory=dict)
    codecs: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    size: int = 0

    def count(self, size: int) -> None:
        """Count bytes that were read. Raises `_EnoughError`."""
        self.size += size
        if self.size > EXPLAINED_BYTES:
            raise _EnoughError


def read_content(storage: Storage, file: Entry, settings: IngestSettings) -> Content:
    """Return what the first records of a file show, of at most `EXPLAINED_BYTES`."""
    found, problem, added = _Beginning(), None, settings.added_columns
    values: list[pa.Array] = []
    try:
        values = path_values(file.path, added.path, added.path_template)
        _read(found, storage, file, settings)
    except FileFailed as error:
        problem = error.reason
        if not found.columns:  # it may name others than those that are declared
            with suppress(FileFailed, _EnoughError):
                _read(found, storage, file, settings.with_fields(()))
    except _EnoughError:
        problem = f"there is no record in its first {EXPLAINED_BYTES >> 20} MiB"
    texts = {
        spec.name: None if not value.is_valid else str(value)
        for spec, (value,) in zip(added.path, values, strict=False)
    }
    return _content(found, settings, problem, texts)


def _read(found: _Beginning, storage: Storage, file: Entry, settings: IngestSettings) -> None:
    """Read the first piece and decode it. Raises `FileFailed`, `_EnoughError`."""
    found.size = 0
    expansion = Expansion(file.size, settings.tolerance.limits.expansion)
    with SourceFile(storage, JobFile(file.path, file.size), expansion, found.count) as opened:
        try:
            _decode(found, opened, settings)
        finally:
            found.codecs, found.members = tuple(opened.codecs), tuple(opened.members)


def _decode(found: _Beginning, opened: SourceFile, settings: IngestSettings) -> None:
    if settings.format.fixed_columns:  # a record may be the whole file
        if settings.format.streams:
            next(next(opened.streams(), iter(())), None)
        return
    form, schema = format_of(settings.format), settings.schema
    decoder = form.decoder(schema, tolerant=True, fast=False)
    for item in opened.pieces(form, schema):
        if isinstance(item, Piece):
            try:
                found.columns = decoder.columns(item)
                decoder.decode(item)
            except FileFailed as error:
                raise error.within(item.member) from error
            return


def _content(
    found: _Beginning,
    settings: IngestSettings,
    problem: str | None,
    path_columns: Mapping[str, str | None],
) -> Content:
    read = settings.schema.as_read.fields
    fields = {spec.name: spec for spec in read}
    columns = missing = unexpected = None
    if found.columns:
        columns = tuple(
            _column(name, kind, fields.get(name)) for name, kind in found.columns.items()
        )
        missing = tuple(name for name in fields if name not in found.columns)
        kinds = {name: kind or pa.null() for name, kind in found.columns.items()}
        unexpected = tuple(sorted(first(map(shown_name, unexpected_names(kinds, read)))))
    return Content(
        settings.format.type,
        found.codecs,
        found.members,
        columns,
        missing if fields else None,
        unexpected if fields else None,
        problem,
        path_columns,
    )


def _column(name: str, kind: pa.DataType | None, spec: FieldSpec | None) -> FileColumn:
    declared = None if spec is None else field_document(spec)["type"]
    if kind is None:
        return FileColumn(name, None, declared, None)
    return FileColumn(name, bounded(str(kind), _TYPE_CHARACTERS), declared, _match(kind, spec))


def _match(kind: pa.DataType, spec: FieldSpec | None) -> Match | None:
    if spec is None:
        return None
    named = named_columns({spec.name: kind}).get(spec.name)
    if pa.types.is_null(kind) or (named is not None and arrow_type(named) == arrow_type(spec)):
        return "equal"
    return "converted" if can_become(kind, spec) else "never"

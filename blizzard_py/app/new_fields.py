"""Fields without a column, of one file or of recent ones. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from blizzard_core.errors import BlizzardError, StorageError
from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Entry, Listing, is_hidden, order_key
from blizzard_py.app.wiring import context_of, inferred_schema
from blizzard_py.explain import Explanation
from blizzard_py.formats.ndjson.extract import SchemaNames
from blizzard_py.formats.ndjson.unexpected import names_in
from blizzard_py.ingest.inferred_schema import StoredSchema
from blizzard_py.job import FieldSpec, as_read
from blizzard_py.schema.difference import Difference, difference
from blizzard_py.schema.field_specs import field_document
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts_file
from blizzard_py.sources.files.listing import listing_of
from blizzard_py.sources.files.sampling import first_records
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState

# Partitions that are looked into, and keys and pages in all, however large the source is.
_PARTITIONS = 8
_KEYS = 20_000
_PAGES = 200


def recent_files(parts: SourceContext, state: SourceState, most: int) -> list[Entry]:
    """Return at most ``most`` non-empty files, the last modified ones, oldest first.

    They are from the partitions whose names sort highest: those that the checkpoint knows, and
    later ones. If it knows none, they are from the first thousands of the listing.
    """
    accept = accepts_file(parts.files)
    named = sorted((name for name in state.position.progress.partitions if name), key=order_key)
    newest = named[: -_PARTITIONS - 1 : -1]
    places: list[tuple[str, str | None]] = [(f"{name}/", f"{name}0") for name in newest]
    if places:  # what sorts above it is newer, and no poll knows it yet
        places[0] = (places[0][0], None)
    found = [
        entry
        for entry in _listed(listing_of(parts), places or [("", None)])
        if entry.size and accept(entry) and not is_hidden(entry.path)
    ]
    return sorted(found, key=lambda entry: (entry.modified, entry.path))[-most:]


def _listed(storage: Listing, places: list[tuple[str, str | None]]) -> Iterator[Entry]:
    keys = pages = 0
    for after, until in places:
        for page in storage.list_range(after, until):
            yield from page.entries
            keys += len(page.entries)
            pages += 1
            if keys >= _KEYS or pages >= _PAGES:
                return


def known_columns(
    config: Config, parts: SourceContext
) -> tuple[tuple[FieldSpec, ...], StoredSchema | None]:
    """Return a source's columns, and the stored schema that some of them are from, if any."""
    pipeline = config.pipelines[parts.pipeline]
    schema = inferred_schema(parts.pipeline, pipeline, parts.stores, parts.source)
    stored = schema.read_stored() if pipeline.schema_.is_found_out else None
    return (parts.ingest.schema.fields if stored is None else schema.combine(stored)), stored


# What has rows, or will have: of others it does not matter which fields they have.
_TAKEN = frozenset({"ingested", "refused", "pending"})


def with_untaken(config: Config, parts: SourceContext, found: Explanation) -> Explanation:
    """Add to an explanation the fields of the file's first records without a column.

    Those that lines of `schema.advanced.sample_bytes_per_file` show; None where nothing is dropped.
    """
    pipeline = config.pipelines[parts.pipeline]
    ignores = pipeline.schema_.unexpected_fields == "ignore"
    if found.verdict not in _TAKEN or found.file is None or found.path is None or not ignores:
        return found
    columns, stored = known_columns(config, parts)
    entry = Entry(found.path, found.file.size, found.file.modified_ts)
    limit = pipeline.schema_.advanced.sample_bytes_per_file
    try:
        lines = first_records(parts.stores.source, entry, limit, parts.ingest.format).lines
    except StorageError:  # it was there a moment ago; what became of it is known all the same
        return found
    done = found.batch.started_ts if found.batch is not None else None
    since = stored.added if stored and done else {}
    later = {spec.input_name for spec in columns if since.get(spec.name, 0) > (done or 0)}
    then = tuple(spec for spec in columns if spec.input_name not in later)
    names = sorted(names_in(lines, SchemaNames.of(as_read(then))))
    return replace(
        found,
        untaken=tuple(name for name in names if name not in later),
        added_since=tuple(name for name in names if name in later),
    )


def schema_diff(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Of each pipeline with files how its recent records differ from its columns.

    ``differs`` says whether there is anything. Raises nothing: errors are the second value.
    """
    pipelines: dict[str, Any] = {}
    errors: list[str] = []
    for name in config.pipelines:
        try:
            found = _diff_of(config, name)
        except BlizzardError as error:
            errors.append(f"{name}: {error}")
        else:
            if found is not None:
                pipelines[name] = found
    return {"pipelines": pipelines}, errors


def _diff_of(config: Config, name: str) -> dict[str, Any] | None:
    pipeline = config.pipelines[name]
    sampled: list[tuple[SourceContext, list[Entry]]] = []
    for source_name in pipeline.file_sources:
        parts = context_of(config, (name, source_name))
        state = read_state(parts.stores.sink, parts.id) or SourceState()
        sampled.append((parts, recent_files(parts, state, pipeline.schema_.advanced.sample_files)))
    if not sampled:
        return None
    parts, files = max(sampled, key=lambda each: max((f.modified for f in each[1]), default=-1.0))
    schema = inferred_schema(name, pipeline, parts.stores, parts.source)
    stored, records = schema.compare(files)
    columns = schema.combine(stored) if stored else parts.ingest.schema.fields
    known = bool(stored) or not pipeline.schema_.infer
    found = difference(columns, records.fields, records.nulls)
    if not records.records or not known:  # of nothing nothing is missing
        found = Difference()
    lowered = {spec.name.lower(): spec.name for spec in columns}
    odd = {
        path: other
        for path, spec in found.new.items()
        if path == spec.input_name
        and (other := lowered.get(path.lower()) or lowered.get(spec.name.lower()))
    }
    new = {path: spec for path, spec in found.new.items() if path not in odd}
    unusable = {
        name: f"differs only in case from {other!r}"
        if other.lower() == name.lower() != other
        else f"its column would be {other!r}, which is filled from another field"
        for name, other in odd.items()
    }
    table = _table(config, name, parts, columns) if known else {}
    return {
        "source": parts.name,
        "files": [file.path for file in files],
        "records": records.records,
        "skipped_lines": records.skipped_lines,
        "problem": records.problem,
        "known": known,
        "new": [{"path": path, **field_document(spec)} for path, spec in new.items()],
        "missing": found.missing,
        "changed": [
            {
                "path": each.name,
                "column": field_document(each.column),
                "records": field_document(each.records),
            }
            for each in found.changed
        ],
        "unusable": unusable | records.left_out,
        "table": table,
        "differs": bool(new or found.missing or found.changed or table.get("refused")),
    }


def _table(
    config: Config, name: str, parts: SourceContext, columns: tuple[FieldSpec, ...]
) -> dict[str, Any]:
    """Return the table's further columns; none if a query makes its rows."""
    # Only this command needs what reads a table's log.
    from blizzard_py.app.table_check import table_differences  # noqa: PLC0415  # see above

    if parts.ingest.sql.transform or parts.event_time is not None:
        return {}
    return table_differences(config, name, parts.ingest.with_fields(columns))

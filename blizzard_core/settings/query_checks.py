"""What a source that is asked, its connection and its pipeline make of one another.

Each finding has the key that it is about. Nothing is connected to: what only the server
knows (columns, types, whether there is a default bound) is for `blizzard validate` to ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from blizzard_core.settings.connections import (
    ConnectionSettings,
    DatabaseConnection,
    HttpConnection,
    LakeConnection,
)
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.query_sources import (
    HttpSourceSettings,
    SplitSettings,
    TableSourceSettings,
)
from blizzard_core.settings.schema import FieldSettings
from blizzard_core.settings.yaml_file import Key

Asked: TypeAlias = TableSourceSettings | HttpSourceSettings
Finding: TypeAlias = tuple[Key, str]

# The column that says which rows a reading replaces; see `blizzard_core.groups`.
UNIT_COLUMN = "_unit"

# What the watermark's column of an API may be.
_API_TIMES = frozenset({"timestamp", "date"})

# The bounds that a driver can tell; docs/tables.md says what each can miss.
_BOUNDS = {
    "postgresql": ("settled", "clock", "max"),
    "sqlite": ("clock", "max"),
    "mysql": ("clock", "max"),
    "jdbc": ("clock", "max"),
    "delta": ("version", "max", "clock"),
    "iceberg": ("version", "max", "clock"),
    "parquet": ("max", "rows", "clock"),
    "csv": ("rows",),
    "json": ("rows",),
}


def look_back(connection: ConnectionSettings, source: Asked) -> dict[str, int]:
    """The look-back in force: the source's as a whole, else the connection's; empty: none."""
    if source.watermark is None:
        return {}
    chosen = source.marks.backward
    if chosen is None:
        chosen = connection.backward
    return {} if chosen is None else chosen.given


def query_problems(config: Config) -> Iterator[Finding]:
    """Every finding, in the order of the file."""
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.sources.items():
            if isinstance(source, TableSourceSettings | HttpSourceSettings):
                here: Key = ("pipelines", name, "sources", source_name)
                yield from _of_pipeline(pipeline, here, source)
                connection = config.connections.get(source.connection)
                if connection is None:
                    known = ", ".join(config.connections) or "none is given"
                    yield (
                        (*here, "connection"),
                        f"there is no connection of that name; known: {known}",
                    )
                else:
                    yield from _of_connection(connection, here, source, pipeline.field_types)


def _of_pipeline(pipeline: PipelineSettings, here: Key, source: Asked) -> Iterator[Finding]:
    outer = here[:2]
    if pipeline.schema_.infer:
        yield (
            (*outer, "schema", "infer"),
            (
                f"source {here[3]!r} is of kind {source.kind}, whose columns must be declared;"
                " `blizzard init` proposes them from the connection"
            ),
        )
    if source.replaces and any(name.lower() == UNIT_COLUMN for name in pipeline.field_types):
        yield (
            (*outer, "schema", "fields"),
            (
                f"{UNIT_COLUMN!r} is the column by which rows of source {here[3]!r} are replaced;"
                " rename the field"
            ),
        )
    if (
        isinstance(source, TableSourceSettings)
        and source.units is not None
        and source.split != SplitSettings()
    ):
        yield (*here, "split"), "cuts windows, and units are read whole; leave it out"
    if isinstance(source, HttpSourceSettings) and source.watermark is not None:
        yield from _of_api_column(pipeline.schema_.fields, here, source)
    by = pipeline.sink.partition_by
    if by is not None and by.prefix_template and by.column is None:
        yield (
            (*outer, "sink", "partition_by", "prefix_template"),
            (
                f"takes the folder from a file's path, and source {here[3]!r} has no files;"
                " give partition_by.column"
            ),
        )
    if pipeline.error_handling.on_bad_record == "quarantine_file":
        yield (
            (*outer, "error_handling", "on_bad_record"),
            f"source {here[3]!r} has no files to quarantine; use quarantine_record or fail",
        )


def _of_api_column(
    fields: Sequence[FieldSettings], here: Key, source: HttpSourceSettings
) -> Iterator[Finding]:
    """An API is sent times. Another value's column would be sent a time, and read anew each time.

    The names of a path are looked up as they are written, the structs one below the other.
    """
    [column] = source.marks.columns
    kind, inner = "", fields
    for name in column.split("."):
        found = next((field for field in inner if field.name == name), None)
        kind, inner = ("", ()) if found is None else (found.type, found.fields or ())
    if kind not in _API_TIMES:
        there = f"is {kind}" if kind else "is not a field of the schema"
        yield (
            (*here, "watermark", "columns"),
            (
                f"{column!r} {there}, and an API is asked for windows of time: name a field of type"
                " timestamp or date (ISO 8601 text is a timestamp, a number since 1970 one with"
                " unit); where records have no time, use units, or snapshot: true"
            ),
        )


def _of_connection(
    connection: ConnectionSettings, here: Key, source: Asked, declared: Collection[str]
) -> Iterator[Finding]:
    if isinstance(connection, HttpConnection) != isinstance(source, HttpSourceSettings):
        kind = "http" if isinstance(connection, HttpConnection) else "table"
        yield (
            (*here, "kind"),
            (
                f"connection {source.connection!r} is of driver {connection.driver}: kind must be"
                f" {kind}"
            ),
        )
        return
    if source.watermark is not None:
        yield from _of_watermark(connection, (*here, "watermark"), source, declared)
    if isinstance(source, TableSourceSettings):
        if source.query is not None and isinstance(connection, LakeConnection):
            yield (*here, "query"), "a lake has no queries; give table, and filter"
        if (
            source.split.tasks > 1
            and not source.split.by
            and isinstance(connection, DatabaseConnection)
        ):
            yield (*here, "split", "by"), "is required where tasks is above 1"


def _of_watermark(
    connection: ConnectionSettings, here: Key, source: Asked, declared: Collection[str]
) -> Iterator[Finding]:
    mark = source.marks
    known = _BOUNDS.get(connection.driver)
    if mark.bound is not None and known is not None and mark.bound not in known:
        yield (
            (*here, "bound"),
            f"{connection.driver} cannot tell {mark.bound}; use one of {', '.join(known)}",
        )
    versions = connection.driver in {"delta", "iceberg"} and mark.bound in {None, "version"}
    if not mark.columns and not versions:
        yield (
            (*here, "columns"),
            "is required: without it each poll would read everything again, and double every row",
        )
    if mark.bound == "version" and mark.columns:
        yield (*here, "columns"), "with bound: version the table's versions tell; leave it out"
    back = look_back(connection, source)
    if back and not mark.columns:
        yield (*here, "backward"), "versions are not looked back on; set backward: 0"
    elif back and mark.reread is None:
        where = "connection's look-back" if mark.backward is None else "look-back"
        yield (
            (*here, "reread"),
            (
                f"is required with a look-back (the {where} reads rows again, which would double"
                " them): replace or new_only, or switch it off with backward: 0"
            ),
        )
    if mark.reread == "replace" and len(mark.columns) > 1:
        yield (*here, "reread"), "replace goes by one column; give one, or use new_only"
    told = [*mark.key, *(mark.columns if mark.reread == "new_only" else [])]
    missing = [name for name in told if name not in declared]
    if missing:
        yield (
            (*here, "reread" if mark.reread else "key"),
            f"tells rows by {missing[0]!r}, which is not a field of the schema; declare it",
        )
    if mark.reread is not None and not back:
        yield (*here, "reread"), "counts with a look-back only; give backward, or leave it out"

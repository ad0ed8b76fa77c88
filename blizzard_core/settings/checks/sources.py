"""Cross-field checks of sources: their connections, their columns, and those of the table.

No check connects. `blizzard validate` asks servers for their columns, types and default bounds.
Rows of all sources go through one query, so a name means one column, of one type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from blizzard_core.settings.connections import ConnectionSettings
from blizzard_core.settings.document import Config, PipelineSettings, QuerySettings
from blizzard_core.settings.schema import (
    RESCUED,
    FieldSettings,
    TypeSettings,
    check_readable,
    odd_names,
)
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.opening import normalize_uri

# The column that says which rows a reading replaces; see `blizzard_core.handover.groups`.
UNIT_COLUMN = "_unit"


def query_problems(
    config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of sources that read tables and APIs."""
    for name, source in pipeline.query_sources.items():
        where: Key = (*here, "sources", name)
        yield from _of_pipeline(pipeline, where, source)
        connection = config.connections.get(source.connection)
        if connection is None:
            known = ", ".join(config.connections) or "none is given"
            text = f"there is no connection of that name; known: {known}"
            yield SettingProblem((*where, "connection"), text)
        else:
            yield from _of_connection(connection, where, source, pipeline.input_types)


def _of_pipeline(
    pipeline: PipelineSettings, here: Key, source: QuerySettings
) -> Iterator[SettingProblem]:
    outer = here[:2]
    if pipeline.schema_.infer:
        yield SettingProblem(
            (*outer, "schema", "infer"),
            f"source {here[3]!r} is of kind {source.kind}, whose columns must be declared;"
            " `blizzard init` proposes them from the connection",
        )
    if source.replaces and any(name.lower() == UNIT_COLUMN for name in pipeline.field_types):
        yield SettingProblem(
            (*outer, "schema", "fields"),
            f"{UNIT_COLUMN!r} is the column that identifies replaced rows of source {here[3]!r};"
            " rename the field",
        )
    for text in source.column_problems(pipeline.schema_.fields):
        yield SettingProblem((*here, "watermark", "columns"), text)
    by = pipeline.sink.partition_by
    if by is not None and by.prefix_template and by.column is None:
        yield SettingProblem(
            (*outer, "sink", "partition_by", "prefix_template"),
            f"takes the folder from a file's path, and source {here[3]!r} has no files;"
            " give partition_by.column",
        )
    if pipeline.error_handling.on_bad_record == "quarantine_file":
        yield SettingProblem(
            (*outer, "error_handling", "on_bad_record"),
            f"source {here[3]!r} has no files to quarantine; use quarantine_record or fail",
        )


def _of_connection(
    connection: ConnectionSettings, here: Key, source: QuerySettings, declared: Collection[str]
) -> Iterator[SettingProblem]:
    if connection.source_kind != source.kind:
        yield SettingProblem(
            (*here, "kind"),
            f"connection {source.connection!r} is of driver {connection.driver}: kind must be"
            f" {connection.source_kind}",
        )
        return
    if source.watermark is not None:
        yield from _of_watermark(connection, (*here, "watermark"), source, declared)
    for key, text in source.connection_problems(connection):
        yield SettingProblem((*here, *key.split(".")), text)


def _of_watermark(
    connection: ConnectionSettings, here: Key, source: QuerySettings, declared: Collection[str]
) -> Iterator[SettingProblem]:
    mark = source.marks
    bound = mark.bound
    if bound is not None and bound not in connection.bounds:
        yield SettingProblem(
            (*here, "bound"),
            f"{connection.driver} does not support {bound}; use one of"
            f" {', '.join(connection.bounds)}",
        )
    versions = "version" in connection.bounds and bound in {None, "version"}
    if not mark.columns and not versions:
        yield SettingProblem(
            (*here, "columns"),
            "is required: without it each poll would read everything again and double every row",
        )
    if bound == "version" and mark.columns:
        yield SettingProblem((*here, "columns"), "is not used with bound: version; leave it out")
    back = source.look_back(connection)
    if back and not mark.columns:
        yield SettingProblem((*here, "backward"), "versions have no look-back; set backward: 0")
    elif back and mark.reread is None:
        where = "connection's look-back" if mark.backward is None else "look-back"
        yield SettingProblem(
            (*here, "reread"),
            f"is required with a look-back (the {where} reads rows again, which would double"
            " them): replace or new_only, or switch it off with backward: 0",
        )
    if mark.reread == "replace" and len(mark.columns) > 1:
        yield SettingProblem(
            (*here, "reread"), "replace needs exactly one column; give one, or use new_only"
        )
    identifying = [*mark.key, *(mark.columns if mark.reread == "new_only" else [])]
    missing = [name for name in identifying if name not in declared]
    if missing:
        yield SettingProblem(
            (*here, "reread" if mark.reread else "key"),
            f"identifies rows by {missing[0]!r}, which is not a field of the schema; declare it",
        )
    if mark.reread is not None and not back:
        yield SettingProblem(
            (*here, "reread"), "is only for a look-back; give backward, or leave it out"
        )


def own_schema_problems(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the problems of sources' own fields, in the order of the file."""
    shared = {field.name.lower() for field in pipeline.schema_.fields}
    read = {field.input_name: field.name for field in pipeline.schema_.fields}
    earlier: dict[str, tuple[str, FieldSettings]] = {}
    for name, source in pipeline.sources.items():
        own = source.schema_
        if own is None:
            continue
        where: Key = (*here, "sources", name, "schema")
        if pipeline.query is None or len(pipeline.sources) == 1:
            yield SettingProblem(
                where,
                "is for sources that share a query over event_time; declare the fields in the"
                " pipeline's schema",
            )
            continue
        if pipeline.transform is not None:
            yield SettingProblem(
                where, "does not go with transform, which is for the rows of all sources"
            )
        try:
            check_readable(own.fields, by_name=pipeline.schema_.unexpected_fields != "ignore")
        except ValueError as error:
            yield SettingProblem(where, str(error))
        for number, field in enumerate(own.fields):
            for text in _of_field(pipeline, field, shared, earlier.get(field.name.lower())):
                yield SettingProblem((*where, "fields", number, "name"), text)
            if (column := read.get(field.input_name, field.name)).lower() != field.name.lower():
                yield SettingProblem(
                    (*where, "fields", number),
                    f"{field.name!r} and {column!r} of the pipeline's schema are both filled from"
                    f" {field.input_name!r}; leave one of them out, or give it another `from`",
                )
            earlier.setdefault(field.name.lower(), (name, field))
    if pipeline.query is not None and pipeline.transform is None:
        yield from _of_duplicates(pipeline, pipeline.query.deduplicate, here)


def _of_duplicates(
    pipeline: PipelineSettings, keys: list[str], here: Key
) -> Iterator[SettingProblem]:
    """Yield sources without any key field: null counts as a value, so one row would remain."""
    known = pipeline.field_types.keys() & set(keys)  # others are reported elsewhere
    for name in pipeline.sources:
        if known and known.isdisjoint(field.name for field in pipeline.fields_of(name)):
            yield SettingProblem(
                (*here, "event_time", "deduplicate"),
                f"sources.{name} has none of these fields, so only one row of it would remain",
            )


def _of_field(
    pipeline: PipelineSettings,
    field: FieldSettings,
    shared: set[str],
    other: tuple[str, FieldSettings] | None,
) -> Iterator[str]:
    if field.name.lower() in shared:
        yield f"{field.name!r} is in the pipeline's schema already (case does not count)"
    if pipeline.schema_.unexpected_fields == "capture" and field.name.lower() == RESCUED:
        yield f"{RESCUED!r} is the column that unexpected_fields: capture adds; rename the field"
    if other is None:
        return
    source, known = other
    if known.name != field.name:
        yield f"{field.name!r} is {known.name!r} in sources.{source}; write them alike"
    elif _type(known) != _type(field):
        yield (
            f"{field.name!r} is {field.type} here and {known.type} in sources.{source}, or differs"
            " inside; give a name of two sources one type"
        )


def _type(of: TypeSettings) -> dict[str, object]:
    """Return a type without the names in the records, which may differ between sources."""
    inner = {
        "fields": [(field.name, _type(field), field.nullable) for field in of.fields or ()],
        "items": of.items and (_type(of.items), of.items.nullable),
        "values": of.values and (_type(of.values), of.values.nullable),
    }
    return {**of.model_dump(exclude={"nullable", "from_", "name", *inner}), **inner}


def schema_problems(
    config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of fields, and of columns that are added."""
    yield from _of_fixed_columns(pipeline, here)
    yield from _of_headers(pipeline, here)
    if pipeline.transform is None:  # which may give columns other names
        for where, fields in _all_fields(pipeline, here):
            yield from (SettingProblem(where, text) for text in odd_names(fields))
    if pipeline.schema_.evolve == "add":
        for text in (*_of_growing(pipeline), *_of_tables(config, pipeline)):
            yield SettingProblem((*here, "schema", "evolve"), text)


def _all_fields(pipeline: PipelineSettings, here: Key) -> Iterator[tuple[Key, list[FieldSettings]]]:
    """Yield the declared fields, and those that single sources have, with their places."""
    yield (*here, "schema", "fields"), pipeline.schema_.fields
    for name, source in pipeline.sources.items():
        if source.schema_ is not None:
            yield (*here, "sources", name, "schema", "fields"), source.schema_.fields


def _of_fixed_columns(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the fields that files of a format with columns of its own can never have."""
    for source_name, source in pipeline.file_sources.items():
        form = source.format
        columns = form.fixed_columns
        if not columns:
            continue
        known = ", ".join(f"{column} ({kind})" for column, kind in columns.items())
        if pipeline.schema_.infer:
            yield SettingProblem(
                (*here, "schema", "infer"),
                f"is not needed for format: {form.type}; declare in schema.fields: {known}",
            )
        for field in pipeline.fields_of(source_name):
            if field.type != columns.get(field.input_name) or field.unit != "iso":
                yield SettingProblem(
                    (*here, "sources", source_name, "format"),
                    f"field {field.input_name!r} of type {field.type} is no column of format:"
                    f" {form.type}; it has {known}. Make other columns of them by transform",
                )


def _of_headers(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the fields that no header names: its names are read without blanks around them."""
    for source_name, source in pipeline.file_sources.items():
        form = source.format
        has_header = form.header if form.type == "csv" else form.type == "excel"
        for field in pipeline.fields_of(source_name) if has_header else ():
            plain = field.input_name.strip()
            if plain != field.input_name:
                yield SettingProblem(
                    (*here, "sources", source_name, "format"),
                    f"field {field.name!r} is filled from {field.input_name!r}, but names in a"
                    f" header are read without blanks around them; write {plain!r}",
                )


def _of_growing(pipeline: PipelineSettings) -> Iterator[str]:
    if pipeline.query_sources:
        yield "add is for sources of files; of a table or an API only `fields` are read"
    for key, given in (("transform", pipeline.transform), ("event_time", pipeline.query)):
        if given is not None:
            yield f"add does not go with {key}, whose query determines the columns"


def _of_tables(config: Config, pipeline: PipelineSettings) -> Iterator[str]:
    """Yield why the table accepts no new columns."""
    place = normalize_uri(pipeline.sink.table_uri)
    for name, table in config.tables.items():
        if normalize_uri(table.table_uri) != place:
            continue
        if table.schema_evolution == "strict":
            yield (
                f"add needs a table that accepts new columns. tables.{name} has schema_evolution:"
                " strict, so Penguin refuses each file with a new column; set it to merge"
            )
        elif not table.advanced.max_new_columns:
            yield f"add needs tables.{name}.advanced.max_new_columns above 0"

"""Cross-field checks of a pipeline's tables: that of the sink, and the keyed one.

Penguin checks the columns of keyed tables again in the table, which may have those of a transform.
"""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.keyed import KeyedSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.opening import normalize_uri

_SORTABLE_TYPES = frozenset(
    {"string", "int32", "int64", "float32", "float64", "boolean", "timestamp", "date"}
)
# Types that identify and order no rows.
_UNORDERED = ("float32", "float64", "list", "map", "struct")


def table_problems(
    _config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of the sink, and of the limits and keys of its rows."""
    names = {field.name.lower() for field in pipeline.fields}
    # Partition keys need no check: they may not begin with an underscore, as all of these do.
    for name in pipeline.sink.metadata_columns:
        if name in names:
            text = f"{name!r} is given twice or is also a field of the schema"
            yield SettingProblem(
                (*here, "sink", "metadata_columns"), f"{text}; leave it out or rename the field"
            )
        names.add(name)
    if "max_expansion" in pipeline.error_handling.advanced.model_fields_set and not (
        pipeline.file_sources
    ):
        yield SettingProblem(
            (*here, "error_handling", "advanced", "max_expansion"),
            "is for sources of kind files: tables and APIs have no such limit; leave it out",
        )
    yield from (SettingProblem(here, text) for text in _of_units(pipeline))
    yield from (SettingProblem((*here, "deduplicate_by"), text) for text in _of_keys(pipeline))
    query = pipeline.query
    # Only Spark knows the columns of a transform, an aggregate or a join. `blizzard validate` asks.
    if pipeline.transform is None and not (query and (query.aggregates or query.join)):
        by = pipeline.sink.partition_by
        for text in by.problems(pipeline.field_types, pipeline.no_field) if by else ():
            yield SettingProblem((*here, "sink", "partition_by"), text)
        yield from (SettingProblem((*here, "sink", "sort_by"), text) for text in _of_sort(pipeline))


def _of_units(pipeline: PipelineSettings) -> Iterator[str]:
    if all(source.units is None for source in pipeline.file_sources.values()):
        return
    if "_source_file" not in pipeline.sink.metadata_columns:
        yield (
            "units of files needs _source_file among sink.metadata_columns: rows of a file that"
            " comes again are found by it"
        )
    if pipeline.transform is not None or pipeline.deduplicate_by:
        yield (
            "units of files goes with neither transform nor deduplicate_by: their rows are not of"
            " one file each"
        )


def _of_keys(pipeline: PipelineSettings) -> Iterator[str]:
    types = pipeline.field_types
    for place, name in enumerate(pipeline.deduplicate_by):
        if types.get(name) == "map":
            yield f"names {name!r}: maps cannot be compared"
        if name not in types and not pipeline.schema_.infer:
            yield f"{pipeline.no_field(name)} (duplicates are removed before the transform)"
        if name in pipeline.deduplicate_by[:place]:
            yield f"names {name!r} twice"


def _of_sort(pipeline: PipelineSettings) -> Iterator[str]:
    by, types = pipeline.sink.partition_by, pipeline.field_types
    moved = {each.column for each in by.columns if each.replaces_column} if by else set()
    seen: set[str] = set()
    for name, _ in pipeline.sink.sort_keys:
        kind = types.get(name)
        if kind is None:
            yield f"column {pipeline.no_field(name)}"
        elif kind not in _SORTABLE_TYPES:
            yield f"column {name!r} is {kind}, which has no order"
        elif name in moved:
            yield f"column {name!r} has one value in all rows of a file"
        elif name in seen:
            yield f"names {name!r} twice"
        seen.add(name)


def keyed_name(pipeline: str) -> str:
    """Return the name of a pipeline's keyed table."""
    return f"{pipeline}_keyed"


def sequence_of(pipeline: PipelineSettings, keyed: KeyedSettings) -> list[str]:
    """Return the sequence in force; empty if none is given and there is no default."""
    if keyed.sequence_by or len(pipeline.sources) != 1 or len(pipeline.query_sources) != 1:
        return keyed.sequence_by
    columns = next(iter(pipeline.query_sources.values())).marks.columns
    if not columns or not {*columns} <= {*pipeline.field_types}:
        return []
    return [*columns, *({"_ingested_at"} & {*pipeline.sink.metadata_columns})]


def keyed_notes(config: Config) -> Iterator[str]:
    """Yield what is allowed in keyed tables and may not be meant."""
    vacuumed = {normalize_uri(t.table_uri) for t in config.tables.values() if t.vacuum}
    for name, pipeline in config.pipelines.items():
        keyed, here = pipeline.keyed, keyed_name(name)
        if keyed is None:
            continue
        if pipeline.deduplicate_by:
            yield f"{here}: deduplicate_by keeps a batch's first record; leave deduplicate_by out"
        if keyed.advanced.keep_changes and normalize_uri(pipeline.sink.table_uri) not in vacuumed:
            yield f"{here}: without vacuum in tables, what keep_changes lets go stays in the store"
        sequence = sequence_of(pipeline, keyed)
        kinds = [pipeline.field_types.get(column) for column in sequence]
        if pipeline.file_sources and kinds in (["timestamp"], ["date"]):
            text = "the later arrival stays; add a column to sequence_by that tells them apart"
            yield f"{here}: of two changes with one {sequence[0]} {text}"


def keyed_problems(
    config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of the keyed table: its columns, its sources and its name."""
    keyed, key = pipeline.keyed, (*here, "keyed")
    if keyed is None:
        return
    for source in (each for each, given in pipeline.sources.items() if given.replaces):
        text = "replaces its rows, so its table has current rows already; leave keyed out"
        yield SettingProblem(key, f"source {source!r} {text}")
    if pipeline.query is not None:
        text = "does not go with a query over event_time, whose results are no versions of rows"
        yield SettingProblem(key, text)
    for column, text in _of_columns(pipeline, keyed):
        yield SettingProblem((*key, column), text)
    name = keyed_name(str(here[-1]))
    if name in {*config.pipelines, *config.tables}:
        yield SettingProblem(key, f"its table is called {name!r}, as another one; rename that one")


def _of_columns(pipeline: PipelineSettings, keyed: KeyedSettings) -> Iterator[tuple[str, str]]:
    """Yield the key of each setting that names a wrong column, and why it is none."""
    sequence = sequence_of(pipeline, keyed)
    if not sequence:
        text = "is required: it says which of two rows of a key is newer. Only for one table or API"
        yield "sequence_by", f"{text} whose watermark's columns are in the table there is a default"
    if pipeline.transform is not None or pipeline.query is not None or pipeline.schema_.infer:
        return  # Penguin checks the columns of the table
    by = pipeline.sink.partition_by
    added = {*pipeline.sink.metadata_columns, *(by.keys if by else ())}
    fields = {field.name: field for field in pipeline.fields}
    condition = [] if keyed.condition is None else [keyed.condition.column]
    named = {"keys": keyed.keys, "sequence_by": sequence}
    named |= {"advanced.leave_out": keyed.advanced.leave_out, "deletes": condition}
    for key, name in [(at, name) for at in named for name in named[at] if name not in added]:
        must_order, field = key in {"keys", "sequence_by"}, fields.get(name)
        if name in pipeline.path_types:
            if must_order:
                yield key, f"{name!r} comes from paths, and may be null there; use a field"
        elif field is None:
            yield key, f"{name!r} is no column of the table"
        elif must_order and field.type.startswith(_UNORDERED):
            yield key, f"{name!r} is {field.type}, which identifies and orders no rows"
        elif must_order and field.nullable:
            yield key, f"{name!r} may be null; declare it with nullable: false in schema.fields"

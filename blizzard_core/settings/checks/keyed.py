"""Cross-field checks of keyed tables: their columns, their sources, and their names.

Penguin checks the columns again in the table, which may have those of a transform.
"""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.keyed import KeyedSettings
from blizzard_core.settings.schema import FieldSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.opening import normalize_uri

_UNORDERED = ("float32", "float64", "list", "map", "struct")


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
    ingested = [name for name in pipeline.sink.metadata_columns if name == "_ingested_at"]
    return [*columns, *ingested]


def keyed_notes(config: Config) -> Iterator[str]:
    """Yield what is allowed in keyed tables and may not be meant."""
    for name, pipeline in config.pipelines.items():
        if pipeline.keyed is None:
            continue
        if pipeline.deduplicate_by:
            yield (
                f"{keyed_name(name)}: deduplicate_by keeps the first record of a batch, and the"
                " keyed table wants the newest; leave deduplicate_by out"
            )
        uri = normalize_uri(pipeline.sink.table_uri)
        tables = config.tables.values()
        is_vacuumed = any(t.vacuum and normalize_uri(t.table_uri) == uri for t in tables)
        if pipeline.keyed.advanced.keep_changes and not is_vacuumed:
            yield (
                f"{keyed_name(name)}: keep_changes takes files out of the sink's table, and without"
                " vacuum in tables they stay in the store"
            )
        sequence = sequence_of(pipeline, pipeline.keyed)
        kinds = [pipeline.field_types.get(column) for column in sequence]
        if pipeline.file_sources and kinds in (["timestamp"], ["date"]):
            yield (
                f"{keyed_name(name)}: of two changes with one {sequence[0]} the later arrival"
                " stays; add a column to sequence_by that tells them apart"
            )


def _added_columns(pipeline: PipelineSettings) -> set[str]:
    """Return the columns beside the fields: of metadata and of partitions."""
    by = pipeline.sink.partition_by
    return {*pipeline.sink.metadata_columns, *(by.keys if by else ())}


def keyed_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    for name, pipeline in config.pipelines.items():
        if pipeline.keyed is not None:
            here: Key = ("pipelines", name, "keyed")
            yield from _of_sources(pipeline, here)
            yield from _of_columns(pipeline, pipeline.keyed, here)
            if pipeline.keyed.advanced.keep_changes is not None:
                yield from _of_retention(config, name, here)
            taken = keyed_name(name)
            if taken in config.pipelines or taken in config.tables:
                yield SettingProblem(
                    here, f"its table is called {taken!r}, as another one; rename that one"
                )


def _of_retention(config: Config, name: str, here: Key) -> Iterator[SettingProblem]:
    """Yield a problem if changes would leave before another keyed table has them."""
    uri = normalize_uri(config.pipelines[name].sink.table_uri)
    for other, pipeline in config.pipelines.items():
        if other != name and pipeline.keyed and normalize_uri(pipeline.sink.table_uri) == uri:
            yield SettingProblem(
                (*here, "advanced", "keep_changes"),
                f"would take changes from the keyed table of {other!r}, which has the same sink;"
                " leave it out",
            )


def _of_sources(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    for source_name, source in pipeline.sources.items():
        if source.replaces:
            yield SettingProblem(
                here,
                f"source {source_name!r} replaces its rows (units, snapshot or reread: replace), so"
                " its table has current rows already; leave keyed out",
            )
    if pipeline.query is not None:
        yield SettingProblem(
            here, "does not go with a query over event_time, whose results are no versions of rows"
        )


def _of_columns(
    pipeline: PipelineSettings, keyed: KeyedSettings, here: Key
) -> Iterator[SettingProblem]:
    sequence = sequence_of(pipeline, keyed)
    if not sequence:
        yield SettingProblem(
            (*here, "sequence_by"),
            "is required: it says which of two rows of a key is newer. Only for one table or API"
            " whose watermark columns are columns of the table there is a default",
        )
    if pipeline.transform is not None or pipeline.query is not None or pipeline.schema_.infer:
        return  # Penguin checks the columns of the table
    added = _added_columns(pipeline)
    there = {*pipeline.field_types, *added}
    fields = {field.name: field for field in pipeline.fields if field.name not in added}
    for key, names in (("keys", keyed.keys), ("sequence_by", sequence)):
        for name in names:
            text = _column_problem(name, fields.get(name)) if name not in added else None
            if name in pipeline.path_types:
                text = f"{name!r} comes from paths, and may be null there; use a field"
            if text is not None:
                yield SettingProblem((*here, key), text)
    condition = keyed.condition
    used = [("deletes", condition.column)] if condition is not None else []
    for key, name in [*used, *(("leave_out", name) for name in keyed.leave_out)]:
        if name not in there:
            yield SettingProblem((*here, key), f"{name!r} is no column of the table")


def _column_problem(name: str, field: FieldSettings | None) -> str | None:
    """Return why a column is none for a key or a sequence."""
    if field is None:
        return f"{name!r} is no column of the table"
    if field.type.startswith(_UNORDERED):
        return f"{name!r} is {field.type}, which identifies and orders no rows"
    if field.nullable:
        return f"{name!r} may be null; declare it with nullable: false in schema.fields"
    return None

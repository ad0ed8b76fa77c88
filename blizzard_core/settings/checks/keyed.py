"""Cross-field checks of keyed tables: their columns, their sources, and their names.

Penguin checks the columns again in the table, which may have those of a transform.
"""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.keyed import KeyedSettings
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
    return [*columns, *({"_ingested_at"} & {*pipeline.sink.metadata_columns})]


def keyed_notes(config: Config) -> Iterator[str]:
    """Yield what is allowed in keyed tables and may not be meant."""
    vacuumed = {normalize_uri(t.table_uri) for t in config.tables.values() if t.vacuum}
    for name, pipeline, keyed in _keyed(config):
        here = keyed_name(name)
        if pipeline.deduplicate_by:
            yield f"{here}: deduplicate_by keeps a batch's first record; leave deduplicate_by out"
        if keyed.advanced.keep_changes and normalize_uri(pipeline.sink.table_uri) not in vacuumed:
            yield f"{here}: without vacuum in tables, what keep_changes lets go stays in the store"
        sequence = sequence_of(pipeline, keyed)
        kinds = [pipeline.field_types.get(column) for column in sequence]
        if pipeline.file_sources and kinds in (["timestamp"], ["date"]):
            text = "the later arrival stays; add a column to sequence_by that tells them apart"
            yield f"{here}: of two changes with one {sequence[0]} {text}"


def keyed_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    for name, pipeline, keyed in _keyed(config):
        here: Key = ("pipelines", name, "keyed")
        for source in (each for each, given in pipeline.sources.items() if given.replaces):
            text = "replaces its rows, so its table has current rows already; leave keyed out"
            yield SettingProblem(here, f"source {source!r} {text}")
        if pipeline.query is not None:
            text = "does not go with a query over event_time, whose results are no versions of rows"
            yield SettingProblem(here, text)
        for key, text in _of_columns(pipeline, keyed):
            yield SettingProblem((*here, key), text)
        if keyed_name(name) in {*config.pipelines, *config.tables}:
            text = f"its table is called {keyed_name(name)!r}, as another one; rename that one"
            yield SettingProblem(here, text)


def _keyed(config: Config) -> Iterator[tuple[str, PipelineSettings, KeyedSettings]]:
    for name, pipeline in config.pipelines.items():
        if pipeline.keyed is not None:
            yield name, pipeline, pipeline.keyed


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

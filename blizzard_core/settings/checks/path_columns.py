"""Cross-field checks of columns that come from paths."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.globs import template_names
from blizzard_core.settings.schema import FieldSettings, odd_names
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.protocol import is_hidden


def path_column_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    for name, pipeline in config.pipelines.items():
        fields = {field.name.lower(): field for field in pipeline.fields}
        types = pipeline.path_types
        for source_name, source in pipeline.file_sources.items():
            here: Key = ("pipelines", name, "sources", source_name)
            for column, kind in source.path_columns.items():
                for text in _of_column(column, fields.get(column.lower()), pipeline):
                    yield SettingProblem((*here, "path_columns", column), text)
                if types[column] != kind:
                    text = f"is {kind} here and {types[column]} in another source; use one type"
                    yield SettingProblem((*here, "path_columns", column), text)
            for column in template_names(source.advanced.path_template or ""):
                if column not in source.path_columns:
                    text = (
                        f"has {{{column}}}, which path_columns does not name; give its type there"
                    )
                    yield SettingProblem((*here, "advanced", "path_template"), text)
        if pipeline.transform is None and pipeline.query is None:
            yield from _of_output(pipeline, ("pipelines", name))


def _of_column(
    column: str, field: FieldSettings | None, pipeline: PipelineSettings
) -> Iterator[str]:
    if field is not None:
        yield (
            f"{column!r} is also a field of the schema (case does not count); leave the field out,"
            f" or give it another name, with from: {field.input_name}"
        )
    if not column or is_hidden(column):
        yield f"{column!r} must not be empty, nor begin with _ or .: such folders are hidden"
    elif pipeline.transform is None:
        yield from odd_names([FieldSettings(name=column, type="string")])
    others = pipeline.path_types.keys() - {column}
    if any(other.lower() == column.lower() for other in others):
        yield f"{column!r} is in path_columns in another spelling, too; Delta ignores case"


def _of_output(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the uses of columns in all rows that only rows of some sources have."""
    by, sink = pipeline.sink.partition_by, (*here, "sink")
    used = {
        (*sink, "partition_by"): [each.column for each in by.columns] if by else [],
        (*sink, "sort_by"): [name for name, _ in pipeline.sink.sort_keys],
        (*here, "deduplicate_by"): pipeline.deduplicate_by,
    }
    for key, names in used.items():
        for column in dict.fromkeys(names):
            for source_name, source in pipeline.sources.items():
                files = source.as_files
                lacks = files is None or column not in files.path_columns
                if column in pipeline.path_types and lacks:
                    text = f"names {column!r}, which is not in path_columns of {source_name!r}"
                    yield SettingProblem(key, text)

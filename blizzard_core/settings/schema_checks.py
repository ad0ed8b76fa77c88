"""What ``schema: evolve`` and the rest of a configuration make of one another. Pure.

Each finding has the key that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_core.storage.opening import normalize_uri

Finding: TypeAlias = tuple[Key, str]


def schema_problems(config: Config) -> Iterator[Finding]:
    """Every finding, in the order of the file."""
    for name, pipeline in config.pipelines.items():
        if pipeline.schema_.evolve == "add":
            here: Key = ("pipelines", name, "schema", "evolve")
            yield from ((here, text) for text in _of_pipeline(pipeline))
            yield from ((here, text) for text in _of_tables(config, pipeline))


def _of_pipeline(pipeline: PipelineSettings) -> Iterator[str]:
    if not all(isinstance(source, SourceSettings) for source in pipeline.sources.values()):
        yield "add is for sources of files; a table or an API is asked for the columns of `fields`"
    for key, given in (("transform", pipeline.transform), ("event_time", pipeline.query)):
        if given is not None:
            yield f"add does not go with {key}, whose query says what the columns are"


def _of_tables(config: Config, pipeline: PipelineSettings) -> Iterator[str]:
    """Nothing, or why the table takes no column more."""
    place = normalize_uri(pipeline.sink.table_uri)
    for name, table in config.tables.items():
        if normalize_uri(table.table_uri) != place:
            continue
        if table.schema_evolution == "strict":
            yield (
                f"add needs a table that takes new columns, and tables.{name} has schema_evolution:"
                " strict, with which Penguin refuses each file that has one; set it to merge"
            )
        elif not table.max_new_columns:
            yield f"add needs tables.{name}.max_new_columns above 0"

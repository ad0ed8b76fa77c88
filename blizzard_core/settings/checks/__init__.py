"""The registry of cross-field checks, which compare parts of a valid configuration.

`blizzard_core.settings.checks.places` finds conflicts of places in the raw data, before types are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from blizzard_core.settings.checks.event_time import event_time_problems
from blizzard_core.settings.checks.files import (
    file_source_problems,
    path_column_problems,
    replica_problems,
)
from blizzard_core.settings.checks.sources import query_problems, schema_problems
from blizzard_core.settings.checks.tables import keyed_problems, table_problems
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem

Check: TypeAlias = Callable[[Config], Iterator[SettingProblem]]

# In the order in which the problems of a pipeline are shown; each gets the pipeline's key.
_OF_PIPELINES: tuple[Callable[[Config, PipelineSettings, Key], Iterator[SettingProblem]], ...] = (
    table_problems,
    query_problems,
    event_time_problems,
    schema_problems,
    path_column_problems,
    keyed_problems,
    file_source_problems,
)


def cross_field_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems of all pipelines, then those of the process and of Penguin's tables."""
    for name, pipeline in config.pipelines.items():
        for check in _OF_PIPELINES:
            yield from check(config, pipeline, ("pipelines", name))
    yield from replica_problems(config)
    if config.metrics is None:
        for name, table in config.tables.items():
            if table.notify is not None:
                yield SettingProblem(
                    ("tables", name, "notify"),
                    "needs metrics.address, where Penguin serves POST /notify",
                )

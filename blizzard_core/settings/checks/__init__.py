"""The registry of cross-field checks, which compare parts of a valid configuration.

`blizzard_core.settings.checks.places` finds conflicts of places in the raw data, before types are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from blizzard_core.settings.checks.event_time import event_time_problems
from blizzard_core.settings.checks.keyed import keyed_problems
from blizzard_core.settings.checks.list_budget import list_budget_problems
from blizzard_core.settings.checks.notifications import notification_problems, replica_problems
from blizzard_core.settings.checks.path_columns import path_column_problems
from blizzard_core.settings.checks.sources import (
    complete_and_clean_problems,
    query_problems,
    schema_problems,
)
from blizzard_core.settings.document import Config
from blizzard_core.settings.yaml_file import SettingProblem

Check: TypeAlias = Callable[[Config], Iterator[SettingProblem]]


def _pipeline_problems(config: Config) -> Iterator[SettingProblem]:
    for name, pipeline in config.pipelines.items():
        yield from (SettingProblem(("pipelines", name), text) for text in pipeline.problems())


CHECKS: tuple[Check, ...] = (
    _pipeline_problems,
    query_problems,
    event_time_problems,
    schema_problems,
    path_column_problems,
    keyed_problems,
    list_budget_problems,
    notification_problems,
    replica_problems,
    complete_and_clean_problems,
)

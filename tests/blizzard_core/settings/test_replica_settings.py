"""Settings of replicas, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.settings_documents import (
    cases,
    changed,
    is_reported,
    load,
    problems,
    with_changes,
)

GOOD = changed(sources__main__source_uri="s3://raw/events", sink__table_uri="s3://lake/events")


def test_a_lease_is_half_a_minute_by_default(tmp_path: Path) -> None:
    replicas = {"global.replicas": {"uri": "s3://lake/events/_blizzard/replicas"}}
    found = load(tmp_path, with_changes(GOOD, replicas)).global_.replicas
    assert found.advanced.lease == 30.0


WRONG = """
global.replicas: {uri: "s3://raw/events/leases"} => overlaps pipelines.events.sources.main
global.replicas: {uri: "s3://raw"} => overlaps pipelines.events.sources.main
global.replicas: {uri: "s3://"} => names no bucket
global.replicas: {uri: "s3://lake/leases", advanced: {lease: 1s}} => must be at least 5
global.replicas: {} => is required
global.replicas: {uri: "s3://lake/leases"},
  sources.main.notifications: {uri: "webhook:", token: sesame-sesame-sesame}
  => goes to one replica
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_settings_that_cannot_work_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(problems(tmp_path, with_changes(GOOD, changes)), said, place)

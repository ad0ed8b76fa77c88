"""Groups by the event time itself: the watermark ends them as it ends windows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from blizzard_py.app.event_state import event_state, operators_ending_by
from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of

BY_TIME: dict[str, Any] = {
    **{key: value for key, value in TUMBLING.items() if key != "window"},
    "group_by": ["ts", "page"],
}
SLOWER: dict[str, Any] = {"event_time": {"delay": "15 seconds"}}
OTHER_COLUMN: dict[str, Any] = {"event_time": {"column": "seen"}}


@pytest.mark.promise("G-073")
@pytest.mark.parametrize(
    ("settings", "app"),
    [
        (BY_TIME, SLOWER),
        (BY_TIME | {"mode": "update"}, SLOWER),
        # No field is the time of both, so nothing is over.
        (BY_TIME | {"mode": "update"}, OTHER_COLUMN),
    ],
    ids=["append", "update", "two columns"],
)
def test_groups_by_time_of_two_sources_equal_brute_force(
    tmp_path: Path, spark_engine: SparkEngine, settings: dict[str, Any], app: dict[str, Any]
) -> None:
    sources = {"web": {}, "app": app}
    world = EventTimeHarness(tmp_path, spark_engine, dict(settings), sources=sources)
    oracle = Oracle(settings, sources)
    draw = random.Random(3)
    for number in range(4):
        at = 100 + 15 * number
        files = {}
        for name in sources:
            times = (at - draw.choice([0, 1, 20, 31]) + draw.choice([0, 0.5]) for _ in range(6))
            rows = [row(second, draw.choice("ab")) for second in times]
            files[world.put(rows, name)] = rows
        oracle.add_batch(files, whose=world.whose)
    world.drain()
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert world.late() == oracle.late
    assert bool(oracle.late) == (app is SLOWER)
    assert windows_of(world.table()) == oracle.emitted
    assert oracle.emitted
    assert world.stream().unaccounted_rows == 0


def test_the_state_of_a_group_by_time_says_when_it_ends(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: spark_engine)
    monkeypatch.setattr(spark_engine, "stop", lambda: None)
    world = EventTimeHarness(tmp_path, spark_engine, dict(BY_TIME))
    world.put([row(107.000001), row(109)])
    world.drain()
    [groups] = event_state(world.config(), "pages", 2)["pipelines"]["pages"]["operators"]
    # A watermark has whole milliseconds.
    assert [one["ends"] for one in groups["first"]] == [
        "2024-01-28T14:01:47.001Z",
        "2024-01-28T14:01:49Z",
    ]
    [found] = operators_ending_by(world.config(), ("pages", "web"), 1_706_450_507_001)
    assert (found.count, found.ending) == (2, 1)
    to_ms = world.advance(107.001)
    world.drain()
    assert world.stream().watermark_ms == to_ms
    assert len(world.table()) == 1

"""Work units through the real protocol, with deaths, failures and other daemons."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import Unavailable
from blizzard_py.connections.query_spec import QuerySpec, Units
from blizzard_py.job import AddedColumns, FieldSpec
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.ranges import UnitRange
from blizzard_py.sources.context import SourceContext
from tests.support.group_reader import rows_of
from tests.support.promise_scenarios import is_running_batch, killed
from tests.support.query_harness import QueryHarness
from tests.support.toy_connection import ToyConnection, ToyTable

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("text", pa.string())]
)
FIELDS = (
    FieldSpec("at", "timestamp", nullable=True),
    FieldSpec("name", "string", nullable=True),
    FieldSpec("text", "string", nullable=True),
)


class UnitQueryHarness(QueryHarness):
    """Two values, a partition a day; the world's clock begins on 15 June 2025."""

    def __init__(self, grace: float = 0, **units: Any) -> None:
        super().__init__(ToyTable("unit rows", "at", schema=SCHEMA), FIELDS)
        self.job["added_columns"] = AddedColumns(unit=True)
        listed = tuple({"name": name} for name in ("x", "y"))
        self.units = Units(
            UnitRange("2025-06-13", "-", partition="daily"),
            Terms(dt.timedelta(days=grace)),
            ("name",),
            listed,
            bounds=frozenset({"from", "to"}),
            **units,
        )

    def parts(self) -> SourceContext:
        found = super().parts()
        asked = QuerySpec(
            ToyConnection(self.table), self.table.access, (), replaces=True, units=self.units
        )
        return replace(found, query_spec=asked)

    def arrive(self, *rows: tuple[float, str, str]) -> None:
        """Rows so many days after 13 June."""
        first = dt.datetime(2025, 6, 13, tzinfo=dt.UTC)
        self.table.rows += [
            {"at": first + dt.timedelta(days=day), "name": name, "text": text}
            for day, name, text in rows
        ]

    def objects(self) -> dict[str, bytes]:
        return {path: data for path, (data, _) in self.sink.objects.items()}

    def seen(self) -> list[str]:
        return sorted(row["text"] for row in rows_of(self.objects()))

    def id(self) -> str:
        return self.parts().id


def filled(**options: Any) -> UnitQueryHarness:
    world = UnitQueryHarness(**options)
    world.arrive((0.1, "x", "a"), (0.2, "y", "b"), (1.3, "x", "c"), (2.1, "y", "d"))
    return world


def test_planned_slices_are_read_again_after_a_crash() -> None:
    world = filled()
    killed(world, is_running_batch(world))
    planned = world.checkpoint()["units"]["readings"]
    world.engine.jobs.clear()
    world.now += 86_400
    with contextlib.suppress(Unavailable):
        world.drain()
    reading = world.engine.jobs[0].reading
    assert {name: some[-1].task.spec["to"][:19] for name, some in reading.slices.items()} == {
        each["key"]: each["to"][:19] for each in planned
    }


@pytest.mark.promise("G-156")
def test_failed_unit_blocks_no_other_and_success_closes_letter() -> None:
    world = filled()
    world.errors["max_retries"] = 1
    world.table.broken = {"y"}
    with contextlib.suppress(Unavailable):
        world.drain()
    assert world.seen() == ["a", "c"]
    state = world.checkpoint()["units"]
    failing = {key: unit["failures"] for key, unit in state["open"].items() if unit["failures"]}
    assert {key.partition("/")[2] for key in failing} == {"y"}
    assert not world.letters()
    for _ in range(3):
        world.now += 4000
        world.arrive((3.0, "x", f"more {_}"))
        with contextlib.suppress(Unavailable):
            world.drain()
    assert world.letters()
    world.table.broken = set()
    world.now += 90_000
    world.drain_with_errors()
    assert "b" in world.seen()
    assert not [path for path in world.dlq.objects if "replayed" not in path]


def test_a_source_that_is_down_is_no_failure_of_units() -> None:
    world = filled()
    world.table.broken = {"x", "y"}
    with pytest.raises(Unavailable):
        world.drain()
    assert not any(u["failures"] for u in world.checkpoint()["units"]["open"].values())
    world.table.broken = set()
    world.drain_with_errors()
    assert world.seen() == ["a", "b", "c", "d"]


def test_an_idle_daemon_reads_units_in_grace_once_a_poll() -> None:
    world = filled(grace=5)
    worker = world.pipeline()
    world.drain(worker)
    jobs = len(world.engine.jobs)
    world.drain(worker)
    assert len(world.engine.jobs) == jobs
    world.now += 3600
    world.drain(worker)
    assert len(world.engine.jobs) == jobs + 1

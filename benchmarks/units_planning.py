"""Planning of work units: partitions, `plan`, what a source does each poll, and its state's size.

Hourly partitions of two values. `plan` is given a high watermark of each; a source's poll is
measured with all units open, which is the worst there is, and with all of them closed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

from blizzard_py.slices.instants import stamp
from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.due import Terms, due
from blizzard_py.slices.units.grid import GridLayout, grid
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import OpenUnit, UnitsState, unit_key
from blizzard_py.units import partitions, plan, unit_list

START = datetime(2009, 1, 1, tzinfo=UTC)
GRACE = Terms(grace=timedelta(days=3))

RUNS = 5
# What the planning of 200,000 units may take.
GOAL_SECS = 1.0

Result = TypeVar("Result")


class Timed(NamedTuple):
    """Medians of some runs, by the clock and of the processor."""

    what: str
    secs: float
    cpu: float


class Stopwatch:
    """Runs calls and keeps what they took."""

    def __init__(self) -> None:
        self.found: list[Timed] = []

    def timed(self, what: str, call: Callable[[], Result]) -> Result:
        """Time the call and return its result."""
        walls, cpus = [], []
        for _ in range(RUNS):
            wall, cpu = time.perf_counter(), time.process_time()
            result = call()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        self.found.append(Timed(what, statistics.median(walls), statistics.median(cpus)))
        return result


def all_open(ranges: list[Pair], names: list[str]) -> UnitsState:
    """Every unit as it is after the first run."""
    at = stamp(ranges[-1][1])
    return UnitsState(
        open={
            unit_key(begin, name): OpenUnit(stamp(end), (stamp(begin),), at)
            for begin, end in ranges
            for name in names
        }
    )


def planning(units: int) -> tuple[list[Timed], dict[str, int]]:
    """Measure the planning of so many units, and the bytes of their state, open and closed."""
    watch = Stopwatch()
    timed = watch.timed
    end = START + timedelta(hours=units // 2)
    values = unit_list("id", "a,b")
    names = [one["id"] for one in values]
    now = end + timedelta(minutes=1)

    ranges = timed(f"{units // 2:,} hourly partitions", lambda: partitions(START, end, "hourly"))
    timed(
        f"{(end - START).days:,} daily partitions in Europe/Berlin",
        lambda: partitions(START, end, "daily", zone="Europe/Berlin"),
    )
    highs = {(low, name): high for low, high in ranges for name in names}
    timed(f"plan of {units:,} units", lambda: plan(ranges, values, highs, 3, 0))
    timed("plan of as many that are all new", lambda: plan(ranges, values, {}, 3, 0))
    state = all_open(ranges, names)
    timed("what is due, all open", lambda: due(state, ranges, values, GRACE, now))
    shut = timed("closing all of them", lambda: compact(state, ranges, names, GRACE.shift))
    timed(
        "what is due, all closed but the last days",
        lambda: due(shut, ranges, values, GRACE, now),
    )
    layout = GridLayout(ranges, values, GRACE)
    timed("the grid of the page, all open", lambda: grid(state, layout, now))
    timed("the grid of the page, all closed", lambda: grid(shut, layout, now))
    sizes = {
        what: len(msgspec.json.encode(told)) for what, told in (("open", state), ("closed", shut))
    }
    return watch.found, sizes

"""Planning of work units: partitions, `plan`, what a source does each poll, and its state's size.

    python -m benchmarks.units                  # 200,000 units
    python -m benchmarks.units --units 50000

Hourly partitions of two values. `plan` is given a high watermark of each; a source's poll is
measured with all units open, which is the worst there is, and with all of them closed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from blizzard_py.units import partitions, plan, unit_list
from blizzard_py.units.closing import closed
from blizzard_py.units.due import Terms, due
from blizzard_py.units.instants import stamp
from blizzard_py.units.schemes import Pair
from blizzard_py.units.state import OpenUnit, UnitsState, unit_key, units_to_json

START = datetime(2009, 1, 1, tzinfo=UTC)
GRACE = Terms(grace=timedelta(days=3))

Result = TypeVar("Result")


def timed(what: str, call: Callable[[], Result], runs: int = 5) -> Result:
    """The call's result; printed are the medians of some runs, wall and processor."""
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        found = call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    print(
        f"{what:52} {statistics.median(walls):7.3f} s  (processor {statistics.median(cpus):.3f} s)"
    )
    return found


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=200_000)
    args = parser.parse_args()
    end = START + timedelta(hours=args.units // 2)
    values = unit_list("id", "a,b")
    names = [one["id"] for one in values]

    ranges = timed("hourly partitions", lambda: partitions(START, end, "hourly"))
    days = (end - START).days
    timed(f"{days:,} daily partitions in Europe/Berlin",
          lambda: partitions(START, end, "daily", zone="Europe/Berlin"))  # fmt: skip
    highs = {(low, name): high for low, high in ranges for name in names}
    found = timed(f"plan of {2 * len(ranges):,} units", lambda: plan(ranges, values, highs, 3, 0))
    print(f"  {sum(unit.execute for unit in found.units)} of them to execute")
    timed("plan of as many that are all new", lambda: plan(ranges, values, {}, 3, 0))

    state = all_open(ranges, names)
    now = end + timedelta(minutes=1)
    timed("what is due, all open", lambda: due(state, ranges, values, GRACE, now))
    shut = timed("closing all of them", lambda: closed(state, ranges, names, GRACE.shift))
    timed("what is due, all closed but the last days",
          lambda: due(shut, ranges, values, GRACE, now))  # fmt: skip
    for what, told in (("open", state), ("closed", shut)):
        print(f"state, {what}: {len(msgspec.json.encode(units_to_json(told))):,} bytes")


if __name__ == "__main__":
    main()

"""One run from the first file to the verdict."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.blizzard import evidence
from tests.chaos.blizzard.director import Director
from tests.chaos.blizzard.fleet import Fleet, Trouble
from tests.chaos.blizzard.oracle import Fault, Found, Written, judge, lateness
from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.place import Place, local_place, s3_place
from tests.chaos.blizzard.writer import Writer
from tests.support.s3_server import S3Server

_TICK_SECS = 2.0
# Beyond some grace periods: restarts, sweeps and commits on a busy machine.
_SETTLE_SECS = 240.0


# Every second seed closes partitions while files still come for them.
_FEW_TRACKED = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """``secs`` of trouble; what comes after it is not counted."""

    secs: float
    seed: int
    pace: Pace


def planned(secs: float, seed: int, pace: Pace) -> Plan:
    """Return the run of a seed."""
    return Plan(secs, seed, pace if seed % 2 else replace(pace, tracked=_FEW_TRACKED))


def run_local(folder: Path, plan: Plan) -> dict[str, int]:
    """Run on a disk; return the counts of events. Raises `Trouble` with all violations."""
    return _run(folder, plan, local_place(folder, plan.pace))


def run_s3(folder: Path, plan: Plan, server: S3Server) -> dict[str, int]:
    """Run the same through an S3 API."""
    with s3_place(folder, plan.pace, server, plan.seed) as place:
        counts = _run(folder, plan, place)
        return {
            **counts,
            "answers lost": place.proxy.lost,
            "requests that landed late": len(place.proxy.delayed),
            "requests": len(place.proxy.seen),
        }


def _run(folder: Path, plan: Plan, place: Place) -> dict[str, int]:
    try:
        return _run_and_check(folder, plan, place)
    except Trouble as trouble:
        seed = f"seed {plan.seed}, {plan.secs:g} s with a grace period of {plan.pace.grace:g} s"
        raise Trouble(f"{seed}: {trouble}") from None


def _run_and_check(folder: Path, plan: Plan, place: Place) -> dict[str, int]:
    control = folder / "control"
    control.mkdir()
    fleet = Fleet(place.scenario, control)
    writer = Writer(place.put, plan.pace, plan.seed)
    began = time.monotonic()
    with ExitStack() as stack:
        stack.callback(fleet.end)
        writer.start()
        stack.callback(writer.finish)
        director = Director(fleet, place, plan.pace, plan.seed)
        director.run(began + plan.secs)
        files = writer.finish()
        place.calm()
        director.restart_all()
        _wait_until_complete(place, plan, director, files)
        director.stop()
        for program in ("blizzard", "penguin"):
            fleet.drain(program, _SETTLE_SECS)
    found = evidence.found(place)
    faults = judge(files, found, plan.pace.covered, plan.pace.tracked)
    faults += _status(place, found)
    counts = {**summary(files, found, plan.pace), **fleet.counts}
    if faults:
        happened = ", ".join(f"{what}: {count:,}" for what, count in counts.items())
        raise Trouble("\n".join([happened, *evidence.explained(place, faults)]))
    return counts


def _wait_until_complete(
    place: Place, plan: Plan, director: Director, files: list[Written]
) -> None:
    """Wait until the state is complete, or for the longest time that this may take."""
    until = time.monotonic() + 3 * plan.pace.grace + _SETTLE_SECS
    while time.monotonic() < until:
        director.wait(_TICK_SECS)
        if not judge(files, evidence.found(place), plan.pace.covered, plan.pace.tracked):
            return


def _status(place: Place, found: Found) -> list[Fault]:
    """Compare the counts of `blizzard status` with the table and the dead letters."""
    source = evidence.totals(place)
    rows = sum(found.rows.values())
    told = source["totals"]["rows"]
    faults = []
    if told != rows:
        faults.append(Fault("unknown", "", f"status says {told} rows, the table has {rows}"))
    if source["in_flight"] or source["state"] != "Idle":
        faults.append(Fault("unknown", "", f"status says {source['state']} when all is done"))
    return faults


def summary(files: list[Written], found: Found, pace: Pace) -> dict[str, int]:
    """Count the files that were written, by kind and outcome."""
    late = lateness(files, pace.tracked)
    kinds = Counter(
        {
            "files": len(files),
            "files out of order": sum(secs > 0 for secs in late.values()),
            "files later than the promise covers": sum(s > pace.covered for s in late.values()),
            "files with old times": sum(f.old > 0 for f in files),
            "unreadable files": sum(f.unreadable for f in files),
            "letters for files": sum(found.files.values()),
            "letters for lines": sum(found.lines.values()),
            "partitions": len({f.path.rpartition("/")[0] for f in files}),
            "rows": sum(found.rows.values()),
        }
    )
    return dict(kinds)

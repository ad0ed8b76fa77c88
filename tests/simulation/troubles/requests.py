"""Requests for files, drawn after the rest of a plan, which stays the same."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import DAY, START, Event, Plan, directory, event

# Somebody who sleeps for so long would find the time of a partition come.
_LONG_SECS = 5.5 * DAY


def with_requests(plan: Plan) -> Plan:
    """Return the plan with the way of each request; some are cancelled, some ahead of time."""
    chance = random.Random(plan.seed * 7 + 5)
    events: list[Event] = []
    for found in plan.events:
        if found.kind != "ingest":
            events.append(found)
            continue
        how = chance.choices(("followed", "left", "here"), (5, 3, 2))[0]
        twice = True if chance.random() < 0.3 else None
        particulars = {**dict(found.what), "how": how, "twice": twice}
        events.append(event(found.at, "ingest", **particulars))
        if chance.random() < 0.25:
            at = found.at + chance.choice((2.0, 20.0, 80.0)) * chance.random()
            events.append(event(at, "cancelled", source=found.get("source")))
    kinds = {found.kind for found in events}
    is_dated = plan.settings.layout in {"days", "hours"} and plan.settings.watermark
    if is_dated and chance.random() < 0.06 and not kinds & _CLOCKS:
        events += _ahead(chance, plan)
    ordered = tuple(sorted(events, key=lambda found: found.at))
    length = max(plan.length, ordered[-1].at + 30.0) if ordered else plan.length
    return replace(plan, events=ordered, length=length)


_CLOCKS = frozenset({"clock", "store_clock", "set_aside", "put_back", "original", "moved"})


def _ahead(chance: random.Random, plan: Plan) -> list[Event]:
    """Files of a partition whose time is still to come are requested, and then it comes."""
    at = plan.length * (0.2 + 0.7 * chance.random())
    folder = directory(plan.settings.layout, START + 4 * DAY)
    count = chance.choice((2, 3))
    writes = [
        event(
            at + n, "write", path=f"{folder}{int(START + 4 * DAY)}-{n:03d}.ndjson", manner="ahead"
        )
        for n in range(count)
    ]
    asked = event(
        at + 20.0, "ingest", count=chance.randrange(1, count + 1), folder=folder, how="followed"
    )
    asleep = max(plan.length, at + 20.0) + chance.choice((60.0, 200.0))
    return [
        *writes,
        asked,
        *(event(asleep, "kill", who=who, secs=_LONG_SECS) for who in ("blizzard", "penguin")),
        # Nobody has looked above it yet.
        event(asleep + 3600.0, "write", path=f"{folder}0.ndjson", manner="in_order"),
        event(asleep + _LONG_SECS + 60.0, "write", path=f"{folder}later.ndjson", manner="in_order"),
    ]

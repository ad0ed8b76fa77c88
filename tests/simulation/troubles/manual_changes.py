"""Undo and redo by operators, drawn after the rest of a plan, which stays the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.simulation.plan import DAY, START, Event, Plan, directory, event
from tests.simulation.troubles.requests import with_requests


def by_hand(plan: Plan) -> Plan:
    """Return the plan with edits that are undone, letters closed and outputs redone."""
    chance = random.Random(plan.seed * 2 + 7)
    events = list(plan.events)
    for _ in range(chance.choice((1, 2, 3))):
        at = plan.length * (0.2 + 0.7 * chance.random())
        kind = chance.choices((_undone, _closed, _refused, _copied), (4, 3, 4, 2))[0]
        events += kind(chance, plan, at)
    if plan.seed % 5 > 2 and plan.settings.watermark and plan.settings.layout != "flat":
        events += _ranges(random.Random(plan.seed * 3 + 5), plan, events)
        # Who pauses publishes late, and only sweeps find that.
        plan = replace(plan, settings=replace(plan.settings, reconcile=400.0))
    ordered = tuple(sorted(events, key=lambda found: found.at))
    return with_requests(
        replace(plan, events=ordered, length=max(plan.length, ordered[-1].at + 30.0))
    )


def _undone(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """Draw a watermark that is moved and moved back; a daemon may work between."""
    source = chance.randrange(plan.settings.sources) or None
    found = [_command(chance, at, "rewound", source=source, back=chance.choice((None, 1, 2, 5)))]
    if chance.random() < 0.3:
        at += 20 * chance.random()
        found.append(_command(chance, at, "ingest", source=source, count=chance.choice((1, 3))))
    for back in chance.choice(((0,), (0,), (0, 0), (1,), (2, 0))):
        at += chance.choice((1.0, 5.0, 20.0, 60.0)) * chance.random()
        found.append(_command(chance, at, "rolled_back", source=source, back=back))
    return found


def _closed(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """Draw letters that are closed while a replay of them runs."""
    source = chance.randrange(plan.settings.sources) or None
    found = [_command(chance, at, "discarded", source=source, count=chance.choice((1, 3)))]
    if chance.random() < 0.6:
        found.append(event(max(0.0, at - 30), "mended"))
        later = at + 10 * (chance.random() - 0.3)
        found.append(_command(chance, later, "replay", source=source))
    return found


def _refused(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """Draw a schema that the table rejects, mended and redone, once or side by side."""
    source = chance.randrange(plan.settings.sources) or None
    found = [event(at * 0.6, "spoiled", count=chance.choice((1, 2, 4)))]
    for _ in range(chance.choice((1, 2, 2, 3))):
        at += chance.choice((0.5, 5.0, 40.0)) * chance.random()
        found.append(_command(chance, at, "redone", source=source))
    if chance.random() < 0.3:
        found.append(_command(chance, at, "rewound", source=source, back=chance.choice((None, 1))))
        found.append(_command(chance, at + 10, "rolled_back", source=source, back=0))
    if chance.random() < 0.3:
        later = at + 10 * (chance.random() - 0.5)
        kind = chance.choice(("ingest", "replay", "backfill"))
        found.append(_command(chance, later, kind, source=source, count=2))
    return found


def _copied(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """Draw an older copy of the checkpoint that comes back, where no clock is years ahead.

    Nor where the name becomes another one meanwhile.
    """
    without = {"clock", "moved"}
    if plan.settings.store_skew > DAY or any(e.kind in without for e in plan.events):
        return []
    secs = chance.choice((5.0, 40.0))
    return [
        event(at * chance.random(), "copied"),
        event(at, "brought_back", secs=secs),
    ]


_JOURNAL_SECS = 20 * DAY
# Partitions from one to another that people have ingested again.
RANGES = {
    "date": (("date=2023-01-01", "date=2025-01-01"), ("date=2024-01-28", "date=2024-01-28")),
    "region": (("region=a", "region=z"), ("region=eu", "region=eu")),
}


def _ranges(chance: random.Random, plan: Plan, others: Sequence[Event]) -> list[Event]:
    """Draw replays of ranges beside all else that ingests their files.

    Not where somebody sleeps for longer than journals are kept, which tell what came meanwhile, nor
    where the name becomes another one.
    """
    sleeps = max((each.get("secs", 0.0) for each in plan.events), default=0.0)
    moved = any(each.kind == "moved" for each in plan.events)
    if moved or max(sleeps, plan.settings.store_skew) > _JOURNAL_SECS:
        return []
    layout = "region" if plan.settings.layout.startswith("region") else "date"
    at = plan.length * (0.2 + 0.6 * chance.random())
    found: list[Event] = []
    source = chance.randrange(plan.settings.sources) or None
    for count in range(chance.choice((1, 1, 2))):
        first, last = chance.choice(RANGES[layout])
        anew = bool(count) or None
        where = {"first": first, "last": last, "anew": anew, "source": source}
        found.append(_command(chance, at, "replayed", **where))
        match chance.choice(("late", "ingest", "letters", "refused", "nothing")):
            case "late":
                folder = directory(plan.settings.layout, START + at)
                path = f"{folder}{int(START + at) - 5000}-late.ndjson"
                found.append(event(at + 5 * (chance.random() - 0.5), "write", path=path))
                later = at + 10 * (chance.random() - 0.3)
                found.append(_command(chance, later, "ingest", source=source, count=3))
            case "ingest":
                later = at + 10 * (chance.random() - 0.5)
                found.append(_command(chance, later, "ingest", source=source, count=3))
            case "letters":
                found.append(event(at - 20 * chance.random(), "mended"))
                later = at + 10 * (chance.random() - 0.5)
                found.append(_command(chance, later, "replay", source=source))
            case "refused" if not any(each.kind == "spoiled" for each in (*others, *found)):
                # Another schema while a redo is under way is the redo's: it waits and says so.
                found.append(event(at - 1, "spoiled", count=chance.choice((1, 3))))
                later = at + 20 + 40 * chance.random()
                found.append(_command(chance, later, "redone", source=source))
            case _:
                pass
        at += 100 * chance.random()
    return found


def _command(chance: random.Random, at: float, kind: str, **what: object) -> Event:
    """One of two dies on its way."""
    if chance.random() < 0.5:
        what |= {
            "fault": chance.choice(("dies_before", "dies_after", "pauses_before", "pauses_after")),
            "place": chance.choice(("any", "write", "checkpoint", "letters", "copy", "log")),
            "countdown": chance.randrange(8),
            "secs": chance.choice((10.0, 60.0, 200.0)),
        }
    return event(max(0.1, at), kind, **what)

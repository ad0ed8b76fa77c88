"""Plans with replicas: two Blizzards, of which one dies, sleeps, leaves or is joined by a third."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import START, Event, Plan, Settings, directory, event

# In one plan of so many; no seed that `GUARDS.md` names is among them.
ONE_IN, CHOSEN = 16, 7
# Events in which nobody edits a state by hand, and no command works beside the daemons.
_KINDS = frozenset(
    {"write", "rewrite", "delete", "fault", "downtime", "kill", "rival", "clock", "slow_job"}
)
_FAULTS = ("answer_lost", "refused", "hangs", "lands_late", "pauses_before", "dies_after")


def with_replicas(plan: Plan, *, always: bool = False) -> Plan:
    """Return the plan; in some, or ``always``, replicas share its sources."""
    if plan.seed % ONE_IN != CHOSEN and not always:
        return plan
    chance = random.Random(plan.seed * 2 + 6_000_001)
    kept = [each for each in plan.events if each.kind in _KINDS]
    settings = replace(plan.settings, replicas=True, sources=chance.choice((1, 2, 3)))
    added = list(_troubles(chance, settings, plan.length))
    events = tuple(sorted((*kept, *added), key=lambda found: found.at))
    length = max(plan.length, added[-1].at + 120.0)
    return replace(plan, settings=settings, events=events, length=length)


def _troubles(chance: random.Random, settings: Settings, length: float) -> Iterator[Event]:
    """Yield troubles of replicas, far enough from each other for a hand-over."""
    at = 60.0 * chance.random()
    for _ in range(chance.randrange(4, 9)):
        match chance.choice(("kill", "pause", "leave", "join", "lease", "lease")):
            case "kill":
                yield event(at, "replica_killed", who=chance.randrange(4))
            case "pause":
                secs = chance.choice((15.0, 45.0, 90.0))
                yield event(at, "replica_paused", who=chance.randrange(4), secs=secs)
            case "leave":
                yield event(at, "replica_left", who=chance.randrange(4))
            case "join":
                yield event(at, "rival", who="blizzard")
            case _:
                place = chance.choice(("lease", "lease", "checkpoint", "taken"))
                yield event(
                    at,
                    "fault",
                    who="blizzard",
                    fault=chance.choice(_FAULTS),
                    place=place,
                    countdown=chance.randrange(4),
                    secs=chance.choice((5.0, 20.0, 60.0)),
                )
        for number in range(chance.randrange(3)):
            folder = directory(settings.layout, START + at)
            path = f"{folder}{int(START + at)}-r{number}.ndjson"
            source = chance.randrange(settings.sources) or None
            secs = 10 * chance.random()
            yield event(at + secs, "write", source=source, path=path, manner="in_order")
        at += chance.choice((20.0, 60.0, 120.0)) * (0.5 + chance.random())
    yield event(max(at, length), "rival", who="blizzard")

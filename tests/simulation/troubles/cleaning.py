"""Plans whose sources are cleaned while writers replace files in place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import START, Event, Plan, directory, event

# In one plan of so many; no seed that `GUARDS.md` names is among them but those of cleaning.
ONE_IN, CHOSEN = 16, 13
# Events in which nobody edits a state or the log by hand, and no command works beside the daemons.
# After a RESTORE the moment of the last look decides, which a test of its own sees to.
_KINDS = frozenset(
    {"write", "rewrite", "delete", "fault", "downtime", "kill", "rival", "clock", "slow_job"}
    | {"compacted", "vacuumed"}
)
_FAULTS = ("pauses_before", "hangs", "lands_late", "answer_lost", "dies_before", "dies_after")


def with_cleaning(plan: Plan, *, always: bool = False) -> Plan:
    """Return the plan; in some, or ``always``, files whose rows are in the table are removed."""
    settings = plan.settings
    if not (plan.seed % ONE_IN == CHOSEN or always) or not settings.watermark:
        return plan
    chance = random.Random(plan.seed * 2 + 8_000_001)
    kept = [each for each in plan.events if each.kind in _KINDS]
    after = chance.choice((20.0, 60.0))
    settings = replace(settings, clean=after, archives=chance.random() < 0.5, store_skew=0.0)
    added = list(_troubles(chance, plan))
    events = tuple(sorted((*kept, *added), key=lambda found: found.at))
    length = max(plan.length, events[-1].at + 300.0)
    return replace(plan, settings=settings, events=events, length=length)


def _troubles(chance: random.Random, plan: Plan) -> Iterator[Event]:
    """Yield files, faults at their removal, and writers who replace them meanwhile."""
    at = 20 * chance.random()
    for number in range(chance.randrange(6, 12)):
        folder = directory(plan.settings.layout, START + at)
        path = f"{folder}{int(START + at)}-c{number}.ndjson"
        yield event(at, "write", path=path, manner="in_order")
        if chance.random() < 0.9:
            secs = chance.choice((10.0, 90.0, 90.0))
            yield event(
                at + 60 * chance.random(),
                "fault",
                who="blizzard",
                fault=chance.choice(_FAULTS),
                place=chance.choice(("cleaned", "cleaned", "cleaned", "list of files")),
                countdown=chance.randrange(3),
                secs=secs,
            )
        if chance.random() < 0.5:
            yield event(at + 100 * chance.random(), "export", count=chance.choice((2, 5, 10)))
        if chance.random() < 0.2:
            yield event(at, "kill", who="penguin", secs=chance.choice((60.0, 250.0)))
        at += chance.choice((15.0, 40.0, 80.0)) * (0.5 + chance.random())

"""Parts of the table's folder that are lost or put back, drawn on top of a plan.

About one plan in four has one of these, by a chance of its own: other events stay what they were.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import DAY, START, Event, Plan, directory, event

# These bring state back, or name it otherwise, in their own way.
_ALONE = frozenset({"moved", "checkpoint_lost", "misconfigured", "staging_lost", "original"})
# These run beside the daemons and keep state of their own in the folder.
_COMMANDS = frozenset({"replay", "backfill", "rewound", "ingest"})
_CLOCKS = frozenset({"clock", "store_clock"})
_KINDS = {
    "checkpoint": 4.0,
    "sleeper": 4.0,
    "sweeper": 3.0,
    "state": 6.0,
    "state and fence": 5.0,
    "state lost": 5.0,
    "journal": 3.0,
    "segment": 2.0,
    "log": 3.0,
    "table": 3.0,
}


def with_losses(plan: Plan) -> Plan:
    """Return the plan, perhaps with a loss on top."""
    chance = random.Random(plan.seed * 5 + 3)
    kinds = {each.kind for each in plan.events}
    if chance.random() >= 0.4 or kinds & _ALONE:
        return plan
    fits = {kind: weight for kind, weight in _KINDS.items() if _fits(kind, plan, kinds)}
    kind = chance.choices(tuple(fits), tuple(fits.values()))[0]
    events = [*plan.events, *_drawn(kind, chance, plan)]
    if kind != "log" and chance.random() < 0.4:
        events += _cleaned(chance, plan)
    ordered = tuple(sorted(events, key=lambda found: found.at))
    return replace(plan, events=ordered, length=max(plan.length, ordered[-1].at + 30.0))


def _fits(kind: str, plan: Plan, kinds: set[str]) -> bool:
    """Return whether the plan's other events leave room for this loss.

    Ids of batches are by the machines' clocks; where only they tell which is newer, no clock jumps.
    """
    if kind == "log":
        return True
    if kind in {"table", "state", "state and fence", "state lost"} and kinds & _COMMANDS:
        return False
    if kind in {"journal", "segment"}:
        return True
    return plan.settings.store_skew <= DAY and not kinds & _CLOCKS


def _drawn(kind: str, chance: random.Random, plan: Plan) -> list[Event]:
    at = plan.length * (0.2 + 0.6 * chance.random())
    secs = chance.choice((5.0, 15.0, 60.0))
    later = at + (plan.length - at) * chance.random()
    match kind:
        case "log":
            return _cleaned(chance, plan)
        case "sleeper":
            return _sleeper(chance, plan, at)
        case "journal" | "segment":
            remedy = chance.choice(("back", "rebuild", "rebuild"))
            return [_lost(chance, at, kind, remedy, secs)]
        case "state lost":
            remedy = chance.choice(("back", "rebuild", "done before", "done before"))
            return [_lost(chance, at, "state", remedy, secs)]
        case "sweeper":
            return _sweeper(chance, plan, at)
        case _:
            keeps = (kind == "state" and chance.random() < 0.5) or None
            remedy = chance.choice(("rebuild", "rebuild", "back"))
            found = [
                event(at, "set_aside"),
                event(later, "put_back", what=kind, keeps=keeps, remedy=remedy, secs=secs),
            ]
            if kind.startswith("state") and chance.random() < 0.5:
                # Nothing of what came since is in the log.
                down = later - at + 60.0
                found.append(event(at + 1.0, "kill", who="penguin", secs=down))
                found += [
                    event(at + 2.0 + (later - at) * chance.random(), "write", path=path)
                    for path in _names(plan, at)
                ]
            if chance.random() < 0.4:
                found.append(event(later + 12 + 20 * chance.random(), "rival", who="blizzard"))
            return found


def _names(plan: Plan, at: float) -> list[str]:
    folder = directory(plan.settings.layout, START + at)
    return [f"{folder}{int(START + at)}-8{number}.ndjson" for number in range(3)]


def _lost(chance: random.Random, at: float, what: str, remedy: str, secs: float) -> Event:
    stopped = chance.random() < 0.5 or None
    return event(at, "part_lost", what=what, remedy=remedy, secs=secs, stopped=stopped)


def _sleeper(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """Draw a daemon that sleeps, a successor, and the return of the sleeper's checkpoint."""
    secs = chance.choice((60.0, 120.0, 200.0))
    place = chance.choice(("checkpoint", "checkpoint", "fence", "staging", "journal", "any"))
    found = [
        event(
            at,
            "fault",
            who="blizzard",
            fault=chance.choice(("pauses_before", "pauses_after")),
            place=place,
            countdown=chance.randrange(4),
            secs=secs,
        )
    ]
    begun = at + plan.settings.poll * chance.random()
    found.append(event(begun, "set_aside"))
    found.append(event(begun + 1.0 + 5.0 * chance.random(), "rival", who="blizzard"))
    more = {"asleep": True, "remedy": chance.choice(("rebuild", "back")), "secs": 15.0}
    back = begun + 10.0 + 0.7 * secs * chance.random()
    found.append(event(back, "put_back", what="checkpoint", **more))
    return found


def _sweeper(chance: random.Random, plan: Plan, at: float) -> list[Event]:
    """One that starts sleeps before it clears up, and a checkpoint of lower epochs is put back."""
    poll = plan.settings.poll
    path = f"{directory(plan.settings.layout, START + at)}{int(START + at)}"
    fault = {"who": "blizzard", "next": True, "place": "staging"}
    return [
        event(at, "set_aside"),
        event(at + 0.1, "kill", who="blizzard", secs=1.0),
        event(
            at + 8.0,
            "fault",
            fault="pauses_before",
            countdown=chance.randrange(2),
            secs=poll + 30.0,
            **fault,
        ),
        event(at + 8.1, "kill", who="blizzard", secs=1.0),
        event(at + 20.0, "put_back", what="checkpoint", asleep=True, remedy="back", secs=15.0),
        *(
            event(at + 20.1, "write", path=f"{path}-9{number}.ndjson", source=number or None)
            for number in range(plan.settings.sources)
        ),
        event(at + 20.2, "fault", fault="hangs", countdown=0, secs=poll + 20.0, **fault)
        if chance.random() < 0.2
        else event(
            at + 20.2,
            "fault",
            who="blizzard",
            next=True,
            fault="hangs",
            place="copy",
            countdown=0,
            secs=poll + 20.0,
        ),
        event(at + 20.3, "rival", who="blizzard"),
    ]


def _cleaned(chance: random.Random, plan: Plan) -> list[Event]:
    times = chance.choice((1, 1, 2))
    return [
        event(
            plan.length * (0.1 + 0.8 * chance.random()),
            "log_cleaned",
            left=chance.choice((0, 0, 2)),
        )
        for _ in range(times)
    ]

"""What goes wrong with processes, stores and people, as a plan draws it."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.drawing import Drawing
from tests.simulation.plan import (
    DAY,
)
from tests.simulation.writers import delete, rewrite, write


def _who(drawing: Drawing) -> str:
    return drawing.chance.choices(("blizzard", "penguin"), (3, 1))[0]


def _downtime(drawing: Drawing) -> float:
    """Seconds, or longer than the grace period."""
    chance, grace = drawing.chance, drawing.settings.grace
    return chance.choice((5.0, 30.0, 1.5 * grace, 3 * grace)) * (0.7 + 0.6 * chance.random())


def shoot(
    drawing: Drawing, kind: str, places: tuple[str, ...], secs: float | None = None, deep: int = 8
) -> str:
    """Arm a fault of a daemon at one of its coming requests."""
    who = _who(drawing)
    place = drawing.chance.choice(places)
    count = drawing.chance.randrange(deep)
    drawing.add(drawing.now, "fault", who=who, fault=kind, place=place, countdown=count, secs=secs)
    return who


_WRITES = (
    "write",
    "checkpoint",
    "staging",
    "copy",
    "delete",
    "letters",
    "journal",
    "log",
    "mirror",
)


def death(drawing: Drawing) -> None:
    kind = drawing.chance.choice(("dies_before", "dies_after"))
    down = _downtime(drawing)
    who = shoot(drawing, kind, ("any", "any", *_WRITES))
    drawing.add(drawing.now, "downtime", who=who, secs=down, zombie=drawing.one_in(3) or None)
    straggle(drawing, down)


def straggle(drawing: Drawing, down: float) -> None:
    """While a daemon is down files go on to appear, some below what it has seen."""
    for _ in range(drawing.chance.choice((0, 1, 2))):
        at = drawing.now + 1 + min(down, drawing.settings.grace) * drawing.chance.random()
        write(drawing, at, manner="disordered" if drawing.one_in(1.5) else None)


def kill(drawing: Drawing) -> None:
    down = _downtime(drawing)
    who = _who(drawing)
    drawing.add(drawing.now, "kill", who=who, secs=down, zombie=drawing.one_in(3) or None)
    straggle(drawing, down)


def outage(drawing: Drawing) -> None:
    """Both daemons are down."""
    down = _downtime(drawing)
    if drawing.one_in(2):
        down *= drawing.chance.choice((10.0, 100.0, 1000.0, 10_000.0))
    for who in ("blizzard", "penguin"):
        drawing.add(drawing.now, "kill", who=who, secs=down)
    straggle(drawing, down)
    drawing.now += down


def stall(drawing: Drawing) -> None:
    """A daemon is paused in the middle of something, and another takes over."""
    secs = drawing.chance.choice((5.0, 60.0, 200.0, 400.0))
    kind = drawing.chance.choice(("pauses_before", "pauses_after"))
    places = (
        "any",
        "list",
        "taken",
        "checkpoint",
        "staging",
        "staging",
        "delete",
        "letters",
        "copy",
    )
    who = shoot(drawing, kind, places, secs, deep=5)
    if drawing.one_in(1.5):
        drawing.add(drawing.now + 2 * secs * drawing.chance.random(), "rival", who=who)


def stale_starter(drawing: Drawing) -> None:
    """A daemon dies with work in flight; the next is paused, and another overtakes it."""
    chance = drawing.chance
    kind = chance.choice(("dies_before", "dies_after"))
    for _ in range(3):
        write(drawing, drawing.now)
    drawing.add(
        drawing.now,
        "fault",
        who="blizzard",
        fault=kind,
        place=chance.choice(("staging", "checkpoint", "copy", "letters")),
        countdown=chance.randrange(4),
    )
    down = chance.choice((5.0, 20.0))
    drawing.add(drawing.now, "downtime", who="blizzard", secs=down)
    at = drawing.now + drawing.settings.poll + down
    drawing.add(
        at,
        "fault",
        who="blizzard",
        fault="pauses_before",
        place=chance.choice(("staging", "delete", "taken", "checkpoint", "letters")),
        countdown=chance.randrange(3),
        secs=chance.choice((20.0, 60.0, 90.0)),
    )
    drawing.add(at + 20 * chance.random(), "rival", who="blizzard")


def stale_sweeper(drawing: Drawing) -> None:
    """One that starts is paused before it clears up, while another commits and publishes."""
    chance = drawing.chance
    secs = chance.choice((30.0, 60.0))
    at = drawing.now
    drawing.add(at, "kill", who="blizzard", secs=5.0)
    drawing.add(
        at,
        "fault",
        who="blizzard",
        next=True,
        fault="pauses_before",
        place=chance.choice(("staging", "taken", "checkpoint", "list")),
        countdown=chance.randrange(3),
        secs=secs,
    )
    drawing.add(
        at + 15,
        "fault",
        who="blizzard",
        next=True,
        fault="hangs",
        place=chance.choice(("copy", "copy", "journal")),
        countdown=0,
        secs=secs,
    )
    drawing.add(at + 16, "rival", who="blizzard")
    for _ in range(3):
        write(drawing, at + 10 * chance.random())


def stale_folder(drawing: Drawing) -> None:
    """One that starts is paused at the segments of names, while another folds them anew."""
    at = drawing.now
    drawing.add(at, "kill", who="blizzard", secs=5.0)
    drawing.add(
        at,
        "fault",
        who="blizzard",
        next=True,
        fault="pauses_before",
        place="segments",
        countdown=drawing.chance.randrange(3),
        secs=drawing.settings.sweep * drawing.chance.choice((1.5, 3.0)),
    )
    drawing.add(at + drawing.settings.sweep, "rival", who="blizzard")
    for _ in range(3):
        write(drawing, at + drawing.settings.sweep * drawing.chance.random())
    drawing.now += drawing.settings.sweep


def rival(drawing: Drawing) -> None:
    drawing.add(drawing.now + 10 * drawing.chance.random(), "rival", who=_who(drawing))


def lost_answer(drawing: Drawing) -> None:
    shoot(drawing, drawing.chance.choice(("answer_lost", "repeated")), _WRITES)


def late_landing(drawing: Drawing) -> None:
    secs = drawing.chance.choice((10.0, 60.0, 200.0))
    shoot(drawing, "lands_late", ("checkpoint", "checkpoint", *_WRITES), secs)


def refusal(drawing: Drawing) -> None:
    shoot(drawing, "refused", ("any", "list", "write"))


def hanging(drawing: Drawing) -> None:
    secs = drawing.chance.choice((10.0, 100.0, 300.0))
    shoot(drawing, "hangs", ("list", "any", "staging", "taken"), secs)


def odd_page(drawing: Drawing) -> None:
    kind, place = drawing.chance.choice((("repeats_key", "page"), ("short_page", "page_size")))
    for _ in range(3):
        shoot(drawing, kind, (place,), deep=3)


def clock(drawing: Drawing) -> None:
    jump = drawing.chance.choice((-3600.0, -60.0, 60.0, 3600.0, 30 * DAY, -30 * DAY))
    who = _who(drawing)
    drawing.add(drawing.now, "clock", who=who, secs=jump)
    if drawing.one_in(2):
        drawing.add(drawing.now + 100 * drawing.chance.random(), "clock", who=who, secs=-jump)


def slow_job(drawing: Drawing) -> None:
    """The next job takes longer than the grace period, and files appear meanwhile."""
    secs = drawing.settings.grace * drawing.chance.choice((0.5, 1.5, 3.0))
    drawing.add(drawing.now, "slow_job", secs=secs)
    write(drawing, drawing.now, manner="in_order")
    behind(drawing, drawing.settings.poll)


def behind(drawing: Drawing, secs: float) -> None:
    """Files appear ``secs`` later and within the grace period, with names below what was seen."""
    for _ in range(2):
        at = drawing.now + secs + 0.7 * drawing.settings.grace * drawing.chance.random()
        write(drawing, at, manner="disordered")


def slow_answer(drawing: Drawing) -> None:
    """What a listing says is old when it arrives."""
    grace = drawing.settings.grace
    secs = grace * drawing.chance.choice((0.5, 1.0, 1.5))
    write(drawing, drawing.now, manner="in_order")
    behind(drawing, drawing.settings.poll)
    at = drawing.now + drawing.settings.poll + 0.5 * grace * drawing.chance.random()
    for _ in range(2):
        drawing.add(
            at, "fault", who="blizzard", fault="answers_late", place="list", countdown=0, secs=secs
        )


def backlog(drawing: Drawing) -> None:
    """A daemon is down for longer than the grace period, and finds much when it is back."""
    grace, poll = drawing.settings.grace, drawing.settings.poll
    write(drawing, drawing.now, manner="in_order")
    at = drawing.now + poll + 5
    drawing.add(at, "kill", who="blizzard", secs=1.3 * grace)
    behind(drawing, poll + 5)
    for _ in range(8):
        write(drawing, at + grace * drawing.chance.random(), manner="old_partition")


def slow_beginning(drawing: Drawing) -> None:
    """A first start sees files and gets no further before everything is down for days."""
    drawing.now += 2 * drawing.settings.poll
    write(drawing, drawing.now, manner="in_order", unreadable=100.0)
    drawing.now += drawing.settings.poll + 2
    down = 3 * DAY * (1 + drawing.chance.random())
    for who in ("blizzard", "penguin"):
        drawing.add(drawing.now, "kill", who=who, secs=down)
    drawing.now += down


def half_published(drawing: Drawing) -> None:
    """A daemon dies between two outputs, and is down until polls have passed their names."""
    for number in range(drawing.settings.sources):
        write(drawing, drawing.now, manner="in_order", source=number)
    if drawing.one_in(2):  # the name that was made last is there first
        drawing.add(
            drawing.now,
            "fault",
            who="blizzard",
            fault="hangs",
            place="journal",
            countdown=0,
            secs=5.0,
        )
    drawing.add(
        drawing.now, "fault", who="blizzard", fault="dies_before", place="copy", countdown=1
    )
    drawing.add(drawing.now, "downtime", who="blizzard", secs=3 * drawing.settings.grace)


def release(drawing: Drawing) -> None:
    """A rolling update to a release that reads more; the old one may be in the middle of it."""
    if drawing.one_in(2):
        secs = drawing.chance.choice((20.0, 60.0))
        drawing.add(
            drawing.now,
            "fault",
            who="blizzard",
            fault="pauses_before",
            place=drawing.chance.choice(("letters", "staging", "checkpoint")),
            countdown=drawing.chance.randrange(3),
            secs=secs,
        )
        write(drawing, drawing.now, flavour="v2")
    drawing.add(drawing.now + 15 * drawing.chance.random(), "release")
    drawing.add(drawing.now + 16 + 10 * drawing.chance.random(), "rival", who="blizzard")


def mirror(drawing: Drawing) -> None:
    drawing.add(drawing.now, "mirror_lost")


def stray(drawing: Drawing) -> None:
    """Somebody drops a file into the table's directory: junk, or one that is there already."""
    at = drawing.now + 30 * drawing.chance.random()
    drawing.add(at, "stray", junk=drawing.one_in(2), high=drawing.one_in(3) or None)


def lifecycle(drawing: Drawing) -> None:
    """A rule of the bucket deletes what was staged, just when a commit was not published yet."""
    write(drawing, drawing.now)
    drawing.add(
        drawing.now, "fault", who="blizzard", fault="dies_before", place="copy", countdown=0
    )
    drawing.add(drawing.now, "downtime", who="blizzard", secs=200.0)
    drawing.add(drawing.now + drawing.settings.poll + 60, "staging_lost")


def misconfigured(drawing: Drawing) -> None:
    """A configuration that does not go with the checkpoint, until somebody puts it back."""
    what = drawing.chance.choice(("source_uri", "source_uri", "depth", "tracking", "name"))
    secs = drawing.chance.choice((60.0, 200.0))
    drawing.add(drawing.now, "misconfigured", what=what, secs=secs)
    drawing.now += secs


def checkpoint_lost(drawing: Drawing) -> None:
    """The checkpoint is gone, and after a while brought back, made again, or done without."""
    secs = drawing.chance.choice((30.0, 100.0))
    remedy = drawing.chance.choices(("back", "rebuild", "fresh"), (4, 5, 1))[0]
    drawing.add(drawing.now, "checkpoint_lost", secs=secs, remedy=remedy)
    drawing.now += 100.0


def regraced(drawing: Drawing) -> None:
    """Another grace period is rolled out, while files come that lie behind what was seen."""
    behind(drawing, 0.0)
    drawing.add(drawing.now, "regraced", grace=drawing.chance.choice((20.0, 60.0, 120.0, 300.0)))


def renamed(drawing: Drawing) -> None:
    drawing.add(drawing.now, "renamed")


def nothing(drawing: Drawing) -> None:
    """All is well."""


TROUBLES: dict[str, tuple[float, Callable[[Drawing], None]]] = {
    "nothing": (8, nothing),
    "death": (5, death),
    "kill": (3, kill),
    "outage": (3, outage),
    "stall": (4, stall),
    "stale_starter": (2, stale_starter),
    "stale_sweeper": (1, stale_sweeper),
    "stale_folder": (0.5, stale_folder),
    "rival": (1, rival),
    "lost_answer": (2, lost_answer),
    "late_landing": (2, late_landing),
    "refusal": (1, refusal),
    "hanging": (1, hanging),
    "odd_page": (1, odd_page),
    "clock": (1, clock),
    "slow_job": (3, slow_job),
    "slow_answer": (1.5, slow_answer),
    "backlog": (1.5, backlog),
    "half_published": (1, half_published),
    "release": (1, release),
    "rewrite": (1, rewrite),
    "delete": (1, delete),
    "mirror": (0.5, mirror),
    "stray": (1, stray),
    "lifecycle": (0.3, lifecycle),
    "misconfigured": (0.5, misconfigured),
    "checkpoint_lost": (1, checkpoint_lost),
    "regraced": (0.5, regraced),
    "renamed": (0.3, renamed),
}


def people(drawing: Drawing) -> None:
    """Commands that people give, at any time after the beginning; each may die on its way."""
    chance = drawing.chance
    for _ in range(chance.choice((1, 1, 2))):
        at = drawing.now * (0.3 + 0.7 * chance.random())
        kind = chance.choices(("replay", "backfill", "rewound", "ingest"), (6, 2, 1.5, 3))[0]
        if kind == "replay" and drawing.one_in(1.5):
            drawing.add(at - 1, "mended")
        dies = drawing.one_in(2)
        drawing.add(
            at,
            kind,
            back=chance.choice((None, 1, 2, 5)) if kind == "rewound" else None,
            count=chance.choice((1, 3)) if kind == "ingest" else None,
            source=chance.randrange(drawing.settings.sources) or None,
            fault=chance.choice(("dies_before", "dies_after")) if dies else None,
            place=chance.choice(("any", "write", "checkpoint", "letters", "copy"))
            if dies
            else None,
            countdown=chance.randrange(8) if dies else None,
        )

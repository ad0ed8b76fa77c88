"""Troubles of processes: they die, sleep and are replaced."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.troubles.shots import WRITES, behind, daemon, downtime, shoot, straggle
from tests.simulation.writers import write


def death(drawing: Drawing) -> None:
    kind = drawing.chance.choice(("dies_before", "dies_after"))
    down = downtime(drawing)
    who = shoot(drawing, kind, ("any", "any", *WRITES))
    drawing.add(drawing.now, "downtime", who=who, secs=down, zombie=drawing.one_in(3) or None)
    straggle(drawing, down)


def kill(drawing: Drawing) -> None:
    down = downtime(drawing)
    who = daemon(drawing)
    drawing.add(drawing.now, "kill", who=who, secs=down, zombie=drawing.one_in(3) or None)
    straggle(drawing, down)


def outage(drawing: Drawing) -> None:
    """Both daemons are down."""
    down = downtime(drawing)
    if drawing.one_in(2):
        down *= drawing.chance.choice((10.0, 100.0, 1000.0, 10_000.0))
    for who in ("blizzard", "penguin"):
        drawing.add(drawing.now, "kill", who=who, secs=down)
    straggle(drawing, down)
    drawing.now += down


def stall(drawing: Drawing) -> None:
    """Draw a daemon that is paused in the middle of something while another takes over."""
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
    """Draw a dead daemon with work in flight; its successor is paused and replaced."""
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
    """Draw a start that pauses at the ledger's segments while another daemon merges them."""
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
    drawing.add(drawing.now + 10 * drawing.chance.random(), "rival", who=daemon(drawing))


def slow_job(drawing: Drawing) -> None:
    """Draw a job that takes longer than the grace period, with files that appear meanwhile."""
    secs = drawing.settings.grace * drawing.chance.choice((0.5, 1.5, 3.0))
    drawing.add(drawing.now, "slow_job", secs=secs)
    write(drawing, drawing.now, manner="in_order")
    behind(drawing, drawing.settings.poll)


def backlog(drawing: Drawing) -> None:
    """Draw a downtime longer than the grace period, with many files."""
    grace, poll = drawing.settings.grace, drawing.settings.poll
    write(drawing, drawing.now, manner="in_order")
    at = drawing.now + poll + 5
    drawing.add(at, "kill", who="blizzard", secs=1.3 * grace)
    behind(drawing, poll + 5)
    for _ in range(8):
        write(drawing, at + grace * drawing.chance.random(), manner="old_partition")


def half_published(drawing: Drawing) -> None:
    """Draw a daemon that dies between two outputs; polls pass their names meanwhile."""
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
    """Draw a rolling update to a release that reads more; the old one may be at work."""
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

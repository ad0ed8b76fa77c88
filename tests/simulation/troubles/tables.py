"""Troubles in the table's folder: committers that die, other writers, operators."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.troubles.shots import downtime
from tests.simulation.writers import write

HOSTILE = ("junk", "cut", "footer", "types", "copy", "copy", "copy")


def half_committed(drawing: Drawing) -> None:
    """Draw a committer that dies at its log entry, when all before it is written."""
    chance = drawing.chance
    for number in range(drawing.settings.sources):
        write(drawing, drawing.now, manner="in_order", source=number)
    drawing.add(
        drawing.now,
        "fault",
        who="penguin",
        fault=chance.choice(("dies_before", "dies_before", "dies_after")),
        place="entry",
        countdown=chance.randrange(2),
    )
    drawing.add(drawing.now, "downtime", who="penguin", secs=downtime(drawing))


def mirror(drawing: Drawing) -> None:
    drawing.add(drawing.now, "mirror_lost")


def stray(drawing: Drawing) -> None:
    """Draw a foreign file in the table's folder: a hostile one, or a copy of another."""
    at = drawing.now + 30 * drawing.chance.random()
    what = drawing.chance.choice(HOSTILE)
    drawing.add(at, "stray", what=what, high=drawing.one_in(3) or None)


def compaction(drawing: Drawing) -> None:
    """Another writer compacts, often between a committer's look and its commit."""
    chance = drawing.chance
    if drawing.one_in(2):
        secs = chance.choice((20.0, 60.0))
        drawing.add(
            drawing.now,
            "fault",
            who="penguin",
            fault="hangs",
            place="entry",
            countdown=0,
            secs=secs,
        )
    write(drawing, drawing.now, manner="in_order")
    for _ in range(chance.choice((1, 2, 3))):
        at = drawing.now + 2 * drawing.settings.poll * chance.random()
        drawing.add(at, "compacted", dies=drawing.one_in(6) or None)
    if drawing.one_in(2):
        drawing.add(drawing.now + 100 * chance.random(), "vacuumed", kept=0.0)


def vacuum(drawing: Drawing) -> None:
    """Draw a commit, a compaction and a vacuum of an output while its daemon is down."""
    chance = drawing.chance
    write(drawing, drawing.now, manner="in_order")
    drawing.add(
        drawing.now,
        "fault",
        who="blizzard",
        fault="dies_after",
        place=chance.choice(("copy", "delete")),
        countdown=chance.randrange(2),
    )
    down = 3 * drawing.settings.grace
    drawing.add(drawing.now, "downtime", who="blizzard", secs=down)
    at = drawing.now + down * (0.5 + 0.5 * chance.random())
    drawing.add(at, "compacted")
    drawing.add(at + 10.0, "vacuumed", kept=chance.choice((0.0, 0.0, 60.0)))


def restore(drawing: Drawing) -> None:
    """Draw a RESTORE: newer files are removed, files removed since are added again."""
    at = drawing.now + 30 * drawing.chance.random()
    drawing.add(at, "restored", back=drawing.chance.choice((1, 1, 2, 5)))


def log_cut(drawing: Drawing) -> None:
    """Draw a log that is restored from a copy some commits old."""
    chance = drawing.chance
    at = drawing.now + 30 * chance.random()
    secs = chance.choice((10.0, 60.0, 200.0))
    drawing.add(at, "log_cut", back=chance.choice((1, 1, 2, 5)), secs=secs)

"""Troubles of stores and clocks: answers are lost, late, short or old."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.plan import DAY
from tests.simulation.troubles.shots import WRITES, behind, daemon, shoot
from tests.simulation.writers import below, write


def lost_answer(drawing: Drawing) -> None:
    shoot(drawing, drawing.chance.choice(("answer_lost", "repeated")), WRITES)


def late_landing(drawing: Drawing) -> None:
    secs = drawing.chance.choice((10.0, 60.0, 200.0))
    shoot(drawing, "lands_late", ("checkpoint", "checkpoint", *WRITES), secs)


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
    who = daemon(drawing)
    drawing.add(drawing.now, "clock", who=who, secs=jump)
    if drawing.one_in(2):
        drawing.add(drawing.now + 100 * drawing.chance.random(), "clock", who=who, secs=-jump)


def slow_answer(drawing: Drawing) -> None:
    """Draw a listing whose answer is old when it arrives."""
    grace = drawing.settings.grace
    secs = grace * drawing.chance.choice((0.5, 1.0, 1.5))
    write(drawing, drawing.now, manner="in_order")
    behind(drawing, drawing.settings.poll)
    at = drawing.now + drawing.settings.poll + 0.5 * grace * drawing.chance.random()
    for _ in range(2):
        drawing.add(
            at, "fault", who="blizzard", fault="answers_late", place="list", countdown=0, secs=secs
        )


def slow_listing(drawing: Drawing) -> None:
    """Draw a grace period that ends during a listing, with a file behind its cursor."""
    chance, grace, poll = drawing.chance, drawing.settings.grace, drawing.settings.poll
    source = chance.randrange(drawing.settings.sources)
    write(drawing, drawing.now, manner="in_order", source=source)
    over = drawing.now + grace  # at the earliest; a poll later at the latest
    write(
        drawing,
        over + 0.3 * poll * chance.random(),
        manner="disordered",
        source=source,
        path=below(drawing),
    )
    for _ in range(drawing.settings.sources):
        drawing.add(
            max(drawing.now, over - poll),
            "fault",
            who="blizzard",
            fault="answers_late",
            place="list",
            countdown=0,
            secs=poll * chance.choice((1.0, 2.0, 3.0)),
        )
    drawing.now = over

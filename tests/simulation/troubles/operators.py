"""Operators' changes of configuration, state and staging, and their commands."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.troubles.shots import behind
from tests.simulation.writers import write


def lifecycle(drawing: Drawing) -> None:
    """Draw a bucket rule that deletes staged files just before they are published."""
    write(drawing, drawing.now)
    drawing.add(
        drawing.now, "fault", who="blizzard", fault="dies_before", place="copy", countdown=0
    )
    drawing.add(drawing.now, "downtime", who="blizzard", secs=200.0)
    drawing.add(drawing.now + drawing.settings.poll + 60, "staging_lost")


def misconfigured(drawing: Drawing) -> None:
    """Draw a configuration that does not fit the checkpoint, until it is put back."""
    what = drawing.chance.choice(("source_uri", "source_uri", "depth", "tracking", "name"))
    secs = drawing.chance.choice((60.0, 200.0))
    drawing.add(drawing.now, "misconfigured", what=what, secs=secs)
    drawing.now += secs


def checkpoint_lost(drawing: Drawing) -> None:
    """Draw a lost checkpoint that is restored, rebuilt or dropped after a while."""
    secs = drawing.chance.choice((30.0, 100.0))
    remedy = drawing.chance.choices(("back", "rebuild", "fresh"), (4, 5, 1))[0]
    drawing.add(drawing.now, "checkpoint_lost", secs=secs, remedy=remedy)
    drawing.now += 100.0


def regraced(drawing: Drawing) -> None:
    """Draw another grace period while files arrive below the watermark."""
    behind(drawing, 0.0)
    drawing.add(drawing.now, "regraced", grace=drawing.chance.choice((20.0, 60.0, 120.0, 300.0)))


def renamed(drawing: Drawing) -> None:
    drawing.add(drawing.now, "renamed")


def moved(drawing: Drawing) -> None:
    """Draw a rename of a source's state while the daemon is down, with more than one try."""
    chance = drawing.chance
    secs = chance.choice((30.0, 60.0, 1.5 * drawing.settings.grace))
    drawing.add(drawing.now, "kill", who="blizzard", secs=secs)
    _command(drawing, drawing.now + 10 * chance.random(), "moved", dies_in=1.5)
    drawing.now += secs


def commands(drawing: Drawing) -> None:
    """Commands that people give, at any time after the beginning; each may die on its way."""
    chance = drawing.chance
    for _ in range(chance.choice((1, 1, 2))):
        at = drawing.now * (0.3 + 0.7 * chance.random())
        kind = chance.choices(("replay", "backfill", "rewound", "ingest"), (6, 2, 1.5, 3))[0]
        match kind:
            case "replay":
                if drawing.one_in(1.5):
                    drawing.add(at - 1, "mended")
                _command(drawing, at, kind)
                if drawing.one_in(4):
                    # Among them what the first has taken and not put away.
                    _command(drawing, at + 60.0 * chance.random(), kind)
            case "rewound":
                _command(drawing, at, kind, back=chance.choice((None, 1, 2, 5)))
            case "ingest" if drawing.one_in(2):
                _lettered(drawing, at)
            case "ingest":
                _command(drawing, at, kind, count=chance.choice((1, 3)))
            case _:
                _command(drawing, at, kind)


def _lettered(drawing: Drawing, at: float) -> None:
    """Files with a dead letter are mended and named, and the letters are replayed as well."""
    source = drawing.chance.randrange(drawing.settings.sources)
    drawing.add(at - 1, "mended")
    _command(drawing, at, "ingest", count=3, lettered=True, source=source)
    later = at + 20.0 + 60.0 * drawing.chance.random()
    _command(drawing, later, "replay", source=source)


def _command(
    drawing: Drawing,
    at: float,
    kind: str,
    *,
    dies_in: float = 2.0,
    source: int | None = None,
    **what: object,
) -> None:
    """``dies_in``: one in so many dies on its way."""
    chance = drawing.chance
    dies = drawing.one_in(dies_in)
    drawing.add(
        at,
        kind,
        source=(chance.randrange(drawing.settings.sources) if source is None else source) or None,
        fault=chance.choice(("dies_before", "dies_after")) if dies else None,
        place=chance.choice(("any", "write", "checkpoint", "letters", "copy")) if dies else None,
        countdown=chance.randrange(8) if dies else None,
        **what,
    )

"""Parts of a trouble: the daemon, the duration, and the request that it hits."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.writers import write

WRITES = (
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


def daemon(drawing: Drawing) -> str:
    return drawing.chance.choices(("blizzard", "penguin"), (3, 1))[0]


def downtime(drawing: Drawing) -> float:
    """Seconds, or longer than the grace period."""
    chance, grace = drawing.chance, drawing.settings.grace
    return chance.choice((5.0, 30.0, 1.5 * grace, 3 * grace)) * (0.7 + 0.6 * chance.random())


def shoot(
    drawing: Drawing, kind: str, places: tuple[str, ...], secs: float | None = None, deep: int = 8
) -> str:
    """Arm a fault of a daemon at one of its coming requests."""
    who = daemon(drawing)
    place = drawing.chance.choice(places)
    count = drawing.chance.randrange(deep)
    drawing.add(drawing.now, "fault", who=who, fault=kind, place=place, countdown=count, secs=secs)
    return who


def straggle(drawing: Drawing, down: float) -> None:
    """Draw files that appear while a daemon is down, some below its watermark."""
    for _ in range(drawing.chance.choice((0, 1, 2))):
        at = drawing.now + 1 + min(down, drawing.settings.grace) * drawing.chance.random()
        write(drawing, at, manner="disordered" if drawing.one_in(1.5) else None)


def behind(drawing: Drawing, secs: float) -> None:
    """Files appear ``secs`` later and within the grace period, with names below what was seen."""
    for _ in range(2):
        at = drawing.now + secs + 0.7 * drawing.settings.grace * drawing.chance.random()
        write(drawing, at, manner="disordered")

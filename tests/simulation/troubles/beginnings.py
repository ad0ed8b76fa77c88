"""State before the first start, and the way a source begins."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.plan import DAY
from tests.simulation.writers import write


def early(drawing: Drawing) -> None:
    """Files of a while or of long before the first start."""
    chance = drawing.chance
    manner = "root" if drawing.one_in(8) else None
    for _ in range(chance.choice((0, 2, 5, 9))):
        at = chance.choice((-10.0, -100.0, -1000.0)) * chance.random()
        write(drawing, at, early=True, manner=manner)
    settings = drawing.settings
    if settings.lookback is not None and drawing.one_in(5):
        slow_beginning(drawing)
    if settings.depth is None and settings.lookback is None and drawing.one_in(8):
        root_first(drawing)


def slow_beginning(drawing: Drawing) -> None:
    """Draw a first start that sees files and gets no further before days of downtime."""
    drawing.now += 2 * drawing.settings.poll
    write(drawing, drawing.now, manner="in_order", unreadable=100.0)
    drawing.now += drawing.settings.poll + 2
    down = 3 * DAY * (1 + drawing.chance.random())
    for who in ("blizzard", "penguin"):
        drawing.add(drawing.now, "kill", who=who, secs=down)
    drawing.now += down


def root_first(drawing: Drawing) -> None:
    """Draw files at the root, then folders, and then folders that sort below those."""
    for number in range(drawing.settings.sources):
        write(drawing, drawing.now, manner="root", source=number)
    for manner in ("in_order", "in_order", "old_partition", "old_partition"):
        drawing.now += drawing.settings.poll + drawing.settings.grace
        for number in range(drawing.settings.sources):
            write(drawing, drawing.now, manner=manner, source=number)

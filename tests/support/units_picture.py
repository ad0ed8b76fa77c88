"""Drawing of ``docs/units-page.png``: the units of a source on the status page.

    python -m tests.support.units_picture docs/units-page.png

Three years of months and six surveys: one fails, one was left off, two were added, and one month
is to be read again.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.grid import GridLayout
from blizzard_py.slices.units.schemes import partitions
from blizzard_py.slices.units.state import OpenUnit, UnitsState
from blizzard_py.slices.units.values import unit_list
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.state.source_state import KindState, SourceState
from tests.support.browser import chromium, visited

NOW = datetime(2026, 2, 22, 9, 30, tzinfo=UTC)
NAMES = ("north", "south", "west", "east", "overseas", "partners")
FEBRUARY = "2026-02-01T00:00:00.000Z"


def state() -> UnitsState:
    """Make the state that months of runs leave."""
    read = OpenUnit(high="2026-02-21T00:00:00.000Z", read_at="2026-02-21T00:00:00.000Z")
    fails = OpenUnit(
        failures=4, next_try="2026-02-22T09:46:00.000Z", error="GET /surveys/west/answers: 503"
    )
    whole = OpenUnit(high="2025-08-01T00:00:00.000Z", read_at="2025-08-05T00:00:00.000Z")
    closed = dict.fromkeys((*NAMES[:2], NAMES[3]), FEBRUARY)
    closed |= {"west": "2026-01-01T00:00:00.000Z", "pilot": "2024-05-01T00:00:00.000Z"}
    return UnitsState(
        closed_to={**closed, "overseas": "2025-03-01T00:00:00.000Z"},
        open={
            **{f"{FEBRUARY}/{name}": read for name in (*NAMES[:2], NAMES[3])},
            "2026-01-01T00:00:00.000Z/west": fails,
            "2025-07-01T00:00:00.000Z/north": whole,
        },
        redo=("2025-07-01T00:00:00.000Z/north",),
    )


def main(target: Path) -> None:
    activity = SourceActivity("surveys/answers", "api:/surveys", NOW.timestamp)
    months = partitions(datetime(2023, 1, 1, tzinfo=UTC), NOW, "monthly")
    activity.knows(SourceState(kind=KindState(units=state())))
    layout = GridLayout(months, unit_list("survey", list(NAMES)), Terms(grace=timedelta(days=3)))
    activity.units_planned(layout)
    with (
        Server("127.0.0.1:0", Panel("blizzard", [activity], NOW.timestamp)) as server,
        chromium() as browser,
        visited(browser, server.port, viewport={"width": 860, "height": 900}) as visit,
    ):
        column = len(months) - 2  # the month that fails
        frame = visit.page.locator(".grid svg")
        frame.hover(position={"x": column * 16 + 8, "y": 18 + 2 * 16 + 8})
        card = visit.page.locator(".card").first.bounding_box()
        top = visit.page.get_by_text("Units by time and value").bounding_box()
        told = visit.page.locator(".told").bounding_box()
        assert card
        assert top
        assert told
        height = told["y"] + told["height"] - top["y"] + 24
        clip = {"x": card["x"], "y": top["y"] - 12, "width": card["width"], "height": height}
        visit.page.screenshot(path=target, clip=clip)
    print(f"{target}: {target.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))

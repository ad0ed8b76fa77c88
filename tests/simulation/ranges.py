"""Ranges that operators request: below the origin, or a second time.

What a range holds that comes again may come once more for each request, and no more often.
"""

from __future__ import annotations

from dataclasses import dataclass

from blizzard_core.storage.protocol import order_key
from blizzard_py.app.submit import RequestOrder
from blizzard_py.state.checkpoint_file import read_state
from tests.simulation.plan import Event
from tests.simulation.processes import Process
from tests.simulation.world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class Range:
    """A range from one partition prefix to another, both included."""

    first: str
    last: str

    def order(self, mode: str, *, once_more: bool = True) -> RequestOrder:
        select = {"range": [self.first, self.last]}
        return RequestOrder("reingest", select, {"mode": mode}, once_more=once_more)


def below_origin(process: Process, number: int) -> Range | None:
    """Return the range below the origin of the cold start; None if it took everything."""
    live = process.parts(number)
    state = read_state(live.stores.sink, live.id)
    if state is None or not state.position.origin:
        return None
    day, _, hour = state.position.origin.partition("/")
    # The day before the one that the live daemon began with.
    last = f"{day[:-1]}{chr(ord(day[-1]) - 1)}" if day[-1] != "0" else f"{day[:5]}2023-12-31"
    return Range("date=2023-01-01", f"{last}/hour=23" if hour else last)


def chosen(found: Event) -> Range:
    """Return the range of an event, whose ends are drawn."""
    first, last = sorted((found["first"], found["last"]), key=order_key)
    return Range(first, last)


def is_second_reading(world: SimulatedWorld, found: Event) -> bool:
    """Return whether a range is ingested a second time; once for each event."""
    anew = bool(found.get("anew")) and not world.deeds[f"anew {found.at}"]
    world.deeds[f"anew {found.at}"] += 1
    return anew

"""The grid of a source's work units for the status page, made when somebody reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import BlizzardError
from blizzard_core.observability.activity import age
from blizzard_py.slices.units.state import UnitsState

if TYPE_CHECKING:
    from blizzard_py.slices.units.grid import GridLayout

# A grid of very many units takes a second to make; pauses of units end meanwhile.
_GRID_SECS = 60


@dataclass(frozen=True, slots=True)
class _Grid:
    """A grid of units, of what, and when it was made."""

    state: UnitsState
    layout: GridLayout
    at: float
    document: dict[str, Any]


class UnitGrid:
    """The last grid, made again if the units have changed or it is old."""

    def __init__(self) -> None:
        self._made: _Grid | None = None

    def document(
        self, state: UnitsState, layout: GridLayout | None, now: float
    ) -> dict[str, Any] | None:
        """Return the grid of units as a poll laid them out; None if none did."""
        if layout is None:
            return None
        made = self._made
        is_same = made is not None and made.state is state and made.layout is layout
        if made is not None and is_same and age(now, made.at) < _GRID_SECS:
            return made.document
        # A source without units needs no calendars, and neither does a daemon without a page.
        from blizzard_py.slices.units.grid import grid  # noqa: PLC0415  # see above

        try:
            found = grid(state, layout, datetime.fromtimestamp(now, UTC))
        except BlizzardError:  # the same error ends the cycle and is reported there
            return None
        self._made = _Grid(state, layout, now, found)
        return found

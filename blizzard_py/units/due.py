"""What a source reads next, from its state: the planner with pauses, marks and slices. Pure.

Units that are closed and stay so are counted and not looked at, so planning costs what is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blizzard_py.units.outcomes import Pair, UnitReading
from blizzard_py.units.planner import PlannedUnit
from blizzard_py.units.state import UnitsState


@dataclass(frozen=True, slots=True)
class Terms:
    """How units are read: ``grace`` and ``abstinent``, the ``limit`` of a run, ``min_units``.

    ``everything`` also lists the closed units, which are only counted else.
    """

    grace: timedelta = timedelta(0)
    abstinent: timedelta = timedelta(0)
    limit: int | None = None
    min_units: int = 0
    everything: bool = False

    @property
    def shift(self) -> timedelta:
        """Abstinence less grace: from a high watermark to where the next reading begins."""
        return self.abstinent - self.grace


@dataclass(frozen=True, slots=True)
class Due:
    """What is due: ``units`` by partition and value, each ``start`` where a slice begins.

    ``closed`` are those that were only counted. ``retired`` are names that the state knows and
    the configuration no longer has.
    """

    cut_off: datetime | None
    units: tuple[PlannedUnit, ...]
    closed: int
    retired: tuple[str, ...]


def due(
    state: UnitsState,
    partitions: Sequence[Pair],
    values: Sequence[Mapping[str, str]] | None,
    terms: Terms,
    now: datetime,
) -> Due:
    """What becomes of each unit now. ``values`` of None is one unit ``{}``, an empty list none.

    Raises `UnitError` where there are fewer values than ``min_units``.
    """
    raise NotImplementedError


def reading_of(unit: PlannedUnit, terms: Terms) -> UnitReading:
    """What is saved of a unit that is executed."""
    raise NotImplementedError

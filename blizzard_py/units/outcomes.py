"""What follows from a reading, and from what an operator asks, for the units' state. Pure.

A success moves a unit's high watermark and its slices, a failure counts and pauses; nothing
else changes either. Units that are complete and out of grace are folded into ``closed_to``
(`closed`), so that the state is as large as what is going on, not as what has been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blizzard_py.units.slices import Range
from blizzard_py.units.state import Stamp, UnitKey, UnitsState

Pair = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class UnitReading:
    """A unit's reading of [``slices[0]``, ``to``), as it is saved before it begins.

    ``slices`` are where they begin; each goes to requests and files of its own. ``part_to`` is
    where the partition ended when it was planned.
    """

    key: UnitKey
    part_to: Stamp
    slices: tuple[Stamp, ...]
    to: Stamp


def succeeded(state: UnitsState, reading: UnitReading) -> UnitsState:
    """After a reading that is published: its end is the high watermark, its slices are known.

    Never lower, failures are forgotten, a mark to read it again is taken off. Raises `StateError`
    for a reading that would leave rows twice: it begins within a slice.
    """
    raise NotImplementedError


def failed(state: UnitsState, key: str, now: datetime, error: str) -> UnitsState:
    """After a reading that failed: one more failure, and a pause, doubled each time up to a day.

    High watermark, slices and marks stay. ``error`` is shown, shortened.
    """
    raise NotImplementedError


def closed(
    state: UnitsState, partitions: Sequence[Pair], names: Iterable[str], shift: timedelta
) -> UnitsState:
    """The same knowledge in less room: ``closed_to`` of each name moved as far as it goes.

    Over partitions that are complete, out of grace, not marked and not failing; never the last,
    which may grow. Units before the first partition, and all that is known about them, go where a
    moving start has left them behind. ``shift`` is abstinence less grace, as it is now.
    """
    raise NotImplementedError


def marked(state: UnitsState, keys: Iterable[str]) -> UnitsState:
    """The units are read again from their beginning, and their rows replaced.

    Raises `UnitError` for more than 20,000 marks.
    """
    raise NotImplementedError


def with_high(state: UnitsState, key: str, partition: Pair, high: datetime | None) -> UnitsState:
    """The unit as if read up to ``high``; None forgets it, so it is new.

    A lower one is lowered further to where a slice begins: what lies above is read again, and
    replaced as a whole. Raises `UnitError` for one that is not within the partition.
    """
    raise NotImplementedError


def replaced(source_id: str, reading: UnitReading) -> Range:
    """The range of `_unit` that the reading replaces."""
    raise NotImplementedError


def slice_texts(source_id: str, reading: UnitReading) -> tuple[str, ...]:
    """What `_unit` holds in the rows of each of the reading's slices, in their order."""
    raise NotImplementedError

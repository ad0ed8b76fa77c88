"""A source's range and scheme as configured: its partitions at a time, and what they depend on.

Pure. Partitions depend on the start and the scheme alone, so they stay the same from run to
run; only the last may grow. What would move them is a problem of the configuration
(`problems`), or stops a source that has state (`blizzard_py.units.state.guarded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

Pair = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the range with a scheme of its own; both ends as configured."""

    by: str
    start: str
    end: str


@dataclass(frozen=True, slots=True)
class UnitRange:
    """``units.range``, ``partition`` and ``partial`` as configured."""

    start: str = "2019-01-01"
    end: str = "-"
    zone: str = "UTC"
    partition: str | tuple[Part, ...] = "none"
    partial: bool = True


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The range at a time, its partitions, and gaps that nothing will ever read."""

    start: datetime
    end: datetime
    partitions: Sequence[Pair]
    gaps: Sequence[Pair]


def laid_out(range_: UnitRange, now: datetime) -> LaidOut:
    """The partitions at a time. Raises `UnitError` for what `problems` tells, and above 200,000."""
    raise NotImplementedError


def problems(range_: UnitRange) -> list[str]:
    """All that is wrong with it: texts, zone, scheme, ends that move, ends in the wrong order."""
    raise NotImplementedError


def spec_of(range_: UnitRange, fields: Sequence[str]) -> dict[str, str]:
    """What all partitions and names depend on; another one stops the source."""
    raise NotImplementedError

"""Which units are read, from where to where, and why: `plan`, pure and public.

For unit *u* in partition [p0, p1): *h* is its high watermark, none if it never succeeded, and
``shift`` abstinence less grace. ``cut_off`` is the highest *h* of all moved by ``shift``, ``low``
the unit's own, not before p0. Reasons, the first that holds (`verdict`):

==============  =======  ====================================================================
``waiting``     no       failed lately, and its pause is not over
``new``         [p0,p1)  no *h*, or one that is not above p0
``abstinent``   no       low is not below p1, and h is
``done``        no       low is not below p1
``incomplete``  [low,p1) h is below p1
``ahead``       no       h is above p1: the end went back, reading would replace more than it reads
``grace``       [low,p1) p1 is above the cut-off
``done``        no       otherwise
==============  =======  ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

Pair = tuple[datetime, datetime]
Reason = Literal["waiting", "new", "abstinent", "done", "incomplete", "ahead", "grace", "redo"]


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """What becomes of one unit. ``start`` and ``end`` are what is read if ``execute``.

    One that is not executed although its reason is to be read is beyond the limit of a run. The
    reason ``redo`` is of those alone that an operator wants to be read again.
    """

    values: Mapping[str, str]
    name: str
    partition: Pair
    start: datetime
    end: datetime
    high: datetime | None
    execute: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """All units, by partition, then by value in the order given."""

    cut_off: datetime | None
    units: list[PlannedUnit]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a unit is read, from where, and why."""

    execute: bool
    low: datetime
    reason: Reason


def verdict(
    partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
) -> Verdict:
    """Rules 2 to 8 of the table above."""
    raise NotImplementedError


def plan(
    ranges: Iterable[Pair],
    units: Iterable[Mapping[str, Any]] | None,
    state: Mapping[tuple[datetime, str], datetime | None],
    grace: float | timedelta,
    abstinent: float | timedelta,
    limit: int | None = None,
    min_units: int = 0,
) -> Plan:
    """See above; ``state`` maps (start of the partition, name) to *h*."""
    raise NotImplementedError


def settled(earlier: datetime | None, low: datetime, high: datetime, ok: bool) -> datetime | None:
    """The high watermark after a reading of [low, high); never lower than before."""
    raise NotImplementedError


def limit(text: Any) -> int | None:
    """How many units a run executes at most; None: no limit."""
    raise NotImplementedError

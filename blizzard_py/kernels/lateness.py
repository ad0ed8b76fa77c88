"""Rows of a batch that come too late for its watermark, or lie ahead of all time. Pure.

Spark drops late rows without a word, and its counter is too low, since it counts after rows were
combined. So they are told apart here, before Spark sees them, by the rule that it goes by: a row
is late if its *key* is not above the watermark. The key says until when somebody waits for it:

* of a row that is only compared with its duplicates, its own time;
* of a row in windows, the end of the last window that holds it;
* of a row in a session, when the session would end if nothing else came.

A group by the event time itself ends with that time, so of its rows the time decides, too.
A removal of duplicates comes before windows, so where there is one it decides. What is never
forgotten waits for ever: in mode ``complete``, and in groups without window and time, no row is
late. But to sessions Spark takes no late row in any mode.

The same function serves the reader, which skips such rows, and the job that makes letters of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.base import to_micros
from blizzard_core.settings.event_time import Branch, EventTimeSettings

Micros = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """The delay for rows of ``column``; all lengths in microseconds.

    ``kind`` is what decides: ``row`` its own time, ``window`` the windows of ``size``, one
    every ``slide`` from ``offset`` on, ``session`` the ``size`` of its gap; of ``never`` no row is
    late.
    """

    column: str
    kind: Literal["row", "window", "session", "never"] = "row"
    size: int = 0
    slide: int = 0
    offset: int = 0

    @property
    def overlaps(self) -> bool:
        """Return whether a row may be late for some of its windows only."""
        return self.kind == "window" and self.slide < self.size


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits by which a batch's rows are judged.

    ``watermark_ms`` is what the micro-batch before it ran with, which is the one that Spark
    judges by; ``ahead_us`` the time that no row may be after.
    """

    watermark_ms: int
    ahead_us: int


@dataclass(frozen=True, slots=True)
class LatenessSplit:
    """The verdict on some rows, each ``late``, ``ahead`` or neither; in their order.

    ``partly`` counts those that are late for some of their windows and not for the last.
    """

    late: Flags
    ahead: Flags
    partly: int

    @property
    def on_time(self) -> Flags:
        """The rows that Spark is given."""
        return ~(self.late | self.ahead)


def key_us(rule: Rule, times: Micros) -> Micros:
    """Until when somebody waits for a row of each of the times (microseconds since 1970)."""
    if rule.kind == "row":
        return times
    if rule.kind == "never":
        return np.full_like(times, np.iinfo(np.int64).max)
    if rule.kind == "session":
        return times + rule.size
    return _last_start(rule, times) + rule.size


def split(rule: Rule, limits: Limits, times: Micros) -> LatenessSplit:
    """Return which of the rows are late or ahead. One that is both is late."""
    bound = limits.watermark_ms * _MILLI
    keys = key_us(rule, times)
    late = keys <= bound
    partly = 0
    if rule.overlaps:
        partly = int(np.count_nonzero(~late & (_first_start(rule, times) + rule.size <= bound)))
    return LatenessSplit(late, ~late & (times > limits.ahead_us), partly)


def times_of(column: pa.ChunkedArray | pa.Array) -> Micros:
    """A column of timestamps as microseconds. Raises `ValueError` if one is null."""
    if column.null_count:
        raise ValueError("a row has no event time")
    micros = pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())
    found: Micros = micros.to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def _last_start(rule: Rule, times: Micros) -> Micros:
    """Where the last window that holds each time begins; numpy's remainder is never negative."""
    return times - (times - rule.offset) % rule.slide


def _first_start(rule: Rule, times: Micros) -> Micros:
    """Return where the first window that holds each time begins."""
    # A window that ends at a time does not hold it.
    overlapping = (rule.size - 1 - (times - rule.offset) % rule.slide) // rule.slide
    return _last_start(rule, times) - overlapping * rule.slide


def rules_of(given: EventTimeSettings, branches: Sequence[Branch]) -> dict[str, Rule]:
    """Give each source's rule, by its own column: the first of the operators decides."""
    return {b.source: replace(_rule(given, branches), column=b.column) for b in branches}


def _rule(given: EventTimeSettings, branches: Sequence[Branch]) -> Rule:
    window = given.window
    is_session = window is not None and window.gap is not None
    is_endless = bool(given.aggregates) and window is None and not given.groups_by_time(branches)
    if is_endless or (given.mode == "complete" and not is_session):
        return Rule(given.column, "never")
    if window is None or given.deduplicate:
        return Rule(given.column)
    if window.gap is not None:
        return Rule(given.column, "session", to_micros(window.gap))
    size = to_micros(window.size or "")
    slide = to_micros(window.slide) if window.slide else size
    return Rule(given.column, "window", size, slide, to_micros(window.offset))

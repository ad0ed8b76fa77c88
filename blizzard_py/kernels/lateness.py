"""The rule for rows that are late for a batch's watermark, or ahead of time. Pure.

Spark drops late rows silently, and its counter is too low, since it counts after rows were
combined. So they are found here, before Spark gets them, by Spark's own rule: a row is late if its
*key* is not above the watermark. The key is the time until which the row is waited for:

* for a row that is only compared with its duplicates, its own time;
* for a row in windows, the end of the last window that contains it;
* for a row in a session, the session's end if nothing else came.

A group by the event time itself ends with that time, so there the row's time decides too. Removal
of duplicates comes before windows, so it decides if it is configured. State that is never removed
waits for ever: in mode ``complete``, and in groups without window and time, no row is late. But
Spark never adds a late row to a session, in any mode.

The reader, which skips such rows, and the job that writes dead letters for them use the same
function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from blizzard_core.settings.event_time import Branch, EventTimeSettings

Micros = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of lateness for rows of ``column``; all lengths are in microseconds.

    ``kind`` says what decides:

    * ``row``: the row's own time.
    * ``window``: windows of ``size``, one every ``slide`` from ``offset`` on.
    * ``session``: a gap of ``size``.
    * ``never``: no row is late.
    """

    column: str
    kind: Literal["row", "window", "session", "never"] = "row"
    size: int = 0
    slide: int = 0
    offset: int = 0

    @property
    def overlaps(self) -> bool:
        """True if a row may be late for only some of its windows."""
        return self.kind == "window" and self.slide < self.size


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for a batch's rows.

    ``watermark_ms`` is that of the micro-batch before, by which Spark decides; ``ahead_us`` is the
    latest allowed time.
    """

    watermark_ms: int
    ahead_us: int


@dataclass(frozen=True, slots=True)
class LatenessSplit:
    """The result for some rows in order: each is ``late``, ``ahead`` or neither.

    ``partly`` counts rows that are late for some of their windows but not for the last.
    """

    late: Flags
    ahead: Flags
    partly: int

    @property
    def on_time(self) -> Flags:
        """The rows that Spark gets."""
        return ~(self.late | self.ahead)


def key_us(rule: Rule, times: Micros) -> Micros:
    """Return until when a row of each of the times is waited for (microseconds since 1970)."""
    if rule.kind == "row":
        return times
    if rule.kind == "never":
        return np.full_like(times, np.iinfo(np.int64).max)
    if rule.kind == "session":
        return times + rule.size
    return _last_start(rule, times) + rule.size


def split(rule: Rule, limits: Limits, times: Micros) -> LatenessSplit:
    """Return which of the rows are late or ahead. A row that is both counts as late."""
    bound = limits.watermark_ms * _MILLI
    keys = key_us(rule, times)
    late = keys <= bound
    partly = 0
    if rule.overlaps:
        partly = int(np.count_nonzero(~late & (_first_start(rule, times) + rule.size <= bound)))
    return LatenessSplit(late, ~late & (times > limits.ahead_us), partly)


def times_of(column: pa.ChunkedArray | pa.Array) -> Micros:
    """Return a column of timestamps as microseconds. Raises `ValueError` if one is null."""
    if column.null_count:
        raise ValueError("a row has no event time")
    micros = pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())
    found: Micros = micros.to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def _last_start(rule: Rule, times: Micros) -> Micros:
    """Return the start of the last window with each time; numpy's remainder is never negative."""
    return times - (times - rule.offset) % rule.slide


def _first_start(rule: Rule, times: Micros) -> Micros:
    """Return the start of the first window that contains each time."""
    # A window that ends at a time does not contain it.
    overlapping = (rule.size - 1 - (times - rule.offset) % rule.slide) // rule.slide
    return _last_start(rule, times) - overlapping * rule.slide


def rules_of(given: EventTimeSettings, branches: Sequence[Branch]) -> dict[str, Rule]:
    """Return each source's rule, by its own column: the first of the operators decides."""
    return {b.source: replace(_rule(given, branches), column=b.column) for b in branches}


def _rule(given: EventTimeSettings, branches: Sequence[Branch]) -> Rule:
    # Spark's planning processes read rules and make none.
    from blizzard_core.settings.base import to_micros  # noqa: PLC0415  # see above

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

"""The next window: from the stored watermark to a bound that was fixed before reading.

Pure: the bound comes from the connection, the time from the caller. The result is saved in the
checkpoint before anything is read (`blizzard_py.reading.Window`).
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

from blizzard_core.errors import WatermarkError
from blizzard_py.reading import BoundKind, Nulls, Window
from blizzard_py.slices.compare import Watermark, order, shown
from blizzard_py.slices.lookback import Backward, effective
from blizzard_py.slices.notation import is_empty, serialize

# A clock's bound may fall, because the clock was replaced or corrected. Up to this much the source
# waits; more is an error that a person has to examine.
_CLOCK_SLACK = timedelta(hours=1)

_DIGITS = re.compile(r"\((\d)\)")


def window(
    stored: Watermark | None,
    bound: Watermark,
    backward: Backward,
    now: datetime,
    kind: BoundKind,
    nulls: Nulls = "first",
) -> Window | None:
    """Return what is read next, or None if nothing lies above the stored value yet.

    ``bound`` has the highest value of each column that may be read, ``{}`` if there is nothing. A
    column without a value is read no further than before. ``backward`` (empty: none) moves only
    the beginning, at ``now`` (aware). Windows of ``max`` and ``rows`` begin at the stored value
    itself, because rows with that value may have been added. Rows that were read before are
    recognised by their digests (`blizzard_py.slices.digests`).

    Raises `WatermarkError` if the bound lies below the stored value (a restored database; for
    times of a clock by more than an hour). Also raises it for values that no watermark can hold,
    before any row is written. A lower version, or that of another table, must be refused by the
    connection, which knows the table's history.
    """
    after = {column: value for column, value in (stored or {}).items() if value is not None}
    reached = {column: value for column, value in bound.items() if value is not None}
    serialize(reached)
    risen = [
        c for c, value in reached.items() if c not in after or _rises(c, after[c], value, kind)
    ]
    if not risen:
        return None
    up_to = {**after, **{c: reached[c] for c in risen}}
    return Window(
        after=after,
        up_to=up_to,
        low=effective(after, backward, now),
        inclusive=kind in {"max", "rows"} and bool(after),
        nulls_first=nulls == "first" and is_empty(stored),
    )


def last_full_tick(value: Any, type: str) -> Any:  # noqa: A002  # the contract's name
    """Return the bound lowered to the highest value that no later row can still take.

    A column of days has one value for all of today's rows, so a bound of today would skip the
    later ones: the result is yesterday. The same holds for columns of seconds, minutes or
    milliseconds. ``type`` is the source's name of the type: ``date``, ``datetime(3)``,
    ``timestamp(0) without time zone``, ``smalldatetime``. ``datetime`` alone counts as seconds
    (MySQL's), ``timestamp`` alone as microseconds (PostgreSQL's; MySQL's is ``timestamp(0)``).
    Values that are no times, and ISO text, are unchanged.
    """
    word = type.strip().lower()
    if word in {"date", "date32", "date32[day]"}:
        if isinstance(value, datetime):
            value = value.date()
        return value - timedelta(days=1) if isinstance(value, date) else value
    if not isinstance(value, datetime):
        return value
    tick = _tick(word)
    if tick <= timedelta(microseconds=1):
        return value
    since = value - value.replace(hour=0, minute=0, second=0, microsecond=0)
    return value - since % tick - tick


def _tick(word: str) -> timedelta:
    """Return how far two neighbouring values of a time column lie apart."""
    digits = _DIGITS.search(word)
    if digits is not None:
        return timedelta(microseconds=10 ** max(0, 6 - int(digits[1])))
    if word.startswith("smalldatetime"):
        return timedelta(minutes=1)
    if word.endswith(("[s]", "_s")):
        return timedelta(seconds=1)
    if word.endswith(("[ms]", "_ms")):
        return timedelta(milliseconds=1)
    return timedelta(seconds=1) if word == "datetime" else timedelta(microseconds=1)


def _rises(column: str, after: Any, reached: Any, kind: BoundKind) -> bool:
    """Return whether there is anything to read up to the bound.

    Raises `WatermarkError` if the bound lies below the stored value.
    """
    side = order(column, reached, after)
    if side >= 0 or kind == "version":
        return side != 0
    if kind in {"settled", "clock"} and _fell_little(after, reached):
        return False
    raise WatermarkError(
        f"column {column}: the source ends at {shown(reached)}, below the stored watermark "
        f"{shown(after)}. Was it restored or emptied? Rows written since are below the "
        "watermark: set it back with `blizzard checkpoint set --column`; its --dry-run shows what "
        "that reads again"
    )


def _fell_little(after: Any, reached: Any) -> bool:
    if isinstance(after, datetime):
        return bool(after - reached <= _CLOCK_SLACK)
    return isinstance(after, date) and bool(after - reached <= timedelta(days=1))

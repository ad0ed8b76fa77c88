"""Closed ranges of a table or an API, read in chunks for an operator's request. Pure.

A range is half-open, ``[from, to)``, and so is each chunk. A chunk is read as a window of its own,
in addition to the live ones. The watermark does not move; published chunks count as covered.

**Permitted ranges.** Published rows cannot be replaced here. So a range must be unread, and polls
must never reach it. It lies below the ``origin`` (the watermark before the first batch), and is not
covered. `refusal` returns the reason otherwise.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from blizzard_core.errors import BlizzardError, ConfigurationError
from blizzard_core.limits import REQUEST_CHUNKS
from blizzard_py.connections.protocol import ReadBound
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.slices.compare import order
from blizzard_py.slices.cutting import chunks
from blizzard_py.sources.tables.windows import TIES, from_stored, to_stored
from blizzard_py.state.column_state import ColumnState, RequestChunk, StoredWindow

_TICK = dt.timedelta(microseconds=1)
# Types of a column's values, what reads one of a text, and its name. Times are dates, too.
_KINDS: tuple[tuple[Any, Callable[[str], Any], str], ...] = (
    ((int, float, Decimal), int, "whole number"),
    (dt.datetime, dt.datetime.fromisoformat, "time"),
    (dt.date, dt.date.fromisoformat, "date"),
)


class RangeRefused(BlizzardError):
    """The range is not to be read; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values of ``column`` from ``begin`` up to ``end``, which is not in it, in chunks."""

    column: str
    begin: Any
    end: Any
    chunk: str


@dataclass(frozen=True, slots=True)
class RangePiece:
    """A chunk, or a part of the range that is covered."""

    begin: Any
    end: Any
    is_covered: bool


def range_of(
    query_spec: QuerySpec, ends: tuple[str, str], chunk: str, bound: ReadBound
) -> ValueRange:
    """Return the range of a source between ``ends``, as they were written.

    Rows are final up to ``bound``. Rows that arrive above it later would be lost. Raises
    `RangeRefused`.
    """
    column = column_of(query_spec)
    reached = bound.value.get(column)
    if reached is None:
        raise RangeRefused(f"there is nothing to read by {column} yet")
    begin, end = (value_of(text, column, reached) for text in ends)
    found = ValueRange(column, begin, end, chunk)
    try:
        parts = chunks(begin, end, chunk or None)
    except ConfigurationError as error:
        raise RangeRefused(f"--chunk: {error}") from error
    if not parts:
        raise RangeRefused("--from must lie below --to")
    if len(parts) > REQUEST_CHUNKS:
        raise RangeRefused(
            f"{len(parts):,} chunks of {chunk} are too many for one request, which has"
            f" {REQUEST_CHUNKS:,} at most; give a longer --chunk"
        )
    if any(type(value) is not type(begin) for value, _ in parts):
        raise RangeRefused(f"--chunk: {chunk} cuts finer than the values of {column} are")
    beyond = order(column, last_of(query_spec, end), reached)
    if beyond > 0 or (beyond == 0 and bound.kind in TIES):
        raise RangeRefused(
            f"{column} is settled up to {reached} by now; rows that come below --to later would be"
            " read by nobody, so give a --to that is not beyond it"
        )
    return found


def column_of(query_spec: QuerySpec) -> str:
    """Return the watermark column that ranges are of. Raises `RangeRefused` without just one."""
    if len(query_spec.columns) != 1:
        raise RangeRefused(
            "a range is of one watermark column, and this source has"
            f" {len(query_spec.columns) or 'none'}"
        )
    return query_spec.columns[0]


def refusal(live: ColumnState | None, column: str, last: Any) -> str | None:
    """Return why a range that ends with ``last`` would double rows; None if it does not."""
    if not has_started(live):
        return (
            "the source has not begun and would read the same rows; give --begin-live-at-end, with"
            " which it begins at --to"
        )
    assert live is not None  # noqa: S101  # it has begun
    origin = None if live.origin is None else from_stored(live.origin).get(column)
    if origin is not None and order(column, last, origin) <= 0:
        return None
    begins = "the beginning" if origin is None else f"{column} = {origin}"
    return f"the source itself reads everything from {begins} on, so rows would come twice"


def has_started(live: ColumnState | None) -> bool:
    """Return whether a source has read anything, or was told from where to read."""
    return live is not None and bool(live.watermark or live.window is not None)


def pieces(value_range: ValueRange, known: ColumnState, begin: Any) -> Iterator[RangePiece]:
    """Yield the pieces of a range from ``begin`` on, in their order."""
    column = value_range.column
    for low, high in _pairs(known, column):
        if order(column, high, begin) <= 0:
            continue
        if order(column, value_range.end, low) <= 0:
            break
        if order(column, begin, low) < 0:
            yield from _chunks(begin, low, value_range.chunk)
            begin = low
        end = high if order(column, high, value_range.end) <= 0 else value_range.end
        yield RangePiece(begin, end, is_covered=True)
        begin = end
    yield from _chunks(begin, value_range.end, value_range.chunk)


def _chunks(begin: Any, end: Any, chunk: str) -> Iterator[RangePiece]:
    for first, last in chunks(begin, end, chunk or None):
        yield RangePiece(first, last, is_covered=False)


def window_of_piece(
    query_spec: QuerySpec, column: str, piece: RangePiece, now: float
) -> StoredWindow:
    """Return the window that reads a piece.

    Like a live window, it begins at the end of the one before. So no value can lie between two
    windows.
    """
    try:
        low = to_stored({column: last_of(query_spec, piece.begin)})
    except OverflowError:  # the first time or date there is
        low = {}
    up_to = to_stored({column: last_of(query_spec, piece.end)})
    return StoredWindow("clock", after=low, up_to=up_to, low=low, planned_ts=now)


def with_covered(known: ColumnState, column: str, begin: Any, end: Any) -> ColumnState:
    """Return the state once the rows of ``[begin, end)`` are published."""
    below, above = [], []
    for low, high in _pairs(known, column):
        if order(column, high, begin) < 0:
            below.append((low, high))
        elif order(column, end, low) < 0:
            above.append((low, high))
        else:
            begin = low if order(column, low, begin) < 0 else begin
            end = high if order(column, high, end) > 0 else end
    pairs = [*below, (begin, end), *above]
    stored = tuple((to_stored({column: low}), to_stored({column: high})) for low, high in pairs)
    return replace(known, covered=stored)


def with_chunk_done(known: ColumnState, chunk: RequestChunk) -> ColumnState:
    """Return the state once the last item of a chunk is published."""
    [(column, begin)] = from_stored(chunk.begin).items()
    end = from_stored(chunk.end)[column]
    return replace(with_covered(known, column, begin, end), chunk=None)


def last_of(query_spec: QuerySpec, end: Any) -> Any:
    """Return what a window that is to leave ``end`` out ends with."""
    if query_spec.ends_before:
        return end
    if isinstance(end, dt.datetime):
        return end - _TICK
    if isinstance(end, dt.date):
        return end - dt.timedelta(days=1)
    return end - 1


def value_of(text: str, column: str, like: Any) -> Any:
    """Return the value of a column that a text says, in the form of one that it has.

    Raises `RangeRefused`.
    """
    for types, parsed, kind in _KINDS:
        if isinstance(like, types):
            try:
                value = parsed(text)
            except ValueError as error:
                problem = f"{text!r} is no {kind}, as the values of {column} are"
                raise RangeRefused(f"--from, --to: {problem}: {error}") from error
            return _time_like(value, column, like) if isinstance(like, dt.datetime) else value
    raise RangeRefused(
        f"a range is of times, dates or numbers, and {column} has values like {like!r}"
    )


def _time_like(moment: dt.datetime, column: str, like: dt.datetime) -> dt.datetime:
    if (moment.tzinfo is None) == (like.tzinfo is None):
        return moment
    if like.tzinfo is not None:
        return moment.replace(tzinfo=dt.UTC)
    raise RangeRefused(
        f"the times of {column} have no zone; give --from and --to as they stand there, without one"
    )


def _pairs(known: ColumnState, column: str) -> Sequence[tuple[Any, Any]]:
    return [
        (from_stored(low)[column], from_stored(high)[column])
        for low, high in known.covered
        if column in low
    ]

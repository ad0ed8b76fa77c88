"""Closed ranges of a table or an API, read in chunks for an operator's request. Pure.

A range is half-open, ``[from, to)``, and so is each chunk, which is read as a window of its own
beside the live ones. The watermark does not move; what is published counts as covered.

**What may be read.** Rows that were published cannot be replaced here, so it is only what nobody
has read and nobody will: below the ``origin`` of the source, which is where its watermark was set
before it published anything, and not covered. `refusal` says why not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import BlizzardError, ConfigurationError, WatermarkError
from blizzard_py.connections.asking import Asking
from blizzard_py.job import FieldSpec
from blizzard_py.slices.compare import order
from blizzard_py.slices.cutting import chunks
from blizzard_py.sources.tables.windows import from_stored, to_stored
from blizzard_py.state.column_state import Chunk, ColumnState, Stored, StoredWindow

# A request that has more chunks would write as many pages and commits.
_CHUNKS_AT_MOST = 10_000
_TICK = dt.timedelta(microseconds=1)


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
class Piece:
    """A chunk, or a part of the range that is covered."""

    begin: Any
    end: Any
    is_covered: bool


def range_of(
    asking: Asking,
    fields: Sequence[FieldSpec],
    ends: tuple[str, str],
    chunk: str,
    reached: Mapping[str, Any],
) -> ValueRange:
    """Return the range of a source between ``ends``, as they were written.

    ``reached`` are the values up to which rows are settled: those that come into what lies above
    would be nobody's. Raises `RangeRefused`.
    """
    column = column_of(asking)
    begin, end = (_fitting(_parsed(text, column, fields), reached.get(column)) for text in ends)
    found = ValueRange(column, begin, end, chunk)
    if column not in reached:
        raise RangeRefused(f"there is nothing to read by {column} yet")
    try:
        pieces = chunks(begin, end, chunk or None)
        is_beyond = order(column, last_of(asking, end), reached[column]) > 0
    except (ConfigurationError, WatermarkError) as error:
        raise RangeRefused(f"--from, --to, --chunk: {error}") from error
    if not pieces:
        raise RangeRefused("--from must lie below --to")
    if len(pieces) > _CHUNKS_AT_MOST:
        raise RangeRefused(
            f"{len(pieces):,} chunks of {chunk} are too many for one request, which has"
            f" {_CHUNKS_AT_MOST:,} at most; give a longer --chunk"
        )
    if any(type(value) is not type(begin) for value, _ in pieces):
        raise RangeRefused(f"--chunk: {chunk} cuts finer than the values of {column} are")
    if is_beyond:
        raise RangeRefused(
            f"{column} is settled up to {reached[column]} by now; rows that come below --to later"
            " would be read by nobody, so give a --to that is not beyond it"
        )
    return found


def column_of(asking: Asking) -> str:
    """Return the watermark column that ranges are of. Raises `RangeRefused` without just one."""
    if len(asking.columns) != 1:
        raise RangeRefused(
            "a range is of one watermark column, and this source has"
            f" {len(asking.columns) or 'none'}"
        )
    return asking.columns[0]


def refusal(live: ColumnState | None, column: str, last: Any) -> str | None:
    """Return why a range that ends with ``last`` would double rows; None if it does not."""
    if not has_begun(live):
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


def has_begun(live: ColumnState | None) -> bool:
    """Return whether a source has read anything, or was told from where to read."""
    return live is not None and bool(live.watermark or live.window is not None)


def next_piece(asked: ValueRange, known: ColumnState, begin: Any) -> Piece:
    """Return the piece of a range that begins at ``begin``, which lies below its end."""
    column, wall = asked.column, asked.end

    def lower(left: Any, right: Any) -> Any:
        return left if order(column, left, right) <= 0 else right

    for low, high in _pairs(known, column):
        if order(column, high, begin) <= 0:
            continue
        if order(column, low, begin) <= 0:
            return Piece(begin, lower(high, wall), is_covered=True)
        wall = lower(low, wall)
        break
    [(_, end), *_] = chunks(begin, wall, asked.chunk or None)
    return Piece(begin, end, is_covered=False)


def window_of_piece(asking: Asking, column: str, piece: Piece, now: float) -> StoredWindow:
    """Return the window that reads exactly a piece."""
    low = to_stored({column: piece.begin})
    up_to = to_stored({column: last_of(asking, piece.end)})
    return StoredWindow("clock", after=low, up_to=up_to, low=low, inclusive=True, planned_ts=now)


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


def with_chunk_done(known: ColumnState, chunk: Chunk) -> ColumnState:
    """Return the state once the last item of a chunk is published."""
    [(column, begin)] = from_stored(chunk.begin).items()
    end = from_stored(chunk.end)[column]
    return replace(with_covered(known, column, begin, end), chunk=None)


def last_of(asking: Asking, end: Any) -> Any:
    """Return what a window that is to leave ``end`` out ends with."""
    if asking.ends_before:
        return end
    if isinstance(end, dt.datetime):
        return end - _TICK
    if isinstance(end, dt.date):
        return end - dt.timedelta(days=1)
    return end - 1


def value_of(asking: Asking, fields: Sequence[FieldSpec], text: str, known: Stored) -> Any:
    """Return the value of the watermark column that a text says, in the form of those ``known``.

    Raises `RangeRefused`.
    """
    column = column_of(asking)
    return _fitting(_parsed(text, column, fields), from_stored(known).get(column))


def _pairs(known: ColumnState, column: str) -> Sequence[tuple[Any, Any]]:
    return [
        (from_stored(low)[column], from_stored(high)[column])
        for low, high in known.covered
        if column in low
    ]


def _parsed(text: str, column: str, fields: Sequence[FieldSpec]) -> Any:
    """An end of a range as its column's values are."""
    field = next((each for each in fields if each.name == column), None)
    kind = "timestamp" if field is None else field.type
    try:
        if kind in {"int32", "int64"}:
            return int(text)
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind == "timestamp":
            moment = dt.datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    except ValueError as error:
        raise RangeRefused(f"--from, --to: {text!r} is no {kind}: {error}") from error
    raise RangeRefused(f"--from, --to: a range is of times, dates or integers, not of {kind}")


def _fitting(end: Any, value: Any) -> Any:
    """An end in the way of a column's ``value``: a time without a zone where that has none."""
    times = isinstance(end, dt.datetime) and isinstance(value, dt.datetime)
    if times and end.tzinfo is not None and value.tzinfo is None:
        return end.astimezone(dt.UTC).replace(tzinfo=None)
    return end

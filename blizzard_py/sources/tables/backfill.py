"""A closed range of a table or an API, read in chunks beside its live daemon: a source of its own.

Its range is half-open, ``[from, to)``, and so is each chunk; the state of its own that it has
is moved from chunk to chunk, so it can be stopped and run again. A chunk without rows is
passed over.

**What may be read.** Until rows that were published can be replaced, only what nobody has read
and nobody will: below the ``origin`` of the live source, which is where its watermark was set
before it published anything. `refusal` says why not.

Backfills of one source see each other by their checkpoints. Two that begin at the same moment look
before either has one, so each looks again once it has: one of them at least sees the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_py.connections.asking import Asking
from blizzard_py.job import FieldSpec
from blizzard_py.slices.compare import order
from blizzard_py.slices.cutting import chunks
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Upkeep
from blizzard_py.sources.tables import windows
from blizzard_py.sources.tables.source import AskedSource
from blizzard_py.state.column_state import ColumnState, StoredWindow
from blizzard_py.state.source_state import SourceState, checkpoint_path

_TICK = dt.timedelta(microseconds=1)


class RangeRefused(BlizzardError):
    """The range is not the backfill's to ingest; the message says whose it is."""


class BackfillSource(AskedSource):
    """The chunks of a range, each a window that begins with its first value."""

    again = True

    def __init__(
        self,
        parts: Parts,
        upkeep: Upkeep,
        asking: Asking,
        pieces: Sequence[tuple[Any, Any]],
        check_others: Callable[[], None],
    ) -> None:
        """``pieces`` are half-open pairs of the one watermark column's values, in order.

        ``check_others`` raises `RangeRefused` where another backfill has rows of them.
        """
        super().__init__(parts, upkeep, replace(asking, backward={}, new_only=False))
        [self._column] = asking.columns
        self._pieces = pieces
        self._check_others = check_others

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        """Raises `RangeRefused`, and leaves nothing, if another has begun at the same moment."""
        found = super().recover(state, epoch)
        if state.columns is None and not state.in_flight:
            try:
                self._check_others()
            except RangeRefused:
                # Or it would be in the way of whoever tries again.
                self._parts.stores.sink.delete(checkpoint_path(self._parts.id))
                raise
        return found

    def _planned(self, known: ColumnState) -> tuple[ColumnState, int]:
        cost = 0
        done = windows.from_stored(known.watermark).get(self._column)
        for start, end in self._pieces:
            last = last_of(self.asking, end)
            if done is not None and order(self._column, last, done) <= 0:
                continue
            kept = StoredWindow(
                kind="clock",
                after=known.watermark,
                up_to=windows.to_stored({self._column: last}),
                low=windows.to_stored({self._column: start}),
                inclusive=True,
                planned_ts=self._clock(),
            )
            cost += 1
            tasks = self.asking.connection.tasks(windows.window_of(kept), self.asking.split)
            if tasks:
                return windows.opened(known, self.asking, kept, tasks), cost
        return known, cost


def parsed_value(text: str, field: FieldSpec | None) -> Any:
    """An end of a range as its column's values are. Raises `ConfigError` for what it cannot be."""
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
        raise ConfigError("--from, --to", [f"{text!r} is no {kind}: {error}"]) from error
    raise ConfigError("--from, --to", [f"a backfill needs times, dates or integers, not {kind}"])


def fitting(end: Any, value: Any) -> Any:
    """An end in the way of a column's ``value``: a time without a zone where that has none."""
    times = isinstance(end, dt.datetime) and isinstance(value, dt.datetime)
    if times and end.tzinfo is not None and value.tzinfo is None:
        return end.astimezone(dt.UTC).replace(tzinfo=None)
    return end


def last_of(asking: Asking, end: Any) -> Any:
    """Return what a window that is to leave ``end`` out ends with."""
    if asking.ends_before:
        return end
    if isinstance(end, dt.datetime):
        return end - _TICK
    if isinstance(end, dt.date):
        return end - dt.timedelta(days=1)
    return end - 1


def pieces_of(start: Any, end: Any, chunk: str) -> list[tuple[Any, Any]]:
    """The range in chunks. Raises `ConfigurationError`, and `ConfigError` for an empty range."""
    found = chunks(start, end, chunk or None)
    if not found:
        raise ConfigError("--from, --to", ["--from must lie below --to"])
    return found


def slug_of(first: str, last: str) -> str:
    """The range in the name of the backfill's state."""
    return f"{quote(first, safe='')}..{quote(last, safe='')}"


def ends_of(slug: str) -> tuple[str, str]:
    """The inverse of `slug_of`."""
    first, _, last = slug.partition("..")
    return unquote(first), unquote(last)


def refusal(live: ColumnState | None, column: str, last: Any) -> str | None:
    """Return why a range that ends with ``last`` would double rows; None if it does not."""
    if live is None or (not live.watermark and live.window is None):
        return (
            "the live source has not begun and would read the same rows; give --save, with which"
            " it begins at --to"
        )
    origin = None if live.origin is None else windows.from_stored(live.origin).get(column)
    if origin is not None and order(column, last, origin) <= 0:
        return None
    begins = "the beginning" if origin is None else f"{column} = {origin}"
    return (
        f"the live source reads everything from {begins} on, so rows would come twice; published"
        " rows can be read again once they can be replaced, which arrives with work units"
    )

"""The state of a pipeline over event time in its checkpoint, as ``stream``. Pure.

Spark's own checkpoint directory is a working copy. The valid state is here. ``packs`` maps every
file of the directory to the object that holds it. It is valid from the save that names it. So
input, output, state and watermark have one commit point.

* ``query``: the query of the first batch; a changed query is refused (`stream_query`);
* ``batch``: the number of the last processed batch, from 1;
* ``watermark_ms``: the watermark of the next micro-batch, 0 for none yet;
* ``judged_ms``: the watermark of the last one, by which Spark finds late rows of the next;
* ``advance_to_ms``: the watermark that an operator requests with the next batch, 0 for none;
* ``sources``: the state of each of several sources by its name;
* the rest is for people: counts since the first batch, and ``history``, the newest batches.

For a watermark that is only observed (`watched_query`), the state is that of an imaginary query:
``packs`` is empty, and ``batch`` counts ingested batches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_py.state.event_times import EventTimes

# The number of batches in ``history``.
HISTORY = 32
_WATCHED = "watched"


@dataclass(frozen=True, slots=True)
class Packed:
    """The place of a file of the working copy: alone, or as a member of a tar of that name.

    ``digest`` detects damage.
    """

    object: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of one operator, as Spark names it, and its changes by a batch.

    ``dropped_rows`` are rows that Spark dropped as late.
    """

    name: str
    state_rows: int
    state_bytes: int = 0
    updated_rows: int = 0
    removed_rows: int = 0
    dropped_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStream:
    """The state of one of several sources, and counts of its rows since the first batch.

    ``files_ts`` is the beginning of the last batch with files of it, or of the first batch of all.
    ``idle``: that was long ago, so the source did not hold back the watermark in the last batch.
    """

    max_event_time_ms: int | None = None
    files_ts: float = 0.0
    idle: bool = False
    late_rows: int = 0
    partly_late_rows: int = 0
    ahead_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBatch:
    """One processed batch. ``used_watermark_ms`` is the watermark of the micro-batch with its rows.

    ``rows`` are the accepted rows, including late ones. ``state_rows`` are those that are left
    after the empty micro-batch. ``max_event_time_ms`` is the newest time so far that the watermark
    follows. ``times`` are the statistics of its rows, None without rows.
    """

    batch: int
    files: int
    rows: int
    used_watermark_ms: int
    watermark_ms: int
    late_rows: int = 0
    partly_late_rows: int = 0
    ahead_rows: int = 0
    dropped_by_spark: int = 0
    state_rows: int = 0
    emitted_rows: int = 0
    micro_batches: int = 0
    max_event_time_ms: int | None = None
    times: EventTimes | None = None
    operators: tuple[OperatorState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The state of a stream. The module's docstring explains the fields."""

    query: Mapping[str, Any]
    batch: int = 0
    watermark_ms: int = 0
    judged_ms: int = 0
    advance_to_ms: int = 0
    max_event_time_ms: int | None = None
    packs: Mapping[str, Packed] = field(default_factory=dict)
    late_rows: int = 0
    partly_late_rows: int = 0
    ahead_rows: int = 0
    unaccounted_rows: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    operators: tuple[OperatorState, ...] = ()
    history: tuple[QueryBatch, ...] = ()
    sources: Mapping[str, SourceStream] = field(default_factory=dict)

    @property
    def is_watched(self) -> bool:
        """Return whether the watermark is only observed, so that no row depends on it."""
        return _WATCHED in self.query

    @property
    def is_to_advance(self) -> bool:
        """Return whether the next batch moves the watermark, whatever rows it has."""
        return self.advance_to_ms > self.watermark_ms

    @property
    def begins_at(self) -> tuple[int, ...]:
        """Watermarks that a query is set to, one after the other, before its first rows.

        Only for a query whose state an operator has reset: published windows stay closed. The
        first is the one that finds late rows, the last is the query's watermark.
        """
        if self.packs:
            return ()
        return tuple(ms for ms in (self.judged_ms, self.watermark_ms) if ms)

    @property
    def line(self) -> QueryBatch | None:
        """Return the report of the last batch."""
        return self.history[-1] if self.history else None

    @property
    def objects(self) -> frozenset[str]:
        """Every object that a file of the working copy is kept in."""
        return frozenset(packed.object for packed in self.packs.values())


def placeholder_query(column: str) -> dict[str, Any]:
    """Return a placeholder for a query that does not exist."""
    return {_WATCHED: column}


def moment(ms: int | None) -> str | None:
    """Return a time in milliseconds as text for people; None if it is unknown."""
    if not ms:
        return None
    found = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    return found.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace(
        "+00:00", "Z"
    )


def add_query_batch(
    state: StreamState,
    batch: QueryBatch,
    packs: Mapping[str, Packed],
    *,
    judged_ms: int,
    max_event_time_ms: int | None,
    sources: Mapping[str, SourceStream] | None = None,
) -> StreamState:
    """Return the state with one more batch, to be saved with its outputs.

    If rows were late for some windows only, they explain the rows that Spark dropped. Spark counts
    after rows were combined, so the numbers need not be equal.
    """
    unaccounted = 0 if batch.partly_late_rows else batch.dropped_by_spark
    times = [ms for ms in (state.max_event_time_ms, max_event_time_ms) if ms is not None]
    newest = max(times, default=None)
    return replace(
        state,
        batch=batch.batch,
        watermark_ms=batch.watermark_ms,
        judged_ms=judged_ms,
        advance_to_ms=0,
        max_event_time_ms=newest,
        packs=packs,
        late_rows=state.late_rows + batch.late_rows,
        partly_late_rows=state.partly_late_rows + batch.partly_late_rows,
        ahead_rows=state.ahead_rows + batch.ahead_rows,
        unaccounted_rows=state.unaccounted_rows + unaccounted,
        state_rows=batch.state_rows,
        state_bytes=sum(each.state_bytes for each in batch.operators),
        operators=batch.operators,
        history=(*state.history, replace(batch, max_event_time_ms=newest))[-HISTORY:],
        sources=sources or {},
    )

"""A source of another kind than files: numbered rows of a table, read above a watermark.

An item is a window of numbers, ``0000000004-0000000006``; its bounds are fixed when it is
planned and stand in its name, so whoever takes a batch over reads the same. The
watermark is the highest number below which everything is done; windows that are done
beyond one that waits are kept by name until it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import PartitionProgress, ScanTimes
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.sources.meter import BatchLimits, next_count
from blizzard_py.sources.protocol import (
    Backlog,
    CheckpointServices,
    PollPlan,
    Requested,
    SourceScan,
)
from blizzard_py.sources.stale import World, require_current
from blizzard_py.sources.story import Compared, Passed, Story, Waiting
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import SourceState, under_way
from blizzard_py.state.transitions import done_of

# Rows that one window holds at most.
WINDOW_ROWS = 2


@dataclass
class Table:
    """Rows by number, which only grow."""

    rows: list[str] = field(default_factory=list)

    @property
    def top(self) -> int:
        return len(self.rows)

    def read(self, window: str) -> list[str]:
        low, high = bounds(window)
        return self.rows[low - 1 : high]


def window(low: int, high: int) -> str:
    return f"{low:010}-{high:010}"


def bounds(name: str) -> tuple[int, int]:
    low, high = name.split("-")
    return int(low), int(high)


@dataclass
class RowsWork:
    files: Sequence[Entry]
    taken: int = 0

    def __len__(self) -> int:
        return len(self.files) - self.taken

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files[self.taken :])

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        count = next_count(self.files, self.taken, limits, bytes_per_sec)
        self.taken += count
        return tuple(self.files[self.taken - count : self.taken])


@dataclass(frozen=True)
class RowsStatus:
    source: RowSource
    state: SourceState
    name: str
    place: tuple[str | None, str | None] = (None, None)

    @property
    def comparison(self) -> Compared:
        value = self.state.position.progress.value
        return Compared(self.state.position.progress.state, None, value, value, None, value)

    def is_new(self) -> bool:
        return any(entry.path == self.name for entry in self.source.windows(self.state))

    def next_poll(self) -> Waiting:
        return Waiting("poll", "above the watermark; the next poll reads it")

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:  # noqa: ARG002  # the seam gives it
        return Passed("done", "not above the watermark")


class RowSource:
    """Its watermark is the checkpoint's own, a number in text."""

    items = "window"

    def __init__(self, table: Table, parts: SourceContext, upkeep: CheckpointServices) -> None:
        self._table = table
        self._parts = parts
        self._clock = upkeep.clock
        self._template = parts.ingest.layout.partition_template

    # -- for everyone who looks ----------------------------------------------------

    def check(self, state: SourceState) -> None:
        """There is one way to keep it."""

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:  # noqa: ARG002  # the seam gives it
        began = self._clock()
        windows = tuple(self.windows(state))
        return SourceScan(
            windows, (), 1, len(windows), ScanTimes(began, self._clock()), NONE_SKIPPED
        )

    def windows(self, state: SourceState) -> list[Entry]:
        """Return the windows that are under way, and new ones for the gaps between them."""
        done = _beyond(state)
        begun = {name for name in under_way(state.work) if name not in done}
        new: list[str] = []
        reached = _value(state)
        for low, high in [*sorted(map(bounds, {*begun, *done})), (self._table.top + 1, 0)]:
            starts = range(reached + 1, low, WINDOW_ROWS)
            new += [window(start, min(start + WINDOW_ROWS, low) - 1) for start in starts]
            reached = high
        return [Entry(name, len(self._table.read(name)), 0.0) for name in sorted([*begun, *new])]

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        return _moved(state, batch, batch.results.committed_ts)

    def backlog(self, state: SourceState) -> Backlog:
        waits = self.windows(state)
        return Backlog(len(waits), min((e.modified for e in waits), default=None), complete=True)

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        return {"rows_to": _value(state), "beyond": sorted(_beyond(state))}

    def explain(self, name: str) -> Story:
        try:
            high = bounds(name)[1]
        except ValueError:
            return Story(None, "is no window", lambda state: RowsStatus(self, state, name))
        there = 0 < high <= self._table.top
        entry = Entry(name, len(self._table.read(name)), 0.0) if there else None
        return Story(entry, None, lambda state: RowsStatus(self, state, name))

    def close(self) -> None:
        """Do nothing: no connection is open."""

    # -- for the one that owns the checkpoint --------------------------------------

    def start_over(self, state: SourceState, epoch: int) -> SourceState:  # noqa: ARG002  # the seam gives it
        return state

    def recover(self, state: SourceState, epoch: int) -> SourceState:  # noqa: ARG002  # the seam gives it
        return state

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        return require_current(state, self._parts, world)

    def plan(self, state: SourceState) -> PollPlan[RowsWork]:
        found = self.discover(state)
        waits = waiting(state.work.retries, found.scanned.ended)
        work = RowsWork([entry for entry in found.files if entry.path not in waits])
        return PollPlan(state, found, work)

    def requested_items(self, state: SourceState, now: float) -> Requested:  # noqa: ARG002  # the seam gives it
        return Requested()

    def job_items(
        self,
        state: SourceState,  # noqa: ARG002  # the seam gives it
        batch: Batch,
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        return [JobFile(entry.path, entry.size, self._template) for entry in batch.files], []

    def reading(
        self,
        state: SourceState,  # noqa: ARG002  # the seam gives it
        batch: Batch,  # noqa: ARG002  # the seam gives it
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def replacement(
        self,
        state: SourceState,  # noqa: ARG002  # the seam gives it
        batch: Batch,  # noqa: ARG002  # the seam gives it
        finished: Sequence[FinishedFile],  # noqa: ARG002  # the seam gives it
    ) -> Replaced | None:
        return None

    def is_missing(self, name: str) -> bool:  # noqa: ARG002  # the seam gives it
        return False

    def advance(
        self,
        state: SourceState,
        batch: Batch,
        work: RowsWork | None,  # noqa: ARG002  # the seam gives it
        now: float,
    ) -> SourceState:
        return _moved(state, batch, now)

    def clean_up(self) -> None:
        """Do nothing: no letters are written."""


def _value(state: SourceState) -> int:
    return int(state.position.progress.value or 0)


def _beyond(state: SourceState) -> dict[str, float]:
    """Return the windows that are done behind a waiting one."""
    known = state.position.progress.partitions.get("")
    return {} if known is None else dict(known.done)


def _moved(state: SourceState, batch: Batch, now: float) -> SourceState:
    value, done = _value(state), _beyond(state)
    done |= {entry.path: now for entry in done_of(batch)}
    for name in sorted(done):
        low, high = bounds(name)
        if low == value + 1:
            value = high
            del done[name]
    text = f"{value:010}" if value else None
    known = PartitionProgress(text, text, done)
    progress = replace(
        state.position.progress,
        state="Active" if value else "Initial",
        value=text,
        partitions={"": known},
        depth=0,
    )
    return state.with_position(progress=progress)

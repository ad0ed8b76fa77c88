"""The seam: what the batch protocol needs of a source, whatever it ingests from.

`blizzard_py.ingest.source_pipeline` and `blizzard_py.ingest.batch_runner` take *items* from planned
to done exactly once. They name the items in the checkpoint, run the job, commit, publish, and save
that the items are done. Only the source knows what an item is; it decides nothing about batches.

**An item** is an `Entry`: a permanent name, a size that limits batches, and a time. A file is named
by its path, a reading of a window or a work unit by its bounds. So a process that takes over a
batch after a crash knows from the batch alone what to read. Outcomes, retries, dead letters and
counts of items are the same for all sources. The checkpoint, the journal and the code of batches
call items files, since files were the first kind.

**State.** Each kind has fields of its own in `SourceState`. Every method gets a state and returns
the next; a change that was not returned and saved never happened. A source may hold in memory only
data that it can lose in a restart. It may write other objects (segments of names), which count only
once a saved state refers to them.

**The contract**, to which ``tests/blizzard_py/sources/test_source_contract.py`` holds every source:

1. The reading methods (`discover`, `backlog`, `status_fields`, `explain`, `outlook`) write nothing.
   They need no `recover` before them.
2. `plan` returns each item that is to be done once, oldest first, and none that is done, in
   flight, or waits for another try. What it learns on the way is saved before it is acted on.
3. `job_items` and `reading` go by the saved state and the batch alone, and are asked in the thread
   of the job.
4. `advance` goes by the state and the batch alone. Called again after a death, with what was
   saved, it comes to the same end. It never moves a watermark past an unfinished item. An item
   whose outcome is ``retry`` is found again after its backoff. ``work=None``: pending items are
   unknown. The source decides whether a dead-lettered item is passed or tried again.
5. What `advance` has done is not found again, in this process or another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import ScanTimes
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.reading import Reading
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.ignored_names import NONE_IGNORED, NONE_SKIPPED, IgnoredNames, SkippedItems
from blizzard_py.sources.meter import BatchLimits, next_count
from blizzard_py.sources.stale import World
from blizzard_py.sources.story import Story
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.source_state import SourceState

if TYPE_CHECKING:  # commands that only look need no metrics
    from blizzard_py.sources.activity import SourceActivity


@dataclass(frozen=True, slots=True)
class SourceScan:
    """The findings of a scan, and its cost.

    ``files`` are the items to ingest, oldest first; ``young`` are too new for now. ``scanned`` has
    the time of the scan and its end: if ``until`` is set, more items follow. ``skipped`` are items
    in skipped partitions, ``ignored`` those whose names are not taken. Without ``needs_rescan`` the
    next scan can wait until the next poll. ``next_at`` is when that is due, by the clock that never
    jumps; None: a poll interval after the end of the work. ``notes`` are messages for people.
    """

    files: tuple[Entry, ...]
    young: tuple[Entry, ...]
    requests: int
    keys: int
    scanned: ScanTimes
    skipped: SkippedItems
    ignored: IgnoredNames = field(default=NONE_IGNORED, kw_only=True)
    needs_rescan: bool = field(default=True, kw_only=True)
    next_at: float | None = field(default=None, kw_only=True)

    @property
    def has_listed(self) -> bool:
        """Return whether it looked at anything; False if no scan was due."""
        return self.scanned.cover is None or bool(self.scanned.cover.ranges)

    notes: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Items that wait; ``oldest_ts`` is the time of the oldest of them (epoch seconds).

    Without ``complete`` there are more than were looked at. ``skipped`` are items that are not
    looked at for now, ``ignored`` those whose names are not taken.
    """

    files: int
    oldest_ts: float | None
    complete: bool
    skipped: SkippedItems = NONE_SKIPPED
    ignored: IgnoredNames = NONE_IGNORED


class Work(Protocol):
    """The items of one plan, in the order of batches. Its length is the number of remaining items.

    `Source.advance` receives it as the items that wait while a batch ends. A kind of source whose
    watermarks depend on them stores in its own class what it needs.
    """

    def __len__(self) -> int: ...

    @property
    def files(self) -> Sequence[Entry]:
        """All items, also those that were taken."""

    @property
    def size(self) -> int:
        """The sizes of what is left, together."""

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        """Return the next batch's items: within the limits, but at least one."""


class PlainWork:
    """Items that nothing depends on: batches take them from the front. A `Work`.

    So what a batch costs does not depend on how many items wait.
    """

    def __init__(self, files: Sequence[Entry] = ()) -> None:
        self._files = files
        self._next = 0

    def __len__(self) -> int:
        return len(self._files) - self._next

    @property
    def files(self) -> Sequence[Entry]:
        return self._files

    @property
    def size(self) -> int:
        return sum(self._files[place].size for place in range(self._next, len(self._files)))

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        return self._next_files(next_count(self._files, self._next, limits, bytes_per_sec))

    def _next_files(self, count: int) -> tuple[Entry, ...]:
        first = self._next
        self._next += count
        return tuple(self._files[first : self._next])


@dataclass(frozen=True, slots=True)
class Requested:
    """Files of the operator's request with an ``id``, as far as they can be done now."""

    id: str = ""
    work: Work = field(default_factory=PlainWork)


W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class PollPlan(Generic[W]):
    """The next step: the state that was learned from looking, what was found, the work."""

    state: SourceState
    scan: SourceScan
    work: W


@dataclass(frozen=True, slots=True)
class CheckpointServices:
    """Services of the checkpoint's owner for a source and its batches.

    ``save`` makes a state durable before the source acts on it. ``clock`` is the time for waits,
    ``epoch`` the checkpoint's epoch. ``fence`` writes the state's commit point before anything of
    it is published; it raises `FencedError` if another process has published since. ``finish`` ends
    a batch that ingests nothing and was committed at the given moment. ``activity`` gives the live
    view.
    """

    save: Callable[[SourceState], SourceState]
    clock: Callable[[], float]
    epoch: Callable[[], int]
    fence: Callable[[SourceState], None]
    finish: Callable[[SourceState, Batch, float, Any], SourceState]
    activity: Callable[[], SourceActivity]


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nothing of a batch is published, since what it would take the place of is not all there.

    ``finished`` are its items' outcomes instead, none of them ``ingested``.
    """

    finished: tuple[FinishedFile, ...]


class Source(Protocol[W]):
    """One source of a kind. See the module's docstring for the contract.

    Whatever asks a store or a server raises `StorageError`, and `StateError` where what is
    kept beside the checkpoint does not fit it.
    """

    @property
    def items(self) -> str:
        """Return what one item is called in messages: ``file``."""

    @property
    def is_failing(self) -> bool:
        """Return whether items failed in the last poll although the source itself works."""

    # -- for all readers -----------------------------------------------------------

    def check(self, state: SourceState) -> None:
        """Raise `StateError` if the state was kept in a way that the settings contradict."""

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:
        """Return what the next poll would find; ``full``: the ones after it as well."""

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        """Return the state as `advance` will leave it once the batch is published."""

    def backlog(self, state: SourceState) -> Backlog | None:
        """Return what waits, for a bounded number of requests; None if that cannot be told."""

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        """Return what ``status --json`` tells of this kind alone."""

    def explain(self, name: str) -> Story:
        """Return what the source itself says of the item of that name."""

    def close(self) -> None:
        """Close connections. They open again when needed."""

    # -- for the one that owns the checkpoint --------------------------------------

    def start_over(self, state: SourceState, epoch: int) -> SourceState:
        """Forget what was processed, for an operator who starts from nothing.

        Called before `recover` in ``epoch``, if nothing was done since; the caller saves.
        """

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        """Read what is stored beside the checkpoint, which was taken over in ``epoch``.

        Called before anything below, after each start and each error.
        """

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        """Return the state as far as the world outside of the checkpoint confirms it.

        Called before `recover`. Raises `StateError` for a stale checkpoint that would have items
        come again, naming what is newer and the command that mends it.
        """

    def plan(self, state: SourceState) -> PollPlan[W]:
        """Scan, save what follows from it, handle late files, and return the remaining work."""

    def requested_items(self, state: SourceState, now: float) -> Requested:
        """Return the items of operators' requests that can run now, of the first accepted one."""

    def job_items(
        self, state: SourceState, batch: Batch
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        """Return the job's items of a batch, and the outcomes of items that it cannot be given.

        Together they are the batch's items, each once. ``state`` is saved and has the batch, so a
        source that must check for another run's claim on an item checks now.
        """

    def reading(self, state: SourceState, batch: Batch) -> AbstractContextManager[Reading | None]:
        """Return how a connection reads the batch's items, while the job runs; None for files.

        Called like `job_items`, after it.
        """

    def replacement(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld | None:
        """Return the rows that a batch replaces, given its outcomes; None: its outputs are added.

        Asked before the commit point, by what is saved. Any other answer than None makes the batch
        a group (`blizzard_core.handover.groups`), even if it replaces nothing. A source whose order
        counts answers so for each of its batches.
        """

    def is_missing(self, name: str) -> bool:
        """Return whether it is certain that the item no longer exists."""

    def advance(self, state: SourceState, batch: Batch, work: W | None, now: float) -> SourceState:
        """Move the watermarks past the batch. The caller ends the batch, and saves.

        ``work`` are the other pending items, None if unknown. Items of other batches in flight are
        pending too. A batch of an operator's request moves no watermark and holds none back.
        """

    def clean_up(self) -> None:
        """Remove what the last `advance` has replaced. Its state is saved."""


# Makes a source of its parts, for the one that owns (or would own) its checkpoint.
Opener: TypeAlias = Callable[[SourceContext, CheckpointServices], Source[Any]]

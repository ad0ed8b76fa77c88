"""The state of one source between two polls. Pure.

Its form in a checkpoint, key by key: `blizzard_py.state.checkpoint_document`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.progress import Progress
from blizzard_py.requests.progress import RequestState
from blizzard_py.slices.units.state import UnitsState
from blizzard_py.state.batch import Batch, takes
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.completeness import Completeness
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.lateness import Lateness
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import StreamState

# The folder of a source's dead letters where a replay puts processed ones.
REPLAYED_FOLDER = "replayed"


@dataclass(frozen=True, slots=True)
class ToReplace:
    """A queued file whose new rows replace its earlier ones.

    ``batches`` ingested the earlier rows, as far as known when the file was queued. Files with the
    same ``together`` are done in one batch or not at all, because their rows are in the same
    outputs. It is empty if rows name their file. ``insist``: an operator confirms that they do.
    """

    batches: tuple[str, ...] = ()
    together: str = ""
    insist: bool = False


@dataclass(frozen=True, slots=True)
class QueuedFile(Entry):
    """A pending file that no scan finds: a late file, or one of the ``request`` with that id."""

    request: str = ""

    @property
    def entry(self) -> Entry:
        """The file as a listing has it."""
        return Entry(self.path, self.size, self.modified, version=self.version)


def queue_file(entry: Entry, request: str = "") -> QueuedFile:
    """Return a file as one of the queue."""
    return QueuedFile(entry.path, entry.size, entry.modified, request, version=entry.version)


# Between the driver and the place of a lake.
IN = " in "


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a source: names of pipeline and source, and where its files are.

    A table's ``uri`` names the connection; ``lake`` is what reads it and where, as
    ``csv in s3://lake``, None for what is no lake. ``range`` are the names that a source of files
    is for, None for all.
    """

    pipeline: str
    source: str
    uri: str
    lake: str | None = None
    range: NameRange | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The temporary failures of a file: their ``count``, and the time ``after`` of the next try."""

    count: int
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Closing:
    """The reason, the person and the time (ISO 8601) of closed dead letters."""

    why: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """The newest commit point of a source: its number, its batch, and the batch before it.

    Numbers count from 1 and are never used again, even if an operator edits the checkpoint
    (`blizzard_py.state.fence_record`).
    """

    number: int = 0
    batch: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The late sweep: the beginning of the last one, and the path that the current one has reached.

    ``whole`` means that the ledger has all files since a cold start. Otherwise, and always below
    the origin, the first sweep notes the files that it finds, until ``noted``. ``before`` is the
    beginning of the sweep before. ``changed`` counts files that sweeps found changed after they
    were processed; ``last_changed`` is the last of them.
    """

    began: float = 0.0
    cursor: str | None = None
    whole: bool = False
    noted: bool = False
    before: float = 0.0
    changed: int = 0
    last_changed: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the first batch; ``bytes`` are the source files' stored bytes.

    ``bad_rows`` are records in the dead-letter queue, whose files were ingested.
    """

    batches: int = 0
    files: int = 0
    quarantined: int = 0
    rows: int = 0
    bytes: int = 0
    outputs: int = 0
    bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """All outputs of batches up to ``batch`` were in the table at ``seen_ts``."""

    batch: str
    seen_ts: float


@dataclass(frozen=True, slots=True)
class CleaningState:
    """The checks of commits, oldest first, and the last batch whose files are done.

    ``log_version`` is the version of the table up to which the log was searched for commits that
    remove rows, and ``log_digest`` the SHA-256 of that commit: a table that was created again
    has another one. ``held`` are folders of the table in which other writers removed rows, each
    with the last batch by then; files of batches with outputs there stay. ``cleaned`` is the number
    of files that were cleaned so far, ``at`` the store's time of the last check of the table.
    """

    commit_checks: tuple[CommitCheck, ...] = ()
    done: str = ""
    log_version: int = -1
    cleaned: int = 0
    log_digest: str = ""
    held: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0

    @property
    def seen_through(self) -> str:
        """The last batch that was seen in the table, or whose files are done."""
        return self.commit_checks[-1].batch if self.commit_checks else self.done


# Sorts below each id of a batch.
NO_BATCH = "-"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a source in the order of its names.

    ``progress`` has the watermarks, ``origin`` the floor of the cold start (empty if it read
    everything). ``window`` are the batches whose files are in grace, each with its ``seen_ts``.
    ``reset_ts`` is when an operator had the source start over; earlier batches do not count.

    Requests take files out of turn. ``ahead`` is the last file of each partition that a request
    took before scans reach it. ``reached`` is the lowest name that one took below the origin.
    """

    progress: Progress = field(default_factory=Progress)
    origin: str | None = None
    window: tuple[tuple[str, float], ...] = ()
    reset_ts: float = 0.0
    ahead: tuple[str, ...] = ()
    reached: str = ""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """The items that a source has found and not finished, and the orders that it executes.

    ``in_flight`` are its batches, and ``retries`` the temporary failures by file. The ``queue``
    has the files that no scan finds. Those in ``replacing`` take the place of their earlier rows.
    ``requests`` are operators' orders by id (`blizzard_py.requests.progress`).
    """

    in_flight: tuple[Batch, ...] = ()
    retries: Mapping[str, Retry] = field(default_factory=dict)
    queue: tuple[QueuedFile, ...] = ()
    replacing: Mapping[str, ToReplace] = field(default_factory=dict)
    requests: Mapping[str, RequestState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IssuedIds:
    """The highest ids that a source has issued. New ones are above them.

    ``last_batch`` is the highest id of a batch: ``NO_BATCH`` before the first, empty if unknown.
    ``last_output`` is the highest name of an output, ``group_seq`` the number of the last group.
    ``committed`` is the newest commit point. A stale checkpoint is recognised by ``last_batch`` and
    ``committed``.
    """

    last_batch: str = ""
    last_output: str = ""
    group_seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    committed: CommitPoint = CommitPoint()


@dataclass(frozen=True, slots=True)
class ProcessedNames:
    """The stored names of all settled items.

    The ``ledger`` has the segments that the journal was folded into. ``unfolded`` counts what the
    journal must still hold (None: nobody has counted). ``processed`` are the segments of a source
    without a watermark, None for one with a watermark.
    """

    ledger: tuple[Segment, ...] = ()
    unfolded: JournalTally | None = None
    processed: tuple[Segment, ...] | None = None


@dataclass(frozen=True, slots=True)
class LateFileState:
    """The search for late files: the ``sweep``, and the ``lateness`` of files by day."""

    sweep: Sweep = Sweep()
    lateness: Lateness = ()


@dataclass(frozen=True, slots=True)
class KindState:
    """The state that only some kinds of sources have.

    A query source has ``columns`` if it reads windows, and ``units`` if it reads units. ``stream``
    belongs to a query over event time.
    """

    columns: ColumnState | None = None
    units: UnitsState | None = None
    stream: StreamState | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Values that people see of a source.

    ``totals`` count since the first batch. ``last_update_ts`` is the time of the checkpoint's last
    save. ``unexpected`` are the fields without a column that were already reported.
    """

    totals: Totals = field(default_factory=Totals)
    last_update_ts: int | None = None
    unexpected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceState:
    """Everything that is known of one source. ``SourceState()`` is a cold start.

    ``source`` says whose state this is, and ``former`` are earlier places of its files, which rows
    may name. Each other field is a group of values that are read and replaced together. A method
    ``with_<group>`` returns the state with changed values of that group. ``complete`` counts
    partitions, None if nobody asks whether they are complete. ``cleaning`` is the progress of the
    cleaning of source files, None without it. ``members`` are the states of several sources that
    share batches, by name (`blizzard_py.state.composite_state`).
    """

    source: Identity | None = None
    former: tuple[str, ...] = ()
    position: Position = field(default_factory=Position)
    work: PendingWork = field(default_factory=PendingWork)
    ids: IssuedIds = IssuedIds()
    names: ProcessedNames = ProcessedNames()
    late_files: LateFileState = LateFileState()
    kind: KindState = field(default_factory=KindState)
    summary: Summary = field(default_factory=Summary)
    complete: Completeness | None = None
    cleaning: CleaningState | None = None
    members: Mapping[str, SourceState] = field(default_factory=dict)

    @takes(Position)
    def with_position(self, **changes: Any) -> SourceState:
        """Return the state with a changed position."""
        return replace(self, position=replace(self.position, **changes))

    @takes(PendingWork)
    def with_work(self, **changes: Any) -> SourceState:
        """Return the state with changed pending work."""
        return replace(self, work=replace(self.work, **changes))

    @takes(IssuedIds)
    def with_ids(self, **changes: Any) -> SourceState:
        """Return the state with other highest ids."""
        return replace(self, ids=replace(self.ids, **changes))

    @takes(ProcessedNames)
    def with_names(self, **changes: Any) -> SourceState:
        """Return the state with other processed names."""
        return replace(self, names=replace(self.names, **changes))

    @takes(LateFileState)
    def with_late_files(self, **changes: Any) -> SourceState:
        """Return the state with a changed search for late files."""
        return replace(self, late_files=replace(self.late_files, **changes))

    @takes(KindState)
    def with_kind(self, **changes: Any) -> SourceState:
        """Return the state with changed values of its kind."""
        return replace(self, kind=replace(self.kind, **changes))

    @takes(Summary)
    def with_summary(self, **changes: Any) -> SourceState:
        """Return the state with a changed summary."""
        return replace(self, summary=replace(self.summary, **changes))


def under_way(work: PendingWork) -> Iterable[str]:
    """Yield the files that a run has taken and not finished."""
    yield from work.retries
    yield from (entry.path for entry in work.queue)
    yield from (entry.path for batch in work.in_flight for entry in batch.files)


def checkpoint_path(source_id: str) -> str:
    """Return where a source's checkpoint is, relative to the table."""
    return StatePaths(source_id).checkpoint

"""The state of one source between two polls, and its batches. Pure.

Its form in a checkpoint, key by key: `blizzard_py.state.checkpoint_document`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.progress import Progress
from blizzard_py.job import FinishedFile, StagedBadRecords
from blizzard_py.reading import ReadMarks
from blizzard_py.requests.progress import RequestState
from blizzard_py.slices.units.state import UnitsState
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.lateness import Lateness
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import QueryBatch, StreamState

Phase = Literal["running", "publishing"]

# The folder of a source's dead letters where a replay puts processed ones.
REPLAYED_FOLDER = "replayed"


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A staged file and the final path it is published under, relative to the table.

    ``earlier`` are final paths that were planned before a recovery. A fenced process may still
    publish under them.
    """

    staged: str
    final: str
    rows: int
    size: int
    output_id: str
    earlier: tuple[str, ...] = ()

    @property
    def finals(self) -> tuple[str, ...]:
        """Every path that it may be found under, once published."""
        return (self.final, *self.earlier)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that a batch replaces, as in `blizzard_core.handover.groups.Group`.

    For files, ``batches`` are those that ingested these rows. The journal has them too, so a later
    replacement of the same files need not look further back. ``ever``: an operator decided that
    rows of batches that are no longer in the journal are removed as well.
    """

    ranges: tuple[tuple[str, str], ...] = ()
    source_files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    ever: bool = False


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
        return Entry(self.path, self.size, self.modified)


def queued(entry: Entry, request: str = "") -> QueuedFile:
    """Return a file as one of the queue."""
    return QueuedFile(entry.path, entry.size, entry.modified, request)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """The group that a committed batch is published by: its number, and what it replaces."""

    seq: int
    replaced: Replaced


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in flight. Fields with a default are set from phase ``publishing`` on.

    ``seen_ts`` is the end of the scan that found its files; a later time is safe. ``letters`` are
    the staged bad records of files that were ingested apart from these. ``marks`` are the tasks'
    reports on the rows of a query source. With ``group`` a manifest names its outputs, and no
    listing finds them. ``names_root`` is the beginning of its rows' `SOURCE_FILE_COLUMN`, empty if
    rows do not name their file. ``settled`` are the results of a query over event time.
    ``request`` is the id of the operator's request for its files, empty for files of a scan.
    """

    batch: str
    attempt: int
    phase: Phase
    started_ts: float
    files: tuple[Entry, ...]
    seen_ts: float
    outputs: tuple[PlannedOutput, ...] = ()
    finished: tuple[FinishedFile, ...] = ()
    letters: tuple[StagedBadRecords, ...] = ()
    committed_ts: float = 0.0
    marks: tuple[ReadMarks, ...] = ()
    group: PlannedGroup | None = None
    names_root: str = ""
    settled: QueryBatch | None = None
    request: str = ""


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

    def document(self) -> dict[str, Any]:
        """Return its form in the checkpoint."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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


# Sorts below each id of a batch.
NO_BATCH = "-"


@dataclass(frozen=True, slots=True)
class SourceState:
    """Everything that is known of one source. ``SourceState()`` is a cold start.

    Identity: ``source``, and ``former`` places of its files, which rows may name.

    Position: ``progress`` has the watermarks, ``origin`` the floor of the cold start (empty if it
    read everything). ``window`` are the batches whose files are in grace, each with its
    ``seen_ts``. ``reset_ts`` is when an operator had it start over; earlier batches do not count.

    Work: ``in_flight`` batches, ``retries`` by file, and the ``queue`` of files that no scan
    finds. Those in ``replacing`` take the place of their earlier rows. ``requests`` are operators'
    orders by id (`blizzard_py.requests.progress`). ``ahead`` is the last file of each partition
    that a request took before scans reach it. ``reached`` is the lowest name that a request took
    below the origin.

    Ids: ``last_batch`` is the highest id of a batch (``NO_BATCH`` before the first, empty if
    unknown), ``last_output`` the highest name of an output, ``group_seq`` the number of the last
    group. ``committed`` is the newest commit point. A stale checkpoint is recognised by
    ``last_batch`` and ``committed``.

    Processed names: ``ledger`` segments, ``processed`` for a source without a watermark, and
    ``unfolded``, which counts what the journal must hold (None: nobody has counted). ``sweep`` and
    ``lateness`` are about late files.

    Depending on the kind: ``columns`` of a query source with windows, ``units`` of one with units,
    ``stream`` of a query over event time, and ``members``, the states of several sources that
    share batches (`blizzard_py.state.composite_state`).

    For people: ``totals``, ``last_update_ts``, and the ``unexpected`` fields already reported.
    """

    progress: Progress = field(default_factory=Progress)
    in_flight: tuple[Batch, ...] = ()
    retries: Mapping[str, Retry] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    last_update_ts: int | None = None
    queue: tuple[QueuedFile, ...] = ()
    sweep: Sweep = Sweep()
    ledger: tuple[Segment, ...] = ()
    lateness: Lateness = ()
    window: tuple[tuple[str, float], ...] = ()
    origin: str | None = None
    processed: tuple[Segment, ...] | None = None
    source: Identity | None = None
    reset_ts: float = 0.0
    columns: ColumnState | None = None
    group_seq: int = 0
    replacing: Mapping[str, ToReplace] = field(default_factory=dict)
    units: UnitsState | None = None
    stream: StreamState | None = None
    former: tuple[str, ...] = ()
    last_batch: str = ""
    last_output: str = ""
    unexpected: tuple[str, ...] = ()
    members: Mapping[str, SourceState] = field(default_factory=dict)
    committed: CommitPoint = CommitPoint()
    unfolded: JournalTally | None = None
    requests: Mapping[str, RequestState] = field(default_factory=dict)
    ahead: tuple[str, ...] = ()
    reached: str = ""


def under_way(state: SourceState) -> Iterable[str]:
    """Yield the files that a run has taken and not finished."""
    yield from state.retries
    yield from (entry.path for entry in state.queue)
    yield from (entry.path for batch in state.in_flight for entry in batch.files)


def checkpoint_path(source_id: str) -> str:
    """Return where a source's checkpoint is, relative to the table."""
    return StatePaths(source_id).checkpoint

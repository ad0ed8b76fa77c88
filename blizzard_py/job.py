"""The contract of an ingest job: what it is told, and what it reports.

These values travel to Spark executors inside the job's closure, so they are
plain, picklable and free of pydantic. Storage options may hold secrets: their
``repr`` is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from blizzard_core.bounds import DIRECTORIES, EXPANSION, LETTERS
from blizzard_core.settings.schema import FieldType, TimeUnit, UnexpectedFields
from blizzard_core.settings.sources import MetadataColumn, OnBadRecord
from blizzard_core.settings.tables import ParquetCompression
from blizzard_core.storage.protocol import StorageOptions
from blizzard_py.reading import Reading, ReadMarks


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One column, or a value inside one.

    ``children`` are a struct's fields, a list's one item or a map's one value.
    ``precision`` and ``scale`` count for decimals, ``unit`` for timestamps and
    ``coerce`` (any value, as its JSON text) for strings.
    """

    name: str
    type: FieldType
    nullable: bool
    children: tuple[FieldSpec, ...] = ()
    precision: int = 0
    scale: int = 0
    unit: TimeUnit = "iso"
    coerce: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A storage root and the options to open it with."""

    uri: str
    options: StorageOptions = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Some components of a row's directory, from one of its columns.

    With ``template`` (strftime, UTC) they are made from that timestamp; without it
    the component is ``key=`` and the value itself, percent-encoded.
    """

    column: str
    template: str = ""
    key: str = ""

    @property
    def moves(self) -> bool:
        """Return whether the value stands in the directory only: files then lack the column."""
        return not self.template and self.key == self.column


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column that each file is sorted by; null comes last either way."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Limits of one file: bytes for each byte stored, letters, directories of the table."""

    expansion: int = EXPANSION
    letters: int = LETTERS
    directories: int = DIRECTORIES


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """The part of a job that is the same for every batch of a source.

    With ``partition_rules`` each row goes to the directory that they give for it, null
    to ``key=__HIVE_DEFAULT_PARTITION__``. Without them every file brings its directory
    along in `JobFile.partition`, made from ``partition_template`` if there is one.
    ``file_bytes`` is when a file is full, as stored; ``row_group_bytes`` counts Arrow
    data in memory.

    ``deduplicate_by`` and ``transform`` (a Spark SQL query over ``source``) are applied to the
    records of a batch in that order. With ``unit_column`` rows say which slice they are of
    (`blizzard_core.handover.groups.UNIT_COLUMN`), and no file holds rows of two. With
    ``emitted_batch`` rows of a query over event time say which batch they came out with. With
    ``evolves`` unexpected fields are reported with values, but for those that are ``left_out`` for
    good.
    """

    source: Place
    sink: Place
    fields: tuple[FieldSpec, ...]
    parquet_compression: ParquetCompression
    file_bytes: int
    row_group_bytes: int = 64 << 20
    partition_template: str = ""
    partition_rules: tuple[PartitionRule, ...] = ()
    sort_by: tuple[SortKey, ...] = ()
    on_bad_record: OnBadRecord = "quarantine_record"
    max_bad_fraction: float = 0.1
    bounds: FileBounds = FileBounds()
    metadata_columns: tuple[MetadataColumn, ...] = ()
    unexpected_fields: UnexpectedFields = "ignore"
    fast_path: bool = True
    transform: str = ""
    deduplicate_by: tuple[str, ...] = ()
    unit_column: bool = False
    emitted_batch: bool = False
    evolves: bool = False
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFile:
    """A source file and, unless rows decide it, the table directory its rows go to."""

    path: str
    size: int
    partition: str = ""


@dataclass(frozen=True, slots=True)
class IngestJob:
    """One attempt at one batch.

    ``staging`` is the directory (relative to the table) that outputs are written
    below; ``output_prefix`` starts every output id: ``pipeline/source/batch/attempt``.
    ``started_ts`` is when the batch began, the same for all its attempts. With ``reading``
    the files are items that a connection reads.
    """

    settings: IngestSettings
    staging: str
    output_prefix: str
    files: tuple[JobFile, ...]
    started_ts: float = 0.0
    reading: Reading | None = None


class Engine(Protocol):
    """Runs ingest jobs. The product's is Spark; a direct one serves tests."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Run the job to its end and report every file of it exactly once.

        Raises `EngineError` if the job failed as a whole and `Cancelled` if
        `cancel` ended it. In both cases nothing of it counts. A job with a `Reading` fails for
        whatever any of its items fails for: with `SourceError` or `PipelineStopped` where that
        will be so again; items that are read apart fail alone.
        """

    def cancel(self, output_prefix: str) -> None:
        """End the running job with that prefix soon; no effect if there is none."""

    def progress(self, output_prefix: str) -> float | None:
        """Return how much of the running job with that prefix is done, 0 to 1; None if unknown.

        For people who wait. From any thread, and never raises.
        """


# The stage of a file whose rows may be in or not: outputs of its batch are lost.
ROWS_UNKNOWN = "rows_unknown"

Outcome = Literal["ingested", "quarantined", "retry", "reported"]


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """The outcome of one source file in one batch.

    * ``ingested``: all its records are rows of the batch's outputs (``rows`` may
      be 0), and ``bad_rows`` lines that are none are letters of the batch;
    * ``quarantined``: none of its rows are; ``error`` says why for ever;
    * ``retry``: none of its rows are, and trying again may help;
    * ``reported``: none of its rows are: it came late, and is left where it is.

    ``bytes_read`` counts decompressed bytes. ``stage`` says where it failed:
    ``read``, ``decompress``, ``parse``, ``partition``, ``transform``, ``late``, ``publish``,
    ``rows_unknown``. ``error`` of an ingested file is that of its first bad line.
    """

    path: str
    outcome: Outcome
    rows: int = 0
    bytes_read: int = 0
    error: str = ""
    stage: str = ""
    bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class UnexpectedField:
    """A field of records that no column takes, by its name as it is told.

    ``path`` is a file that has it. ``values`` are JSON texts of its values, all that a type can
    be told from, where columns are made of such fields; else there are none.
    """

    name: str
    path: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """One Parquet file that an ingest job wrote and reported.

    ``staged`` is its path relative to the table; ``partition`` the directory
    below the table that it belongs in (``""`` for none); ``size`` in bytes;
    ``output_id`` stands in its key-value metadata as ``blizzard.output_id``. ``unit`` is the
    slice that all its rows are of, if they are of one.
    """

    staged: str
    partition: str
    rows: int
    size: int
    output_id: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class StagedBadRecords:
    """Bad records that a task staged: an NDJSON object and the files its lines are of.

    ``files`` are pairs of path and number of lines, in the object's order.
    """

    staged: str
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The successful task attempts' reports, and nothing else.

    Objects in staging that no report names do not count: a dying task can
    leave a valid but incomplete file behind. ``rows_dropped`` is by how many rows
    a transform and the removal of duplicates made the outputs fewer than the
    records of ``files``; below zero if the transform made more of them. ``marks`` are those of
    a `Reading`'s items. ``unexpected`` are fields of the rows without a column, each once.
    """

    outputs: tuple[StagedOutput, ...]
    files: tuple[FinishedFile, ...]
    tasks: int
    letters: tuple[StagedBadRecords, ...] = ()
    rows_dropped: int = 0
    marks: tuple[ReadMarks, ...] = ()
    unexpected: tuple[UnexpectedField, ...] = ()

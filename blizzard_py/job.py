"""The contract of an ingest job: its settings, its files and its result.

These values travel to Spark executors inside the job's closure, so they are plain and picklable.
Storage options may hold secrets: their ``repr`` is empty. Each start of a query loads this module
in processes of Spark that read no configuration, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from blizzard_core.limits import DIRECTORIES, EXPANSION, LETTERS
from blizzard_core.storage.protocol import StorageOptions
from blizzard_py.reading import Reading, ReadMarks

if TYPE_CHECKING:
    from blizzard_core.settings.formats import FileFormat
    from blizzard_core.settings.schema import FieldType, TimeUnit, UnexpectedFields
    from blizzard_core.settings.sources import MetadataColumn, OnBadRecord
    from blizzard_core.settings.tables import ParquetCompression

# The columns with a record's position, which no two records in batches of one source share.
POSITION: tuple[MetadataColumn, MetadataColumn] = ("_source_file", "_source_line")
# The size of a file between two jobs of a batch. A task of the later one reads whole files.
_STAGED_FILE_BYTES = 32 << 20


def _lines() -> FileFormat:
    """Return the default format, loaded where it is used: configurations need much more."""
    from blizzard_core.settings.formats import NdjsonOptions  # noqa: PLC0415  # see above

    return NdjsonOptions()


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One column, or a value inside one.

    ``children`` are a struct's fields, a list's one item or a map's one value. ``precision`` and
    ``scale`` count for decimals, ``unit`` for timestamps and ``coerce`` (any value, as its JSON
    text) for strings. ``source`` is the name in the records, if it is another one.
    """

    name: str
    type: FieldType
    nullable: bool
    children: tuple[FieldSpec, ...] = ()
    precision: int = 0
    scale: int = 0
    unit: TimeUnit = "iso"
    coerce: bool = False
    source: str = ""

    @property
    def input_name(self) -> str:
        """The name in the records."""
        return self.source or self.name

    @property
    def as_read(self) -> FieldSpec:
        """The same with the names in the records, at every level."""
        children = as_read(self.children)
        if not self.source and children is self.children:
            return self
        return replace(self, name=self.input_name, source="", children=children)


def as_read(fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
    """Return columns with the names in the records; themselves if these are the columns' names."""
    found = tuple(spec.as_read for spec in fields)
    return fields if all(a is b for a, b in zip(found, fields, strict=True)) else found


@dataclass(frozen=True, slots=True)
class Place:
    """A storage root and the options to open it with."""

    uri: str
    options: StorageOptions = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Some components of a row's directory, from one of its columns.

    With ``template`` (strftime, UTC) they are made from that timestamp; without it the component
    is ``key=`` and the value itself, percent-encoded.
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
class FileLimits:
    """Limits of one source file.

    ``expansion`` is the number of decompressed bytes for each stored byte, ``letters`` that of its
    dead letters, and ``directories`` that of the table's directories that its rows go to.
    """

    expansion: int = EXPANSION
    letters: int = LETTERS
    directories: int = DIRECTORIES


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of a source's records, and what happens to other fields.

    ``unexpected_fields`` is the rule for a field without a column. With ``evolves`` such fields
    are reported with their values, from which the driver makes columns. Fields that are
    ``left_out`` never become columns and are not reported. ``fast_path`` allows the compiled
    parser; the rows are the same without it. The columns ``of_table`` belong to a table of many
    files, each of which may lack some, even all.
    """

    fields: tuple[FieldSpec, ...]
    unexpected_fields: UnexpectedFields = "ignore"
    evolves: bool = False
    left_out: tuple[str, ...] = ()
    fast_path: bool = True
    of_table: bool = False

    @property
    def as_read(self) -> RowSchema:
        """The same with the names in the records."""
        fields = as_read(self.fields)
        return self if fields is self.fields else replace(self, fields=fields)


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """The columns that Blizzard adds to those of the records.

    ``metadata`` are the columns with a row's origin. With ``unit`` each row names its slice
    (`blizzard_core.handover.groups.UNIT_COLUMN`), by which rows are replaced, and no file holds
    rows of two slices. With ``emitted_batch`` each row of a query over event time names the batch
    that published it. Columns of ``path`` have values of the file's path; see ``path_template``.
    """

    metadata: tuple[MetadataColumn, ...] = ()
    path: tuple[FieldSpec, ...] = ()
    path_template: str = ""
    unit: bool = False
    emitted_batch: bool = False

    def with_metadata(self, more: Iterable[MetadataColumn]) -> AddedColumns:
        """Return the columns with more columns of the origin."""
        return replace(self, metadata=tuple(dict.fromkeys((*self.metadata, *more))))


@dataclass(frozen=True, slots=True)
class SqlSteps:
    """The steps that Spark SQL applies to the accepted records of a batch, in this order.

    The first record of each key stays, where ``deduplicate_by`` names the key's columns. Then
    ``transform`` is run, a query over the view ``source``. Without either, a batch is one job.
    """

    deduplicate_by: tuple[str, ...] = ()
    transform: str = ""


@dataclass(frozen=True, slots=True)
class ErrorTolerance:
    """The errors in source files that a job accepts.

    ``on_bad_record`` is the rule for a record that does not fit. A file fails if more than
    ``max_bad_fraction`` of its records (0 to 1) are bad, or if it exceeds one of its ``limits``.
    """

    on_bad_record: OnBadRecord = "quarantine_record"
    max_bad_fraction: float = 0.1
    limits: FileLimits = FileLimits()


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """The form of the Parquet files, and the directories of the table that they go to.

    A file is full at ``file_bytes``, as stored. A row group is full at ``row_group_bytes`` of
    Arrow data in memory. The rows of each file are in the order of ``sort_by``.

    With ``partition_rules`` each row decides its directory; null goes to
    ``key=__HIVE_DEFAULT_PARTITION__``. Without them each source file brings its directory in
    `JobFile.partition`, made from ``partition_template`` (strftime) if there is one.
    """

    compression: ParquetCompression
    file_bytes: int
    row_group_bytes: int = 64 << 20
    partition_template: str = ""
    partition_rules: tuple[PartitionRule, ...] = ()
    sort_by: tuple[SortKey, ...] = ()

    def for_staging(self) -> OutputLayout:
        """Return the layout of files that a later job of the batch reads, and none publishes."""
        return replace(
            self,
            compression="lz4",
            file_bytes=_STAGED_FILE_BYTES,
            partition_template="",
            partition_rules=(),
            sort_by=(),
        )


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """The part of a job that is the same for every batch of a source.

    A function takes only the part that it needs. Rows are made in this order: records of
    ``source``, in its ``format``, get the columns of ``schema`` within the ``tolerance`` for
    errors, then the ``added_columns``, then pass the ``sql`` steps, and are written to ``sink`` in
    its ``layout``.
    """

    source: Place
    sink: Place
    schema: RowSchema
    layout: OutputLayout
    added_columns: AddedColumns = AddedColumns()
    format: FileFormat = field(default_factory=_lines)
    sql: SqlSteps = SqlSteps()
    tolerance: ErrorTolerance = ErrorTolerance()

    def with_fields(self, fields: Iterable[FieldSpec]) -> IngestSettings:
        """Return the settings with other columns of the records."""
        return replace(self, schema=replace(self.schema, fields=tuple(fields)))


@dataclass(frozen=True, slots=True)
class JobFile:
    """A source file and, unless rows decide it, the table directory its rows go to."""

    path: str
    size: int
    partition: str = ""


@dataclass(frozen=True, slots=True)
class IngestJob:
    """One attempt at one batch.

    ``staging`` is the directory (relative to the table) that outputs are written below;
    ``output_prefix`` starts every output id: ``pipeline/source/batch/attempt``. ``started_ts`` is
    when the batch began, the same for all its attempts. With ``reading`` the files are items that a
    connection reads.
    """

    settings: IngestSettings
    staging: str
    output_prefix: str
    files: tuple[JobFile, ...]
    started_ts: float = 0.0
    reading: Reading | None = None

    @property
    def without_items(self) -> IngestJob:
        """The same for tasks that read none of its files and items."""
        return replace(self, files=(), reading=None)


class Engine(Protocol):
    """Runs ingest jobs. The product's is Spark; a direct one serves tests."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Run the job to its end and report every file of it exactly once.

        Raises `EngineError` if the job failed as a whole and `Cancelled` if `cancel` ended it. In
        both cases nothing of it counts. A job with a `Reading` fails for whatever any of its items
        fails for: with `SourceError` or `PipelineStopped` where that will be so again; items that
        are read apart fail alone.
        """

    def cancel(self, output_prefix: str) -> None:
        """End the running job with that prefix soon; no effect if there is none."""

    def progress(self, output_prefix: str) -> float | None:
        """Return how much of the running job with that prefix is done, 0 to 1; None if unknown.

        For people who wait. From any thread, and never raises.
        """

    def session(self) -> Any:
        """Return the Spark session, started if there is none; for modules that know Spark."""


# The stage of a file whose rows may be in or not: outputs of its batch are lost.
ROWS_UNKNOWN = "rows_unknown"
# The stage of an item that was left to another run, as its outcome says.
LEFT_STAGE = "left"

Outcome = Literal["ingested", "quarantined", "retry", "reported"]


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """The outcome of one source file in one batch.

    * ``ingested``: all its records are rows of the batch's outputs (``rows`` may be 0), and
      ``bad_rows`` lines that are none are letters of the batch;
    * ``quarantined``: none of its rows are; ``error`` says why for ever;
    * ``retry``: none of its rows are, and trying again may help;
    * ``reported``: none of its rows are: it came late, and is left where it is.

    ``bytes_read`` counts decompressed bytes. ``stage`` says where it failed: ``read``,
    ``decompress``, ``parse``, ``partition``, ``transform``, ``late``, ``publish`` or
    ``rows_unknown``. ``error`` of an ingested file is that of its first bad line. ``row_groups``
    says how many were copied, and why others were decoded; empty unless the source copies them.
    """

    path: str
    outcome: Outcome
    rows: int = 0
    bytes_read: int = 0
    error: str = ""
    stage: str = ""
    bad_rows: int = 0
    row_groups: str = ""


@dataclass(frozen=True, slots=True)
class UnexpectedField:
    """A field of records that no column takes, by the name that is shown.

    ``path`` is a file that has it. Where columns are made of such fields, ``values`` are JSON texts
    of its values. If files name its type, ``types`` are columns of it, several only if no column
    holds the values of all. None is of files in which only the values have one.
    """

    name: str
    path: str
    values: tuple[str, ...] = ()
    types: tuple[FieldSpec | None, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """One Parquet file that an ingest job wrote and reported.

    ``staged`` is its path relative to the table, ``partition`` its directory below the table (or
    ``""``), ``size`` in bytes, ``output_id`` the ``blizzard.output_id`` of its key-value metadata.
    ``unit`` is the slice that all its rows are of, if any.
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

    Objects in staging that no report names do not count: a dying task can leave a valid but
    incomplete file behind. ``rows_dropped`` is by how many rows a transform and the removal of
    duplicates made the outputs fewer than the records of ``files``; below zero if the transform
    made more of them. ``marks`` are those of a `Reading`'s items. ``unexpected`` are fields of the
    rows without a column, each once.
    """

    outputs: tuple[StagedOutput, ...]
    files: tuple[FinishedFile, ...]
    tasks: int
    letters: tuple[StagedBadRecords, ...] = ()
    rows_dropped: int = 0
    marks: tuple[ReadMarks, ...] = ()
    unexpected: tuple[UnexpectedField, ...] = ()

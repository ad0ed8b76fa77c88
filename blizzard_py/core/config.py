"""The settings of the one YAML file that both daemons read, and what each may be.

Every default stands beside its field. `blizzard_py.core.configfile` reads the
file; what a single setting or block can get wrong is checked here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from blizzard_py.core.partitionby import PartitionBy
from blizzard_py.core.schemasettings import COLUMNS, SchemaSettings
from blizzard_py.core.settingsbase import Settings

SourceCompression = Literal["auto", "gzip", "zstd", "none"]
ParquetCompression = Literal["snappy", "zstd", "lz4", "gzip", "uncompressed"]
OnBadRecord = Literal["quarantine_record", "quarantine_file", "fail"]
MetadataColumn = Literal["_source_file", "_source_line", "_ingested_at"]

_SORTABLE_TYPES = frozenset(
    {"string", "int32", "int64", "float32", "float64", "boolean", "timestamp", "date"}
)

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]

# What the example configuration shows.
BY_DATE = {"prefix_template": "date=%Y-%m-%d", "column": "time", "types": {"date": "date"}}


# strftime codes of fixed width whose text sorts in time.
_SORTABLE_CODES = frozenset({"%Y", "%m", "%d", "%j", "%F", "%H", "%%"})


class PartitionFilter(Settings):
    """Which partitions a cold start looks at.

    ``prefix_template`` is a strftime template such as ``date=%Y-%m-%d/hour=%H``;
    ``lookback`` counts back from now in the template's finest unit: hours, days,
    months or years. Without ``lookback`` everything is read. The floor moves
    with time, but never over a file that was found and is not done.
    """

    prefix_template: str = Field(examples=["date=%Y-%m-%d/hour=%H"])
    """A strftime template of fixed width, as the folders are named."""
    lookback: int | None = Field(default=None, ge=0, examples=[48])
    """How far back, in the finest unit of the template; without it: everything."""

    @model_validator(mode="after")
    def _sorts_in_time(self) -> Self:
        codes = re.findall(r"%-?[A-Za-z%]", self.prefix_template)
        odd = [code for code in codes if code not in _SORTABLE_CODES]
        if odd:
            known = " ".join(sorted(_SORTABLE_CODES))
            raise ValueError(f"prefix_template has {odd[0]}, which does not sort; use {known}")
        if not {"%Y", "%F"} & set(codes):
            raise ValueError("prefix_template must contain the year (%Y or %F)")
        if "" in self.prefix_template.split("/"):
            raise ValueError("prefix_template must not begin or end with / or have two in a row")
        return self

    @property
    def depth(self) -> int:
        """How many components a partition has."""
        return self.prefix_template.count("/") + 1


class CheckpointSettings(Settings):
    """How much work may lie between two saves; a batch never exceeds any of the three.

    ``interval_secs`` bounds a batch by the throughput of the one before it.
    """

    interval_files: int = Field(default=100, ge=1)
    """Files in a batch."""
    interval_secs: float = Field(default=60, gt=0)
    """How long a batch may take, by the throughput of the one before it."""
    max_bytes_per_batch: int = Field(default=1 << 30, ge=1)
    """Stored bytes of a batch's files."""


class SourceSettings(Settings):
    """One directory that NDJSON files arrive in.

    ``id`` names its state instead of ``{pipeline}_{source}``, so that state survives a
    rename. Give it before the rename, with the name that the state has.
    A name of a state with `_backfill_` in it is refused: it means a backfill of another
    source.
    ``partition_depth`` is how many leading folders make a partition; where there is a
    ``partition_filter``, it is the number of components of its template. Files in
    partitions whose name says a time more than ``max_ahead_secs`` ahead of now are left
    alone until then. ``late_files`` is what becomes of files that appear below the
    watermark after the grace period: ``quarantine`` writes each a dead letter, from which
    it can be replayed, ``ingest`` takes it, ``report`` only tells of it. On a local disk
    links to directories below ``source_uri`` are not followed.
    """

    source_uri: str = Field(validation_alias="source_uri", examples=["${BUCKET:-s3://raw}/events/"])
    """Where the files arrive; `path` is accepted too."""
    id: Name | None = Field(default=None, examples=["events_main"])
    """Names its state; by default `{pipeline}_{source}`."""
    use_watermark: bool = True
    """false: keep the set of names done, for names that do not sort."""
    compression: SourceCompression = "auto"
    """auto goes by the name's ending."""
    poll_interval_secs: float = Field(default=60, gt=0)
    """From one look for new files to the next."""
    partition_filter: PartitionFilter | None = Field(default=None, examples=[{"lookback": 48}])
    """Where a cold start begins, and how deep partitions are."""
    partition_depth: int | None = Field(default=None, ge=0, le=16, examples=[2])
    """By default from the template, else from the first file in a folder."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Of each key before a date; older ones are closed; a poll costs a LIST for each."""
    grace_period_secs: Annotated[float, Field(ge=0)] | Literal["auto"] = 300
    """How long a file may appear below one that was seen; auto: as measured."""
    min_age_secs: float = Field(default=0, ge=0)
    """Leave younger files alone."""
    max_ahead_secs: float = Field(default=172_800, ge=0)
    """Leave partitions alone that are named for a later time than this ahead."""
    late_sweep_interval_secs: float = Field(default=86_400, ge=0)
    """From one full listing for later files to the next; 0: never."""
    late_files: Literal["report", "quarantine", "ingest"] = "quarantine"
    """What becomes of files that come after the grace period."""
    order_guard: Literal["warn", "fail", "off"] = "warn"
    """What to do about names that do not sort in time."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """No batch exceeds any of these."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """For the store; what is not given comes from its standard credential chain."""

    @model_validator(mode="before")
    @classmethod
    def _path_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and "path" in data:
            if "source_uri" in data:
                raise ValueError("give source_uri or path, not both")
            data = {**data, "source_uri": data["path"]}
            del data["path"]
        return data

    @field_validator("partition_depth")
    @classmethod
    def _depth_is_the_templates(cls, depth: int | None, info: ValidationInfo) -> int | None:
        """A floor that is deeper than what it closes would close only a part of it."""
        known = info.data.get("partition_filter")
        if depth is not None and known is not None and depth != known.depth:
            raise ValueError(
                f"must be {known.depth}, the number of components of"
                " partition_filter.prefix_template; leave it out, or give the template as many"
                " components as a partition has"
            )
        return depth


class SortColumn(Settings):
    """One column that files are sorted by; in YAML ``-column`` means descending."""

    column: str = Field(min_length=1)
    """A field of the schema."""
    descending: bool = False
    """The highest value first."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"column": data.removeprefix("-"), "descending": data.startswith("-")}
        return data


class SinkSettings(Settings):
    """The Delta table's directory, and how Parquet files in it are made.

    A file is closed when another row group would take it further from
    ``file_size_mb`` than it is. ``row_group_size_bytes`` counts rows as they lie in
    memory (Arrow), not as they are stored, since it is what bounds a task's memory:
    64 MiB there are 10 to 30 MB of snappy Parquet. Each file is sorted by ``sort_by``
    as a whole, at the price of local disk, memory and a third more time.

    ``metadata_columns`` adds columns that say where a row comes from:
    ``_source_file`` (its URI), ``_source_line`` (from 1), ``_ingested_at`` (when
    its batch began).
    """

    table_uri: str = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    file_size_mb: int = Field(default=128, ge=1, le=16_384)
    """As stored; files come out close to it."""
    row_group_size_bytes: int = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    """In memory, before encoding and compression."""
    compression: ParquetCompression = "snappy"
    """Of Parquet pages; `none` means `uncompressed`."""
    metadata_columns: tuple[MetadataColumn, ...] = ()
    """Of `_source_file`, `_source_line`, `_ingested_at`."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """How the table is partitioned; without it, it is not."""
    sort_by: list[SortColumn] = Field(
        default_factory=list, max_length=8, examples=[["user", "-time"]]
    )
    """Within each file; `-` in front: descending."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """For the store; what is not given comes from its standard credential chain."""

    @model_validator(mode="before")
    @classmethod
    def _none_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("compression") == "none":
            data = {**data, "compression": "uncompressed"}
        return data


class ErrorSettings(Settings):
    """What happens to a record and to a file that fails.

    ``on_bad_record``: a line that is not a record of the schema goes to the
    dead-letter queue alone (``quarantine_record``), takes its file along
    (``quarantine_file``) or stops the pipeline before anything of its batch is
    passed over (``fail``). A file of which more than ``max_bad_fraction`` (of the
    lines that are not blank) is bad is quarantined whole: one in ten, because
    that is no slip any more but a wrong file or a wrong schema. 1 sets no limit.

    ``max_retries`` counts further tries after a failure that may pass (a
    time-out, a 5xx); then the file is quarantined. ``max_failures`` stops the
    pipeline before that many files have been quarantined since its start; 0
    sets no limit, and files that were deleted do not count. ``dlq_path`` defaults
    to ``_blizzard/dlq`` in the table.
    """

    on_bad_record: OnBadRecord = "quarantine_record"
    """The line alone, its whole file, or stop the pipeline."""
    max_bad_fraction: float = Field(default=0.1, ge=0, le=1)
    """A file with more bad lines is quarantined whole; 1: no limit."""
    max_failures: int = Field(default=0, ge=0)
    """Stop the pipeline at so many bad files; 0: never."""
    max_retries: int = Field(default=3, ge=0)
    """Further tries for a file that cannot be read."""
    dlq_path: str | None = Field(default=None, examples=["s3://lake/dlq"])
    """Where dead letters go; by default `_blizzard/dlq` in the table."""


class PipelineSettings(Settings):
    """Sources that feed one table.

    ``deduplicate_by`` keeps one record of each batch for every value of these fields,
    the first by path and line; a record with a null in them is always kept.
    ``transform`` is a Spark SQL query over ``source``, the records that are left. What
    a row becomes may depend on that row alone, since batches are cut anywhere; its
    columns are the table's.
    """

    sources: dict[Name, SourceSettings] = Field(min_length=1, examples=["main"])
    """By names of your choice; each has a checkpoint of its own."""
    sink: SinkSettings
    """The table that all of them feed."""
    schema_: SchemaSettings = Field(alias="schema", examples=[{"fields": COLUMNS}])
    """docs/schema.md has the table of types."""
    deduplicate_by: list[str] = Field(default_factory=list)
    """Fields; within a batch the first record of a key stays."""
    transform: str | None = Field(
        default=None,
        min_length=1,
        examples=["SELECT time, upper(user) AS user, added FROM source"],
    )
    """A query over `source`, row by row; docs/engine.md."""
    error_handling: ErrorSettings = ErrorSettings()
    """What happens to records and files that fail."""

    @model_validator(mode="after")
    def _metadata_columns_fit(self) -> Self:
        taken = {field.name.lower() for field in self.schema_.fields}
        # Partition keys need no check: they may not begin with an underscore, as all of these do.
        for name in self.sink.metadata_columns:
            if name in taken:
                raise ValueError(
                    f"sink.metadata_columns {name!r} is given twice or is also a field of the"
                    " schema; leave it out or rename the field"
                )
            taken.add(name)
        return self

    @model_validator(mode="after")
    def _keys_are_fields(self) -> Self:
        types = self.field_types
        for place, name in enumerate(self.deduplicate_by):
            if types.get(name) == "map":
                raise ValueError(f"deduplicate_by names {name!r}: maps cannot be compared")
            if name not in types and not self.schema_.infer:
                raise ValueError(
                    f"deduplicate_by names {name!r}, which is not a field of the schema"
                    " (duplicates are removed before the transform)"
                )
            if name in self.deduplicate_by[:place]:
                raise ValueError(f"deduplicate_by names {name!r} twice")
        return self

    @model_validator(mode="after")
    def _output_fits(self) -> Self:
        if self.transform is not None:
            # What a transform gives is for Spark to say: `blizzard validate` asks it.
            return self
        fields = self.field_types
        by = self.sink.partition_by
        for problem in [] if by is None else by.problems(fields):
            raise ValueError(f"sink.partition_by {problem}")
        moved = {c.column for c in by.columns if c.replaces_column} if by else set()
        seen: set[str] = set()
        for key in self.sink.sort_by:
            kind = fields.get(key.column)
            if kind is None:
                raise ValueError(f"sink.sort_by column {key.column!r} is not a field of the schema")
            if kind not in _SORTABLE_TYPES:
                raise ValueError(
                    f"sink.sort_by column {key.column!r} is {kind}, which has no order"
                )
            if key.column in moved:
                raise ValueError(f"sink.sort_by column {key.column!r} is the same in all of a file")
            if key.column in seen:
                raise ValueError(f"sink.sort_by names {key.column!r} twice")
            seen.add(key.column)
        return self

    @property
    def field_types(self) -> dict[str, str]:
        """The declared fields and their types."""
        return {field.name: field.type for field in self.schema_.fields}


class OptimizeSettings(Settings):
    """Compaction of small files, every ``interval_secs``, to about ``target_size_mb``."""

    interval_secs: float = Field(default=3600, gt=0)
    """From one compaction to the next."""
    target_size_mb: int = Field(default=128, ge=1)
    """Files come out close to it."""


class VacuumSettings(Settings):
    """Deletion of files that the table let go, every ``interval_secs``.

    ``retention_hours`` is how long such a file is kept for readers of older
    versions; without it the table's own ``delta.deletedFileRetentionDuration``
    counts, which it may not be shorter than. Files that wait for their commit
    are never deleted.
    """

    interval_secs: float = Field(default=86_400, gt=0)
    """From one deletion to the next."""
    retention_hours: int | None = Field(default=None, ge=0, examples=[168])
    """By default the table's own; not shorter than that."""


class TableSettings(Settings):
    """One Delta table that Penguin commits to.

    ``file_pattern`` is a regular expression on the file name. By default every
    ``*.parquet`` counts whose name does not start with ``_``, ``.`` or ``part-``
    (other engines' OPTIMIZE writes ``part-`` files there).

    ``app_id`` is for a second instance beside the live one, a backfill: it keeps
    progress and quarantine of its own. ``partition_filter`` bounds how far back
    files are looked for. ``reconcile_interval_secs`` is how often the whole
    directory is compared with the log (0: never): what is younger than
    ``reconcile_horizon_secs`` is committed, what is older is reported.

    Files that carry Blizzard's output id, or whose path starts with one of
    ``own_prefixes`` (``""`` for the whole table), are committed at once. Others may
    be what another engine has written and not yet committed: they wait until they
    are ``foreign_min_age_secs`` old, and without it are not taken at all.

    ``strict_types`` refuses files with a narrower type than the table's, which older
    readers refuse, too. ``max_new_columns`` bounds what one commit may add.

    ``delta_checkpoint_interval`` makes a log checkpoint every so many versions and
    ``delta_log_cleanup`` says whether log entries past their retention are
    removed; without them the table's own properties decide.
    """

    table_uri: str = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    poll_interval_secs: float = Field(default=10, gt=0)
    """From one look for new files to the next."""
    schema_evolution: Literal["merge", "strict", "overwrite"] = "merge"
    """Whether files may bring new columns, may not, or make the schema theirs."""
    file_pattern: str = r"(?![_.]|part-).*\.parquet"
    """A regular expression on the file name."""
    app_id: Name | None = Field(default=None, examples=["backfill"])
    """For a second instance beside the live one."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """By default that of the pipeline with this `table_uri`."""
    partition_filter: PartitionFilter | None = Field(
        default=None, examples=[{"prefix_template": "date=%Y-%m-%d", "lookback": 30}]
    )
    """How far back to look for files."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Older ones are closed; a poll costs a LIST for each."""
    grace_period_secs: float = Field(default=300, ge=0)
    """How long a file may appear below one that was seen."""
    reconcile_interval_secs: float = Field(default=3600, ge=0)
    """From one comparison of the directory with the log to the next; 0: never."""
    reconcile_horizon_secs: float = Field(default=172_800, ge=0)
    """Younger stragglers are committed, older ones reported."""
    max_files_per_commit: int = Field(default=1000, ge=1)
    """Files in one version of the table."""
    own_prefixes: list[str] = Field(default_factory=list)
    """Paths that no other engine writes to; `""` for all."""
    foreign_min_age_secs: float | None = Field(default=3600, ge=0)
    """Others' files wait that long; null: never taken."""
    strict_types: bool = False
    """true: no narrower types than the table's."""
    max_new_columns: int = Field(default=1000, ge=0)
    """That one commit may add."""
    delta_checkpoint_interval: int | None = Field(default=None, ge=1, examples=[100])
    """Versions from one to the next; by default the table's own property."""
    delta_log_cleanup: bool | None = Field(default=None, examples=[True])
    """By default the table's own property."""
    optimize: OptimizeSettings | None = None
    """Compaction of small files; off without it."""
    vacuum: VacuumSettings | None = None
    """Deletion of files that the table let go; off without it."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """By default those of the pipeline with this `table_uri`."""

    @model_validator(mode="after")
    def _pattern_compiles(self) -> Self:
        try:
            re.compile(self.file_pattern)
        except re.error as error:
            raise ValueError(f"file_pattern is not a regular expression: {error}") from error
        return self


class SparkSettings(Settings):
    """The Spark session.

    ``master`` is ``local[N]``, ``spark://host:7077``, ``k8s://https://host:443`` or, for
    Spark Connect, ``sc://host:15002``; see docs/engine.md. ``conf`` is Spark's own
    configuration and wins over ours.
    """

    master: str = "local[*]"
    """Or `spark://host:7077`, `k8s://https://host`, `sc://host:15002`; docs/engine.md."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark's own configuration, which wins over ours."""


class GlobalSettings(Settings):
    """Limits that all pipelines of a process share.

    ``shutdown_grace_secs`` is how long a batch may go on after SIGTERM before
    it is cancelled; keep it below the container's termination grace period.
    """

    total_concurrency: int = Field(default=8, ge=1, le=256)
    """Requests at the same time, per source."""
    poll_jitter_secs: float = Field(default=5, ge=0)
    """Polls are up to this much later, so that sources do not poll together."""
    shutdown_grace_secs: float = Field(default=25, ge=0)
    """Then a running batch is cancelled, to run again."""


class MetricsSettings(Settings):
    """Where the status page, ``/metrics``, ``/health`` and ``/ready`` are served: ``host:port``."""

    address: str = Field(pattern=r"^[^:\s]+:\d{1,5}$", examples=["0.0.0.0:9090"])
    """`host:port`."""


class Config(Settings):
    """The whole file."""

    pipelines: dict[Name, PipelineSettings] = Field(default_factory=dict, examples=["events"])
    """By names of your choice: letters, digits, `_`, `.` and `-`."""
    tables: dict[Name, TableSettings] = Field(default_factory=dict, examples=["events"])
    """What Penguin commits to; without it every sink is a table."""
    spark: SparkSettings = SparkSettings()
    """The master and what executors need: docs/engine.md."""
    global_: GlobalSettings = Field(default=GlobalSettings(), alias="global")
    """Limits that all pipelines of a process share."""
    metrics: MetricsSettings | None = None
    """Status page, /metrics, /health, /ready; off without it."""

"""The settings of the one YAML file that both daemons read, and what each may be.

Every default stands beside its field. `blizzard_py.core.configfile` reads the
file; what a single setting or block can get wrong is checked here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from blizzard_py.core.schemasettings import SchemaSettings
from blizzard_py.core.settingsbase import Settings

SourceCompression = Literal["auto", "gzip", "zstd", "none"]
ParquetCompression = Literal["snappy", "zstd", "lz4", "gzip", "none"]
OnBadRecord = Literal["quarantine_record", "quarantine_file", "fail"]
MetadataColumn = Literal["_source_file", "_source_line", "_ingested_at"]
PartitionType = Literal["string", "int32", "int64", "date", "timestamp"]

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]


# strftime codes of fixed width whose text sorts in time.
_SORTABLE_CODES = frozenset({"%Y", "%m", "%d", "%j", "%F", "%H", "%%"})


class PartitionFilter(Settings):
    """Which partitions a cold start looks at.

    ``prefix_template`` is a strftime template such as ``date=%Y-%m-%d/hour=%H``;
    ``lookback`` counts back from now in the template's finest unit: hours, days,
    months or years. Without ``lookback`` everything is read. The floor moves
    with time, but never over a file that was found and is not done.
    """

    prefix_template: str
    lookback: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _sorts_in_time(self) -> Self:
        codes = re.findall(r"%-?[A-Za-z%]", self.prefix_template)
        odd = [code for code in codes if code not in _SORTABLE_CODES]
        if odd:
            known = " ".join(sorted(_SORTABLE_CODES))
            raise ValueError(f"prefix_template has {odd[0]}, which does not sort; use {known}")
        if not {"%Y", "%F"} & set(codes):
            raise ValueError("prefix_template must contain the year (%Y or %F)")
        return self


class CheckpointSettings(Settings):
    """How much work may lie between two saves; a batch never exceeds any of the three.

    ``interval_secs`` bounds a batch by the throughput of the one before it.
    """

    interval_files: int = Field(default=100, ge=1)
    interval_secs: float = Field(default=60, gt=0)
    max_bytes_per_batch: int = Field(default=1 << 30, ge=1)


class SourceSettings(Settings):
    """One directory that NDJSON files arrive in."""

    source_uri: str = Field(validation_alias="source_uri")
    use_watermark: bool = True
    compression: SourceCompression = "auto"
    poll_interval_secs: float = Field(default=60, gt=0)
    partition_filter: PartitionFilter | None = None
    partition_depth: int | None = Field(default=None, ge=0, le=16)
    max_tracked_partitions: int = Field(default=64, ge=1)
    grace_period_secs: Annotated[float, Field(ge=0)] | Literal["auto"] = 300
    min_age_secs: float = Field(default=0, ge=0)
    late_sweep_interval_secs: float = Field(default=86_400, ge=0)
    late_files: Literal["report", "quarantine", "ingest"] = "report"
    order_guard: Literal["warn", "fail", "off"] = "warn"
    checkpoint: CheckpointSettings = CheckpointSettings()
    storage_options: Options = Field(default_factory=dict, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _path_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and "path" in data:
            if "source_uri" in data:
                raise ValueError("give source_uri or path, not both")
            data = {**data, "source_uri": data["path"]}
            del data["path"]
        return data


class PartitionBy(Settings):
    """How the table is partitioned.

    ``prefix_template`` is a strftime template of ``key=value`` components. The
    time comes from the timestamp column ``column`` of each row or, without it,
    from the source file's own partition. ``types`` gives partition columns a
    Delta type; by default ``%Y-%m-%d`` is a date and anything else a string.
    """

    prefix_template: str
    column: str | None = None
    types: dict[str, PartitionType] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_hive_style(self) -> Self:
        parts = self.prefix_template.split("/")
        keys = [part.partition("=")[0] for part in parts]
        if not all(part.partition("=")[0] and part.partition("=")[2] for part in parts):
            raise ValueError("prefix_template must be key=value components joined by /")
        if len(set(keys)) != len(keys):
            raise ValueError("prefix_template names a key twice")
        unknown = sorted(set(self.types) - set(keys))
        if unknown:
            raise ValueError(f"types names {unknown[0]!r}, which is not in prefix_template")
        return self

    @property
    def columns(self) -> dict[str, PartitionType]:
        """Partition column names in order, with their types."""
        found: dict[str, PartitionType] = {}
        for part in self.prefix_template.split("/"):
            key, _, value = part.partition("=")
            found[key] = self.types.get(key, "date" if value in ("%Y-%m-%d", "%F") else "string")
        return found


class SinkSettings(Settings):
    """The Delta table's directory, and how Parquet files in it are made.

    ``metadata_columns`` adds columns that say where a row comes from:
    ``_source_file`` (its URI), ``_source_line`` (from 1), ``_ingested_at`` (when
    its batch began).
    """

    table_uri: str
    file_size_mb: int = Field(default=128, ge=1)
    compression: ParquetCompression = "snappy"
    metadata_columns: tuple[MetadataColumn, ...] = ()
    partition_by: PartitionBy | None = None
    storage_options: Options = Field(default_factory=dict, repr=False)


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
    sets no limit. ``dlq_path`` defaults to ``_blizzard/dlq`` in the table.
    """

    on_bad_record: OnBadRecord = "quarantine_record"
    max_bad_fraction: float = Field(default=0.1, ge=0, le=1)
    max_failures: int = Field(default=0, ge=0)
    max_retries: int = Field(default=3, ge=0)
    dlq_path: str | None = None


class PipelineSettings(Settings):
    """Sources that feed one table.

    ``deduplicate_by`` keeps one record of each batch for every value of these fields,
    the first by path and line; a record with a null in them is always kept.
    ``transform`` is a Spark SQL query over ``source``, the records that are left. What
    a row becomes may depend on that row alone, since batches are cut anywhere; its
    columns are the table's.
    """

    sources: dict[Name, SourceSettings] = Field(min_length=1)
    sink: SinkSettings
    schema_: SchemaSettings = Field(alias="schema")
    deduplicate_by: list[str] = Field(default_factory=list)
    transform: str | None = Field(default=None, min_length=1)
    error_handling: ErrorSettings = ErrorSettings()

    @model_validator(mode="after")
    def _metadata_columns_fit(self) -> Self:
        taken = {field.name.lower() for field in self.schema_.fields}
        taken |= (
            {key.lower() for key in self.sink.partition_by.columns}
            if (self.sink.partition_by)
            else set()
        )
        for name in self.sink.metadata_columns:
            if name in taken:
                raise ValueError(
                    f"sink.metadata_columns {name!r} is given twice or is also a field of the"
                    " schema or a partition key; leave it out or rename the other"
                )
            taken.add(name)
        return self

    @model_validator(mode="after")
    def _keys_are_fields(self) -> Self:
        types = {field.name: field.type for field in self.schema_.fields}
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
    def _partitioning_fits(self) -> Self:
        by = self.sink.partition_by
        if by is None or self.transform is not None:
            # What a transform gives is for Spark to say: `blizzard validate` asks it.
            return self
        types = {field.name: field.type for field in self.schema_.fields}
        if by.column is not None and types.get(by.column) != "timestamp":
            raise ValueError(
                f"sink.partition_by.column {by.column!r} must be a timestamp field of the schema,"
                " declared in schema.fields"
            )
        lowered = {name.lower() for name in types}
        for key in by.columns:
            if key.lower() in lowered:
                raise ValueError(
                    f"sink.partition_by key {key!r} is also a field of the schema; rename one"
                )
        return self


class OptimizeSettings(Settings):
    """Compaction of small files, every ``interval_secs``, to about ``target_size_mb``."""

    interval_secs: float = Field(default=3600, gt=0)
    target_size_mb: int = Field(default=128, ge=1)


class VacuumSettings(Settings):
    """Deletion of files that the table let go, every ``interval_secs``.

    ``retention_hours`` is how long such a file is kept for readers of older
    versions; without it the table's own ``delta.deletedFileRetentionDuration``
    counts, which it may not be shorter than. Files that wait for their commit
    are never deleted.
    """

    interval_secs: float = Field(default=86_400, gt=0)
    retention_hours: int | None = Field(default=None, ge=0)


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

    ``delta_checkpoint_interval`` makes a log checkpoint every so many versions and
    ``delta_log_cleanup`` says whether log entries past their retention are
    removed; without them the table's own properties decide.
    """

    table_uri: str
    poll_interval_secs: float = Field(default=10, gt=0)
    schema_evolution: Literal["merge", "strict", "overwrite"] = "merge"
    file_pattern: str = r"(?![_.]|part-).*\.parquet"
    app_id: Name | None = None
    partition_by: PartitionBy | None = None
    partition_filter: PartitionFilter | None = None
    max_tracked_partitions: int = Field(default=64, ge=1)
    grace_period_secs: float = Field(default=300, ge=0)
    reconcile_interval_secs: float = Field(default=3600, ge=0)
    reconcile_horizon_secs: float = Field(default=172_800, ge=0)
    max_files_per_commit: int = Field(default=1000, ge=1)
    delta_checkpoint_interval: int | None = Field(default=None, ge=1)
    delta_log_cleanup: bool | None = None
    optimize: OptimizeSettings | None = None
    vacuum: VacuumSettings | None = None
    storage_options: Options = Field(default_factory=dict, repr=False)

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
    conf: dict[str, str] = Field(default_factory=dict, repr=False)


class GlobalSettings(Settings):
    """Limits that all pipelines of a process share.

    ``shutdown_grace_secs`` is how long a batch may go on after SIGTERM before
    it is cancelled; keep it below the container's termination grace period.
    """

    total_concurrency: int = Field(default=8, ge=1, le=256)
    poll_jitter_secs: float = Field(default=5, ge=0)
    shutdown_grace_secs: float = Field(default=25, ge=0)


class MetricsSettings(Settings):
    """Where the status page, ``/metrics``, ``/health`` and ``/ready`` are served: ``host:port``."""

    address: str = Field(pattern=r"^[^:\s]+:\d{1,5}$")


class Config(Settings):
    """The whole file."""

    pipelines: dict[Name, PipelineSettings] = Field(default_factory=dict)
    tables: dict[Name, TableSettings] = Field(default_factory=dict)
    spark: SparkSettings = SparkSettings()
    global_: GlobalSettings = Field(default=GlobalSettings(), alias="global")
    metrics: MetricsSettings | None = None

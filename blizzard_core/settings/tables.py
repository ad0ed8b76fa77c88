"""The settings of a table: how its files are written, and how it is committed to and cared for."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, Field, model_validator

from blizzard_core.bounds import NEW_COLUMNS
from blizzard_core.settings.base import Name, Options, Settings, Uri
from blizzard_core.settings.durations import DAY, HOUR, MINUTE, Seconds
from blizzard_core.settings.partitioning import PartitionBy
from blizzard_core.settings.sources import MetadataColumn, PartitionFilter

_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def _checked(uri: str) -> str:
    encoded = _ENCODED.search(uri)
    if encoded is not None:
        raise ValueError(
            f"holds {encoded[0]}, which deltalake reads as {unquote(encoded[0])!r}: the log would"
            " come into another directory than the data. Write the name as it is in the store,"
            f" as {unquote(uri)!r}; a directory whose name holds {encoded[0]} cannot be a table"
        )
    cut = next((sign for sign in "?#" if "://" in uri and sign in uri), None)
    if cut is not None:
        raise ValueError(
            f"holds {cut!r}, at which deltalake ends the path: the log would come into another"
            " directory than the data. Choose a directory without it"
        )
    return uri


TableUri = Annotated[Uri, AfterValidator(_checked)]


ParquetCompression = Literal["snappy", "zstd", "lz4", "gzip", "uncompressed"]

# What the example configuration shows.
BY_DATE = {"prefix_template": "date=%Y-%m-%d", "column": "time", "types": {"date": "date"}}


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
    its batch began); with ``event_time`` also ``_emitted_batch`` (the number of the batch
    that a row came out with).
    """

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    file_size_mb: int = Field(default=128, ge=1, le=16_384)
    """As stored; files come out close to it."""
    row_group_size_bytes: int = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    """In memory, before encoding and compression."""
    compression: ParquetCompression = "snappy"
    """Of Parquet pages; `none` means `uncompressed`."""
    metadata_columns: tuple[MetadataColumn | Literal["_emitted_batch"], ...] = ()
    """Of `_source_file`, `_source_line`, `_ingested_at`, `_emitted_batch`."""
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


class OptimizeSettings(Settings):
    """Compaction of small files, every ``interval``, to about ``target_size_mb``."""

    interval: Seconds = Field(default=HOUR, gt=0)
    """From one compaction to the next."""
    target_size_mb: int = Field(default=128, ge=1)
    """Files come out close to it."""


class VacuumSettings(Settings):
    """Deletion of files that the table let go, every ``interval``.

    ``retention`` is how long such a file is kept for readers of older
    versions; without it the table's own ``delta.deletedFileRetentionDuration``
    counts, which it may not be shorter than. Files that wait for their commit
    are never deleted.
    """

    interval: Seconds = Field(default=DAY, gt=0)
    """From one deletion to the next."""
    retention: Seconds | None = Field(default=None, ge=0, examples=["7d"])
    """By default the table's own; not shorter than that."""


class TableSettings(Settings):
    """One Delta table that Penguin commits to.

    ``file_pattern`` is a regular expression on the file name. By default every
    ``*.parquet`` counts whose name does not start with ``_``, ``.`` or ``part-``
    (other engines' OPTIMIZE writes ``part-`` files there).

    ``app_id`` is for a second instance beside the live one, a backfill: it keeps
    progress and quarantine of its own. ``partition_filter`` bounds how far back
    files are looked for. ``reconcile_interval`` is how often the whole
    directory is compared with the log (0: never): what is younger than
    ``reconcile_horizon`` is committed, what is older is reported.

    Files that carry Blizzard's output id, or whose path starts with one of
    ``own_prefixes`` (``""`` for the whole table), are committed at once. Others may
    be what another engine has written and not yet committed: they wait until they
    are ``foreign_min_age`` old, and without it are not taken at all.

    ``strict_types`` refuses files with a narrower type than the table's, which older
    readers refuse, too. ``max_new_columns`` bounds what one commit may add.

    ``delta_checkpoint_interval`` makes a log checkpoint every so many versions and
    ``delta_log_cleanup`` says whether log entries past their retention are
    removed; without them the table's own properties decide.
    """

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    poll_interval: Seconds = Field(default=10, gt=0)
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
    """Those with a date; older ones are closed; a poll costs a LIST for each."""
    grace_period: Seconds = Field(default=5 * MINUTE, ge=0)
    """How long a file may appear below one that was seen."""
    reconcile_interval: Seconds = Field(default=HOUR, ge=0)
    """From one comparison of the directory with the log to the next; 0: never."""
    reconcile_horizon: Seconds = Field(default=2 * DAY, ge=0)
    """Younger stragglers are committed, older ones reported."""
    max_files_per_commit: int = Field(default=1000, ge=1)
    """Files in one version of the table."""
    own_prefixes: list[str] = Field(default_factory=list)
    """Paths that no other engine writes to; `""` for all."""
    foreign_min_age: Seconds | None = Field(default=HOUR, ge=0)
    """Others' files wait that long; null: never taken."""
    strict_types: bool = False
    """true: no narrower types than the table's."""
    max_new_columns: int = Field(default=NEW_COLUMNS, ge=0)
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

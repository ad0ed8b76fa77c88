"""Settings of sources of files, and what all sources have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from blizzard_core.settings.base import (
    DAY,
    MINUTE,
    Name,
    Options,
    Seconds,
    Settings,
    Uri,
)
from blizzard_core.settings.event_time import SourceEventTime
from blizzard_core.settings.formats import FormatSettings, NdjsonOptions
from blizzard_core.settings.globs import PathColumnType, check_path_template, parse_all
from blizzard_core.settings.schema import OwnSchema
from blizzard_core.settings.store_use import (
    FULL_SCAN_SECS,
    FULL_SCAN_SECS_WITHOUT_WATERMARK,
    CleanSettings,
    ListCost,
    NotificationSettings,
    budget_of,
    clean_problem,
)
from blizzard_core.settings.time_formats import PartitionFilter, check_moment, moment_of
from blizzard_core.settings.units import FileUnits
from blizzard_core.storage.protocol import order_key

SourceCompression = Literal["auto", "gzip", "zstd", "bzip2", "xz", "lz4", "snappy", "zip", "none"]
OnBadRecord = Literal["quarantine_record", "quarantine_file", "fail"]
MetadataColumn = Literal["_source_file", "_source_line", "_ingested_at"]


class CheckpointSettings(Settings):
    """Limits of one batch. A batch exceeds none of them."""

    interval_files: int = Field(default=1000, ge=1)
    """Maximum number of files."""
    interval: Seconds = Field(default=MINUTE, gt=0)
    """Maximum duration, estimated from the previous batch of the process."""
    max_bytes_per_batch: int = Field(default=1 << 30, ge=1)
    """Maximum total size of the files, as stored."""


class SourceRangeSettings(Settings):
    """The range of names below the source's path that is read.

    Each end is a partition or a file, and includes all names that begin with it. The range is fixed
    at the first start.
    """

    from_: str | None = Field(default=None, alias="from", examples=["date=2023-01-01"])
    """First name; default: no lower end."""
    to: str | None = Field(default=None, examples=["date=2023-12-31"])
    """Last name; default: no upper end."""

    @field_validator("from_", "to")
    @classmethod
    def _is_below_the_path(cls, end: str | None) -> str | None:
        if end is None:
            return None
        name = end.strip("/")
        odd = "://" in end or not {".", ".."}.isdisjoint(name.split("/"))
        if odd or any("\ud800" <= character <= "\udfff" for character in name):
            raise ValueError("is a name below the source's path, without what comes before it")
        return name

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        first, last = self.from_ or "", self.to or ""
        if not (first or last):
            raise ValueError("give from, to or both; leave range out to read everything")
        # An end stands for all that begins with it.
        if last and order_key(first) > order_key(last) and not first.startswith(last):
            raise ValueError(f"from {first!r} sorts above to {last!r}; exchange them")
        return self


class CommonSource(Settings):
    """Settings of every source."""

    id: Name | None = Field(default=None, examples=["events_main"])
    """Name of its state; default `{pipeline}_{source}`. Before you rename a source, set it to the
    present name."""
    poll_interval: Seconds = Field(default=MINUTE, gt=0)
    """Time between polls."""

    has_files: ClassVar[bool] = False

    @property
    def as_files(self) -> SourceSettings | None:
        """The settings of a source of files; None for another kind."""
        return None

    @property
    def file_format(self) -> FormatSettings:
        """The format of its files, for another kind that of its replayed records."""
        return NdjsonOptions() if self.as_files is None else self.as_files.format


def _check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    parse_all(patterns)
    return tuple(dict.fromkeys(patterns))


Moment = Annotated[str, AfterValidator(check_moment)]
PathPatterns = Annotated[tuple[str, ...], AfterValidator(_check_patterns)]


class SourceAdvanced(Settings):
    """Batches, history, directory listing and unusual names."""

    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """Limits of one batch."""
    range: SourceRangeSettings | None = Field(
        default=None, examples=[{"from": "date=2023-01-01", "to": "date=2023-12-31"}]
    )
    """Read only these names; default: all."""
    compression: SourceCompression = "auto"
    """Name endings that are read; the file's first bytes decide how it is decompressed."""
    path_template: Annotated[str | None, AfterValidator(check_path_template)] = Field(
        default=None, examples=["*/{tenant}"]
    )
    """The first folders, with names of `path_columns` where a folder has no key."""
    modified_after: Moment | None = Field(default=None, examples=["2026-01-01T00:00:00Z"])
    """Read files that were modified at this time or later, and pass older ones for good."""
    modified_before: Moment | None = Field(default=None, examples=["2026-02-01T00:00:00Z"])
    """Read files that were modified before this time, and pass newer ones for good."""
    partition_depth: int | None = Field(default=None, ge=0, le=16, examples=[2])
    """Leading folders in a partition; default: as in the template, or in the first file."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Dated partitions that are listed, for each key before the date. Older ones are closed. Each
    costs at most one LIST a poll."""
    min_age: Seconds = Field(default=0, ge=0)
    """Minimum age of a file."""
    max_ahead: Seconds = Field(default=2 * DAY, ge=0)
    """Ignore partitions whose name is more than this in the future."""
    full_scan_interval: Seconds | None = Field(default=None, gt=0, examples=["1h"])
    """Time between scans of all partitions; default: each poll, or as the budget allows; with
    `notifications` 1h (1d without a watermark)."""
    list_price: float = Field(default=0.005, ge=0.000001)
    """Price of 1,000 LIST requests, in the currency of `max_list_cost`."""
    late_sweep_interval: Seconds = Field(default=DAY, ge=0)
    """Time between full listings for late files; 0: never."""
    order_guard: Literal["warn", "fail", "off"] = "warn"
    """Reaction to names that do not sort by time."""

    @property
    def modified_between(self) -> tuple[float, float]:
        """The modification times that are read, in epoch seconds: from the first, up to the second.

        All times without either setting.
        """
        first, end = self.modified_after, self.modified_before
        return (
            -math.inf if first is None else moment_of(first),
            math.inf if end is None else moment_of(end),
        )

    @model_validator(mode="after")
    def _reads_some_time(self) -> Self:
        first, end = self.modified_between
        if first >= end:
            raise ValueError("modified_after must be earlier than modified_before; exchange them")
        return self

    @field_validator("compression", mode="before")
    @classmethod
    def _brotli_has_no_checksum(cls, value: Any) -> Any:
        if isinstance(value, str) and value in {"brotli", "br"}:
            raise ValueError(
                "brotli is not read: it has no checksum, so damage would become rows; store the"
                " files as zstd or gzip"
            )
        return value


class SourceSettings(CommonSource):
    """A directory in which files arrive.

    Links to directories on a local disk are not followed.
    """

    kind: Literal["files"] = "files"
    """Files in a directory."""
    source_uri: Uri = Field(validation_alias="source_uri", examples=["${BUCKET:-s3://raw}/events/"])
    """The directory; `path` is an alias."""
    format: FormatSettings = Field(default=NdjsonOptions(), examples=["ndjson"])
    """Format of the files: a name, or a block of `type` and options."""
    include: PathPatterns = Field(default=(), examples=[["tenant=1?/**", "**/*.txt"]])
    """Paths that are read; default: all with an ending of the format. Others are not listed."""
    exclude: PathPatterns = Field(default=(), examples=[["**/tmp/**"]])
    """Paths that are not read."""
    path_columns: dict[str, PathColumnType] = Field(
        default_factory=dict, examples=[{"region": "string", "tenant": "int64"}]
    )
    """Columns from the path, with their types: from folders such as `region=eu`."""
    max_list_cost: ListCost | None = Field(default=None, examples=["5 USD/month"])
    """Most that LIST requests cost, or `1400 requests/hour`. Partitions with new files are scanned
    often, others seldom."""
    notifications: NotificationSettings | None = Field(
        default=None, examples=[{"uri": "https://sqs.eu-central-1.amazonaws.com/123456789012/raw"}]
    )
    """Scan where messages of the store say that a new file is."""
    use_watermark: bool = True
    """false: track every name instead, for names that do not sort by time."""
    partition_filter: PartitionFilter | None = Field(default=None, examples=[{"lookback": 48}])
    """Start of a cold start, and the depth of partitions."""
    grace_period: Annotated[Seconds, Field(ge=0)] | Literal["auto"] = Field(default=5 * MINUTE)
    """Time in which files may still appear below the watermark; `auto`: measured."""
    late_files: Literal["report", "quarantine", "ingest"] = "quarantine"
    """Files after the grace period: report them, dead-letter them, or ingest them."""
    complete_after: Seconds | None = Field(default=None, gt=0, examples=["1h"])
    """Certify a partition this long after the end of its day or hour (UTC), or after its last new
    file if its name has no time; default: never."""
    clean: CleanSettings | None = Field(
        default=None,
        examples=[{"mode": "archive", "archive_uri": "s3://archive/events"}],
    )
    """Archive, delete or tag files whose rows are in the table; default: never."""
    units: FileUnits | None = Field(default=None, examples=[{"cooldown": "7d"}])
    """Re-read changed files and replace their rows."""
    event_time: SourceEventTime | None = Field(default=None, examples=[{"delay": "5 minutes"}])
    """This source's own values, in a pipeline with `event_time`."""
    schema_: OwnSchema | None = Field(
        default=None,
        alias="schema",
        examples=[{"fields": [{"name": "amount", "type": "decimal(10,2)"}]}],
    )
    """Fields that only this source has, in a query over `event_time` with several sources."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Options of the store."""
    advanced: SourceAdvanced = Field(default_factory=SourceAdvanced)
    """Rarely needed."""

    has_files: ClassVar[bool] = True
    has_unit_column: ClassVar[bool] = False
    is_by_units: ClassVar[bool] = False

    @property
    def as_files(self) -> SourceSettings:
        """These settings."""
        return self

    @property
    def depth(self) -> int | None:
        """The number of a partition's components; None if the first scan finds it."""
        depth, known = self.advanced.partition_depth, self.partition_filter
        return known.depth if depth is None and known is not None else depth

    @property
    def lists_per_hour(self) -> float | None:
        """The LIST requests of an hour that the budget pays; None without one."""
        if self.max_list_cost is None:
            return None
        return budget_of(self.max_list_cost, self.advanced.list_price)

    @property
    def complete_interval(self) -> float | None:
        """The time between complete scans; None if a budget or each poll decides it."""
        given = self.advanced.full_scan_interval
        if given is not None or self.notifications is None:
            return given
        usual = FULL_SCAN_SECS if self.use_watermark else FULL_SCAN_SECS_WITHOUT_WATERMARK
        return max(usual, self.poll_interval)

    @property
    def has_scan_limits(self) -> bool:
        """True if not every poll scans everything."""
        return self.max_list_cost is not None or self.advanced.full_scan_interval is not None

    @property
    def uri(self) -> str:
        """The directory in which the files arrive."""
        return self.source_uri

    @property
    def replaces(self) -> bool:
        """True if a second reading replaces published rows without a command."""
        return self.units is not None

    @model_validator(mode="before")
    @classmethod
    def _path_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and "path" in data:
            if "source_uri" in data:
                raise ValueError("give source_uri or path, not both")
            data = {**data, "source_uri": data["path"]}
            del data["path"]
        return data

    @model_validator(mode="before")
    @classmethod
    def _polls_as_paid(cls, data: Any) -> Any:
        """Let a budget decide about pauses; then `poll_interval` is the least one."""
        if not isinstance(data, dict):
            return data
        return {"poll_interval": "1s", **data} if "max_list_cost" in data else data

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        # One validator for all, since pydantic prepares each.
        found = chain(self._watermark_problems(), self._scan_problems(), self._place_problems())
        if (problem := next(found, None)) is not None:
            raise ValueError(problem)
        return self

    def _watermark_problems(self) -> Iterator[str]:
        if self.units is not None and self.use_watermark:
            yield (
                "units needs use_watermark: false: files below a watermark are not checked for"
                " changes"
            )
        if self.complete_after is not None and not self.use_watermark:
            yield (
                "complete_after needs use_watermark: true: without a watermark names belong to no"
                " partition; leave complete_after out"
            )
        if self.clean is None:
            return
        if not self.use_watermark:
            yield (
                "clean needs use_watermark: true, and no units: otherwise a file that comes back is"
                " ingested again; leave clean out"
            )
        elif problem := clean_problem(self.source_uri, self.clean):
            yield problem

    def _scan_problems(self) -> Iterator[str]:
        if self.lists_per_hour is not None and self.notifications is not None:
            yield (
                "give notifications or max_list_cost, not both: with notifications their"
                " advanced.pause and advanced.full_scan_interval limit the requests"
            )
        if self.units is not None and self.notifications is not None:
            yield "notifications is not for units: each poll looks for changed files"
        if self.has_scan_limits and self.notifications is None and not self.use_watermark:
            yield (
                "max_list_cost and advanced.full_scan_interval need use_watermark: true. Without a"
                " watermark each poll lists everything; set poll_interval"
            )
        if self.lists_per_hour is not None and self.poll_interval < 1:
            yield "poll_interval must be at least 1s with max_list_cost, or left out"
        between = self.advanced.full_scan_interval
        if between is not None and between <= self.poll_interval:
            yield "advanced.full_scan_interval must be longer than poll_interval"

    def _place_problems(self) -> Iterator[str]:
        if not self.format.endings and not self.include:
            yield (
                f'format: {self.format.type} needs include, such as "**/*.log": its files may'
                " have any name"
            )
        depth, known = self.advanced.partition_depth, self.partition_filter
        if self.advanced.range is not None and known is not None and known.lookback is not None:
            yield (
                "advanced.range and partition_filter.lookback both say where a cold start begins;"
                " leave one of them out"
            )
        # Another depth's floor would close half a partition.
        if depth is not None and known is not None and depth != known.depth:
            yield (
                f"advanced.partition_depth must be {known.depth}, the number of components of"
                " partition_filter.prefix_template; leave it out, or give the template as many"
                " components as a partition has"
            )

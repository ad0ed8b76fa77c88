"""Settings of tables: partitions, files and commits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from blizzard_core.limits import NEW_COLUMNS
from blizzard_core.settings.base import (
    DAY,
    HOUR,
    MIN_TOKEN,
    MINUTE,
    Name,
    Options,
    Seconds,
    Settings,
    Uri,
)
from blizzard_core.settings.globs import PathColumnType
from blizzard_core.settings.sources import MetadataColumn
from blizzard_core.settings.time_formats import PartitionFilter, check_template

PartitionType: TypeAlias = PathColumnType
Transform = Literal["identity", "date", "hour"]

# The strftime template that a transform stands for.
TEMPLATES: Mapping[str, str] = {"date": "%Y-%m-%d", "hour": "%H"}
# Types whose values have one text in a path that every reader reads back the same.
IDENTITY_TYPES: Mapping[str, PartitionType] = {
    "string": "string",
    "int32": "int32",
    "int64": "int64",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
}


class PartitionColumn(Settings):
    """A partition column made from a column of the rows.

    In YAML a plain name means its `identity`.
    """

    column: str = Field(min_length=1)
    """A field of the schema."""
    transform: Transform = "identity"
    """The value, the day (`2024-01-28`) or the hour (`00` to `23`) of a timestamp, in UTC."""
    name: str = Field(default="", max_length=100)
    """Name of the partition column; default: the column's for `identity`, else the transform's."""

    text_key: ClassVar[str] = "column"

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"column": data}
        if isinstance(data, dict) and not data.get("name"):
            transform = data.get("transform", "identity")
            data = {**data, "name": data.get("column") if transform == "identity" else transform}
        return data

    @model_validator(mode="after")
    def _name_fits_a_template(self) -> Self:
        if self.transform != "identity" and set(self.name) & set("%/="):
            raise ValueError(f"name {self.name!r} must not hold %, / or =")
        return self

    @property
    def replaces_column(self) -> bool:
        """True if the value moves from the files into the path, as in Delta."""
        return self.transform == "identity" and self.name == self.column


class PartitionBy(Settings):
    """Partitions of the table, by columns or by a template.

    In `tables` the default is that of the pipeline with the same `table_uri`.
    """

    prefix_template: str | None = None
    """A strftime template of `key=value` components."""
    column: str | None = None
    """The timestamp column for the template; default: the source file's partition."""
    columns: list[PartitionColumn] = Field(
        default_factory=list,
        max_length=8,
        examples=[["country", {"column": "time", "transform": "hour"}]],
    )
    """Columns of the rows, instead of the template."""
    types: dict[str, PartitionType] = Field(default_factory=dict)
    """Types of partition columns; default: the field's type, date for `%Y-%m-%d`, else string."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.prefix_template is None) == (not self.columns):
            raise ValueError("give either prefix_template or columns")
        if self.columns and self.column is not None:
            raise ValueError("column belongs to prefix_template; columns name their own")
        parts = (self.prefix_template or "").split("/") if not self.columns else []
        if not all(part.partition("=")[0] and part.partition("=")[2] for part in parts):
            raise ValueError(
                "prefix_template must be key=value components joined by /, as in"
                " 'date=%Y-%m-%d/hour=%H'"
            )
        if self.prefix_template is not None:
            check_template(self.prefix_template)
        keys = self.keys
        if len({key.lower() for key in keys}) != len(keys):
            raise ValueError("two partition columns have the same name; give one another `name`")
        hidden = [key for key in keys if key.startswith(("_", "."))]
        if hidden:
            raise ValueError(
                f"partition column {hidden[0]!r} must not start with _ or .: such directories"
                " are hidden from readers"
            )
        unknown = sorted(set(self.types) - set(keys))
        if unknown:
            raise ValueError(f"types names {unknown[0]!r}, which is no partition column")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        if self.columns:
            return tuple(column.name for column in self.columns)
        return tuple(part.partition("=")[0] for part in (self.prefix_template or "").split("/"))

    def column_types(self, fields: Mapping[str, str]) -> dict[str, PartitionType]:
        """Return the partition columns in order, with their types.

        ``fields`` are the declared fields with their types.
        """
        by_default: dict[str, PartitionType] = {}
        for column in self.columns:
            if column.transform == "identity":
                kind = fields.get(column.column, "string")
                by_default[column.name] = IDENTITY_TYPES.get(kind, "string")
            elif column.transform == "date":
                by_default[column.name] = "date"
        for part in (self.prefix_template or "").split("/"):
            key, _, value = part.partition("=")
            if value in ("%Y-%m-%d", "%F"):
                by_default[key] = "date"
        return {key: self.types.get(key, by_default.get(key, "string")) for key in self.keys}

    def problems(self, fields: Mapping[str, str], no_field: Callable[[str], str]) -> list[str]:
        """Return the conflicts with the declared fields and their types, if any.

        ``no_field`` says of a name that it is none of them.
        """
        found: list[str] = []
        if self.column is not None and fields.get(self.column) != "timestamp":
            found.append(
                f"column {self.column!r} must be a timestamp field of the schema,"
                " declared in schema.fields"
            )
        for column in self.columns:
            kind = fields.get(column.column)
            if kind is None:
                found.append(f"column {no_field(column.column)}")
            elif column.transform != "identity" and kind != "timestamp":
                found.append(
                    f"column {column.column!r} is {kind}: {column.transform} needs a timestamp"
                )
            elif column.transform == "identity" and kind not in IDENTITY_TYPES:
                known = ", ".join(IDENTITY_TYPES)
                found.append(f"column {column.column!r} is {kind}; identity takes {known}")
            elif column.transform == "identity" and self.types.get(column.name, kind) != kind:
                found.append(f"types must not differ from the {kind} field {column.column!r}")
        moved = {column.name for column in self.columns if column.replaces_column}
        lowered = {name.lower() for name in fields if name not in moved}
        found += [
            f"key {key!r} is also a field of the schema; rename one"
            for key in self.keys
            if key.lower() in lowered
        ]
        if moved and moved >= set(fields):
            found.append("columns leaves no column for the files")
        return found


_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def _checked(uri: str) -> str:
    encoded = _ENCODED.search(uri)
    if encoded is not None:
        raise ValueError(
            f"holds {encoded[0]}, which deltalake reads as {unquote(encoded[0])!r}: the log would"
            " be in another directory than the data. Write the name as it is in the store,"
            f" as {unquote(uri)!r}; a directory whose name holds {encoded[0]} cannot be a table"
        )
    cut = next((sign for sign in "?#" if "://" in uri and sign in uri), None)
    if cut is not None:
        raise ValueError(
            f"holds {cut!r}, at which deltalake ends the path: the log would be in another"
            " directory than the data. Choose a directory without it"
        )
    return uri


TableUri = Annotated[Uri, AfterValidator(_checked)]


ParquetCompression = Literal["snappy", "zstd", "lz4", "gzip", "uncompressed"]

# Shown in the example configuration.
BY_DATE = {"prefix_template": "date=%Y-%m-%d", "column": "time", "types": {"date": "date"}}


class SinkAdvanced(Settings):
    """Size and layout of files."""

    file_size_mb: int = Field(default=128, ge=1, le=16_384)
    """Target file size, as stored."""
    compression: ParquetCompression = "snappy"
    """Parquet compression."""
    row_group_size_bytes: int = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    """Row group size in memory (Arrow), which bounds a task's memory."""

    @model_validator(mode="before")
    @classmethod
    def _none_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("compression") == "none":
            data = {**data, "compression": "uncompressed"}
        return data


class SinkSettings(Settings):
    """The Delta table's directory and its Parquet files.

    `sort_by` costs local disk, memory and about a third more time. Metadata columns: `_source_file`
    (URI), `_source_line` (from 1), `_ingested_at` (start of the batch); with `event_time` also
    `_emitted_batch` (batch that published the row).
    """

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    metadata_columns: tuple[MetadataColumn | Literal["_emitted_batch"], ...] = ()
    """Columns to add."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """Partitions of the table; default: none."""
    sort_by: list[str] = Field(default_factory=list, max_length=8, examples=[["user", "-time"]])
    """Sort order of each file; a leading `-` means descending."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Options of the store."""
    advanced: SinkAdvanced = Field(default_factory=SinkAdvanced)
    """Rarely needed."""

    @property
    def sort_keys(self) -> list[tuple[str, bool]]:
        """The columns of ``sort_by``, each with whether its highest value comes first."""
        return [(key.removeprefix("-"), key.startswith("-")) for key in self.sort_by]


def _call_uri(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be http://HOST:PORT/notify, or https, without credentials")
    return uri


class OptimizeSettings(Settings):
    """Compaction of small files; off without this block.

    Files grow to the table's `delta.targetFileSize` (100 MB).
    """

    interval: Seconds = Field(default=HOUR, gt=0)
    """Time between compactions."""


class VacuumSettings(Settings):
    """Daily deletion of files that the table no longer uses; off without this block.

    Files that wait for their commit are never deleted.
    """

    retention: Seconds | None = Field(default=None, ge=0, examples=["7d"])
    """Age up to which unused files stay; default and minimum: the table's
    `delta.deletedFileRetentionDuration`."""


class CallSettings(Settings):
    """Blizzard's calls of Penguin: a published batch is committed without waiting for a poll.

    Polls go on, so `poll_interval` may be a minute. A lost call costs the rest of it.
    """

    uri: Annotated[str, AfterValidator(_call_uri)] = Field(
        examples=["http://blizzard-penguin:9090/notify"]
    )
    """Penguin's `POST /notify`, on its address of `metrics`."""
    token: str = Field(min_length=MIN_TOKEN, repr=False, examples=["${file:/run/secrets/notify}"])
    """The bearer token, which both daemons read here."""


class TableAdvanced(Settings):
    """Selection of files, and maintenance of the log.

    Blizzard's files and files below `own_prefixes` are committed at once; others wait for
    `foreign_min_age`, because they may belong to another engine's open commit.
    """

    file_pattern: str = r"(?![_.]|part-).*\.parquet"
    """Regular expression for file names; other engines' OPTIMIZE writes `part-` files."""
    app_id: Name | None = Field(default=None, examples=["backfill"])
    """For a second instance (a backfill): it keeps its own progress and quarantine."""
    partition_filter: PartitionFilter | None = Field(
        default=None, examples=[{"prefix_template": "date=%Y-%m-%d", "lookback": 30}]
    )
    """The part of the table to look for files in."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Dated partitions that are listed; older ones are closed. Each costs at most one LIST
    a poll."""
    grace_period: Seconds = Field(default=5 * MINUTE, ge=0)
    """Time in which files may still appear below the watermark."""
    reconcile_interval: Seconds = Field(default=HOUR, ge=0)
    """Time between full comparisons of directory and log; 0: never."""
    reconcile_horizon: Seconds = Field(default=2 * DAY, ge=0)
    """Younger stragglers are committed, older ones reported."""
    max_files_per_commit: int = Field(default=1000, ge=1)
    """Files in one commit."""
    own_prefixes: list[str] = Field(default_factory=list)
    """Paths that no other engine writes to; `""`: the whole table."""
    foreign_min_age: Seconds | None = Field(default=HOUR, ge=0)
    """Minimum age of other files; null: never commit them."""
    max_new_columns: int = Field(default=NEW_COLUMNS, ge=0)
    """New columns in one commit."""
    delta_checkpoint_interval: int | None = Field(default=None, ge=1, examples=[100])
    """Versions between log checkpoints; default: the table's property."""
    delta_log_cleanup: bool | None = Field(default=None, examples=[True])
    """Remove expired log entries; default: the table's property."""

    @field_validator("file_pattern")
    @classmethod
    def _pattern_compiles(cls, file_pattern: str) -> str:
        try:
            re.compile(file_pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return file_pattern


class TableSettings(Settings):
    """A Delta table to which Penguin commits."""

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    poll_interval: Seconds = Field(default=10, gt=0)
    """Time between polls."""
    schema_evolution: Literal["merge", "strict", "overwrite"] = "merge"
    """New columns in files: add them, refuse them, or replace the schema."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """Default: that of the pipeline with this `table_uri`."""
    notify: CallSettings | None = None
    """Calls of Penguin by Blizzard; default: none."""
    optimize: OptimizeSettings | None = None
    """Compaction of small files; default: off."""
    vacuum: VacuumSettings | None = Field(default=None, examples=[{"retention": "7d"}])
    """Deletion of unused files; default: off."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Default: those of the pipeline with this `table_uri`."""
    advanced: TableAdvanced = Field(default_factory=TableAdvanced)
    """Rarely needed."""

"""Tables: how they are partitioned, how their files are made, how they are committed to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, Field, field_validator, model_validator

from blizzard_core.bounds import NEW_COLUMNS
from blizzard_core.settings.base import DAY, HOUR, MINUTE, Name, Options, Seconds, Settings, Uri
from blizzard_core.settings.sources import MetadataColumn, PartitionFilter

PartitionType = Literal["string", "int32", "int64", "date", "timestamp", "boolean"]
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
    """One partition column made from a column of the rows.

    ``identity`` takes the value itself, ``date`` the day (``2024-01-28``) and ``hour``
    the hour of the day (``00`` to ``23``) of a timestamp, in UTC. ``name`` is what the
    partition column is called: by default like the column for ``identity``, else like
    the transform. In YAML a plain column name means its ``identity``.
    """

    column: str = Field(min_length=1)
    """A field of the schema."""
    transform: Transform = "identity"
    """The value, or the day or hour of a timestamp, in UTC."""
    name: str = Field(default="", max_length=100)
    """Of the partition column; by default like the column or the transform."""

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
        """Return whether the value moves from the files into the path, as Delta has it."""
        return self.transform == "identity" and self.name == self.column


class PartitionBy(Settings):
    """Partitions of the table: by the rows' ``columns``, or by a template.

    ``prefix_template`` is a strftime template of ``key=value`` components. The
    time comes from the timestamp column ``column`` of each row or, without it,
    from the source file's own partition. ``types`` gives partition columns a
    Delta type; by default a column's ``identity`` has the type of its field,
    ``%Y-%m-%d`` is a date and anything else a string.
    """

    prefix_template: str | None = None
    """A strftime template of `key=value` components."""
    column: str | None = None
    """The timestamp that fills it; by default the source file's own partition does."""
    columns: list[PartitionColumn] = Field(
        default_factory=list,
        max_length=8,
        examples=[["country", {"column": "time", "transform": "hour"}]],
    )
    """Instead of the template: columns of the rows."""
    types: dict[str, PartitionType] = Field(default_factory=dict)
    """By default a field's own type, date for `%Y-%m-%d`, string otherwise."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.prefix_template is None) == (not self.columns):
            raise ValueError("give either prefix_template or columns")
        if self.columns and self.column is not None:
            raise ValueError("column belongs to prefix_template; columns name their own")
        parts = (self.prefix_template or "").split("/") if not self.columns else []
        if not all(part.partition("=")[0] and part.partition("=")[2] for part in parts):
            raise ValueError("prefix_template must be key=value components joined by /")
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
        """Partition column names in order, with their types.

        ``fields`` are the declared fields and their types, as far as there are any.
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

    def problems(self, fields: Mapping[str, str]) -> list[str]:
        """Return what does not fit the declared fields and their types; empty if all does."""
        found: list[str] = []
        if self.column is not None and fields.get(self.column) != "timestamp":
            found.append(
                f"column {self.column!r} must be a timestamp field of the schema,"
                " declared in schema.fields"
            )
        for column in self.columns:
            kind = fields.get(column.column)
            if kind is None:
                found.append(f"column {column.column!r} is not a field of the schema; declare it")
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


class SinkAdvanced(Settings):
    """Layout inside of files.

    ``row_group_size_bytes`` counts rows as they lie in memory (Arrow), not as they are stored,
    since it is what bounds a task's memory: 64 MiB there are 10 to 30 MB of snappy Parquet.
    """

    row_group_size_bytes: int = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    """In memory, before encoding and compression."""


class SinkSettings(Settings):
    """The Delta table's directory, and how Parquet files in it are made.

    A file is closed when another row group would take it further from
    ``file_size_mb`` than it is. Each file is sorted by ``sort_by`` as a whole, at the price of
    local disk, memory and a third more time.

    ``metadata_columns`` adds columns that say where a row comes from:
    ``_source_file`` (its URI), ``_source_line`` (from 1), ``_ingested_at`` (when
    its batch began); with ``event_time`` also ``_emitted_batch`` (the number of the batch
    that a row came out with).
    """

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    file_size_mb: int = Field(default=128, ge=1, le=16_384)
    """As stored; files come out close to it."""
    compression: ParquetCompression = "snappy"
    """Of Parquet pages; `none` means `uncompressed`."""
    metadata_columns: tuple[MetadataColumn | Literal["_emitted_batch"], ...] = ()
    """Of `_source_file`, `_source_line`, `_ingested_at`, `_emitted_batch`."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """How the table is partitioned; without it, it is not."""
    sort_by: list[str] = Field(default_factory=list, max_length=8, examples=[["user", "-time"]])
    """Within each file; `-` in front: descending."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """For the store; what is not given comes from its standard credential chain."""
    advanced: SinkAdvanced = SinkAdvanced()
    """What few have to set."""

    @property
    def sort_keys(self) -> list[tuple[str, bool]]:
        """The column of each part of ``sort_by``, and whether its highest value comes first."""
        return [(key.removeprefix("-"), key.startswith("-")) for key in self.sort_by]

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


class TableAdvanced(Settings):
    """Times at which files are taken, and care for the table's log.

    By default every ``*.parquet`` counts whose name does not start with ``_``, ``.`` or
    ``part-`` (other engines' OPTIMIZE writes ``part-`` files there). Files that carry Blizzard's
    output id, or whose path starts with one of ``own_prefixes`` (``""`` for the whole table), are
    committed at once. Others may be what another engine has written and not yet committed: they
    wait until they are ``foreign_min_age`` old, and without it are not taken at all.

    ``app_id`` is for a second instance beside the live one, a backfill: it keeps progress and
    quarantine of its own. ``reconcile_interval`` is how often the whole directory is compared
    with the log (0: never): what is younger than ``reconcile_horizon`` is committed, what is
    older is reported.

    ``delta_checkpoint_interval`` makes a log checkpoint every so many versions and
    ``delta_log_cleanup`` says whether log entries past their retention are
    removed; without them the table's own properties decide.
    """

    file_pattern: str = r"(?![_.]|part-).*\.parquet"
    """A regular expression on the file name."""
    app_id: Name | None = Field(default=None, examples=["backfill"])
    """For a second instance beside the live one."""
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
    max_new_columns: int = Field(default=NEW_COLUMNS, ge=0)
    """That one commit may add."""
    delta_checkpoint_interval: int | None = Field(default=None, ge=1, examples=[100])
    """Versions from one to the next; by default the table's own property."""
    delta_log_cleanup: bool | None = Field(default=None, examples=[True])
    """By default the table's own property."""

    @field_validator("file_pattern")
    @classmethod
    def _pattern_compiles(cls, file_pattern: str) -> str:
        try:
            re.compile(file_pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return file_pattern


class TableSettings(Settings):
    """One Delta table that Penguin commits to; ``partition_filter`` is how far it looks back."""

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/events"])
    """The directory of the Delta table."""
    poll_interval: Seconds = Field(default=10, gt=0)
    """From one look for new files to the next."""
    schema_evolution: Literal["merge", "strict", "overwrite"] = "merge"
    """Whether files may bring new columns, may not, or make the schema theirs."""
    partition_by: PartitionBy | None = Field(default=None, examples=[BY_DATE])
    """By default that of the pipeline with this `table_uri`."""
    partition_filter: PartitionFilter | None = Field(
        default=None, examples=[{"prefix_template": "date=%Y-%m-%d", "lookback": 30}]
    )
    """How far back to look for files."""
    optimize: OptimizeSettings | None = None
    """Compaction of small files; off without it."""
    vacuum: VacuumSettings | None = None
    """Deletion of files that the table let go; off without it."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """By default those of the pipeline with this `table_uri`."""
    advanced: TableAdvanced = TableAdvanced()
    """What few have to set."""

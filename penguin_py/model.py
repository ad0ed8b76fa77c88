"""Values that Penguin's layers share. All frozen, none does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import CommitError
from blizzard_core.storage.protocol import Entry

# Delta's default of `delta.deletedFileRetentionDuration`: one week.
REMOVAL_RETENTION_SECS = 7 * 86_400.0
# Stores and daemons have clocks of their own.
CLOCK_SKEW_SECS = 3600.0
# The chores of a table; see `penguin_py.table.maintenance`.
CHORES = ("reconcile", "optimize", "vacuum", "published")


class CommitConflict(CommitError):
    """Another writer's commit came first; the next cycle plans anew on top of it."""

    remedy = "Another writer was faster; the commit is planned anew and tried again."


class CommitRefused(CommitError):
    """The commit can never land as it is, because of one of its files or the table.

    A retry would never end; the caller searches for the file.
    """

    retryable = False
    remedy = ""


# How a path is in the log: added with new rows, added by a compaction, or removed.
PathOrigin = Literal["data", "rewrite", "removal"]


@dataclass(frozen=True, slots=True)
class LoggedPath(Entry):
    """A path of the log; its size is 0. ``modified`` of a removed one is its time of deletion.

    Writers of new rows take the time from a listing. Times of compactions and removals come from
    the clock of the machine that made them.
    """

    origin: PathOrigin


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file whose footer was read and is sound.

    ``output_id`` is ``blizzard.output_id`` of its key-value metadata, None for
    files of other writers.
    """

    entry: Entry
    schema: pa.Schema
    metadata: pq.FileMetaData
    output_id: str | None

    @property
    def path(self) -> str:
        """The file's path relative to the table."""
        return self.entry.path


@dataclass(frozen=True, slots=True)
class Rejection:
    """A file that will not be committed, and why.

    ``stage`` is where it failed: ``read``, ``partition``, ``schema``, ``output_id``,
    ``writer``; ``missing`` is one that is gone, of which ``output_id`` is known.
    """

    entry: Entry
    stage: str
    reason: str
    output_id: str | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """The table as of ``version``.

    ``schema`` holds all columns, partition columns included, in Arrow's types. ``txn_version`` is
    the log's value for our application id, 0 if none. ``table_id`` comes from its metadata; a
    recreated table has another one. ``created`` is its creation time in epoch seconds, 0 if
    unknown. ``removal_retention_secs`` is how long the log remembers a removed path at least.
    ``anchor`` identifies the commit of this version. ``properties`` and ``description`` are set in
    its metadata.
    """

    version: int
    txn_version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    created: float = 0.0
    removal_retention_secs: float = REMOVAL_RETENTION_SECS
    table_id: str = ""
    anchor: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str = ""

    @property
    def partition_types(self) -> dict[str, pa.DataType]:
        """The partition columns in order, with their types."""
        return {name: self.schema.field(name).type for name in self.partition_columns}


@dataclass(frozen=True, slots=True)
class Add:
    """A planned ``add`` action: raw path, parsed partition values, typed statistics (JSON)."""

    entry: Entry
    partition_values: Mapping[str, str | None]
    stats: str
    output_id: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """A planned ``remove`` action: raw path, size and partition values as in the ``add``."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The content of one commit.

    ``schema`` is the whole table schema that the adds need; ``changed`` names its
    top-level columns that the table lacks or has in a smaller form. A commit that ``replaces`` is
    written on the version that it was planned on, or not at all. ``description`` is that of a new
    table.
    """

    adds: tuple[Add, ...]
    rejections: tuple[Rejection, ...]
    schema: pa.Schema
    changed: tuple[str, ...]
    partition_columns: tuple[str, ...]
    removes: tuple[Remove, ...] = ()
    replaces: bool = False
    description: str | None = None


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit of ours as its commitInfo tells it: the Delta version and our document."""

    version: int
    document: Mapping[str, object] = field(default_factory=dict)

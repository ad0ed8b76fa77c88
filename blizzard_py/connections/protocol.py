"""The protocol of a kind of connection: questions for the driver process, a reader for Spark tasks.

**The driver** asks a `SourceConnection`: which columns there are, where the window ends, what tasks
it is cut into. It writes nothing anywhere, keeps at most one connection to a server, opens it when
it is first asked and again when it broke, and tells its errors as

* `SourceError`: the server says no, for good: what the message names has to be mended;
* `Unavailable` (or `AccessDenied` where credentials are refused): asked again later.

No message holds a password, a token or a row's value.

**A task** calls the reader of the same driver (`drivers.reader_of`) in a Spark worker, which may
be on another machine: all it has is the `Access`, the task's ``spec`` and the declared fields.

**What a reader yields**, one after the other and never all at once:

* ``pa.RecordBatch``: rows in a schema near the declared one; the kernel casts each column to the
  declared type, and what does not fit is a bad record, not an error of the task. Readers see to
  it that no driver has lost anything before that: what drivers lie about is read as text, and
  parsed by the kernel;
* ``bytes``: lines of NDJSON, each ended by a newline, whole lines only: they go through the line
  parser, as files' lines do.

A reader that fails for now raises `Unavailable`, else `SourceError`; either way nothing of the
task counts. Memory is bounded whatever there is to read (a batch of at most 64 Ki rows or
about 16 MB, whichever is less).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable
from zoneinfo import ZoneInfo

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.placeholders import Values
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, Nulls, ReadTask, Window

ColumnKind = Literal["time", "date", "number", "text", "other"]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as the source declares it. ``type`` is the source's own word for its type.

    ``field`` is the schema's entry that holds it without loss, which `init` proposes.
    """

    name: str
    type: str
    kind: ColumnKind
    nullable: bool
    field: FieldSpec


@dataclass(frozen=True, slots=True)
class ReadSelection:
    """The data to read: a table or a query, the user's filter, the fields, the watermark's columns.

    One of ``table`` and ``query`` is given. ``filter`` is ANDed to everything. ``fields``
    are the declared ones: only they (and ``columns``) are asked for; ``()`` means all. ``zone`` is
    whose wall times the columns hold, ``""`` if nobody has said so: then UTC's.
    """

    table: str = ""
    query: str = ""
    filter: str = ""
    fields: tuple[FieldSpec, ...] = ()
    columns: tuple[str, ...] = ()
    nulls: Nulls = "first"
    zone: str = ""

    @property
    def walls(self) -> dt.tzinfo:
        """The zone of times that have none of their own."""
        return ZoneInfo(self.zone) if self.zone else dt.UTC


@dataclass(frozen=True, slots=True)
class ReadBound:
    """The end of a window: a value for each watermark column, fixed before anything is read.

    ``value`` is ``{}`` if there is nothing to read at all. ``held_by`` says what keeps it back
    (``pid 17, transaction since …``), ``warnings`` what it cannot promise here, and ``skipped``
    those of them that tell of rows that no window reads, of ``skipped_files`` where these are
    known. ``kind`` may be another than was asked for (``settled`` without the right to see
    transactions is ``clock``), and a warning says why.
    """

    kind: BoundKind
    value: Mapping[str, Any] = field(default_factory=dict)
    held_by: str | None = None
    warnings: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    skipped_files: tuple[str, ...] = ()


def without_values(columns: Iterable[str]) -> str:
    """Return the warning of an empty bound over a table that is not empty."""
    names = " or ".join(columns)
    return f"no row of the table has a value in {names}; nothing is read until one has"


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """The cut of a window: by which column (``""``: the connection chooses), into how many."""

    by: str = ""
    tasks: int = 0  # 0: the connection decides by size


class SourceConnection(Protocol):
    """One table, query or API, asked by the driver process. See the module's docstring."""

    @property
    def default_bound(self) -> BoundKind | None:
        """The bound for these watermark columns, by their types; None: it must be configured."""

    def columns(self) -> Sequence[SourceColumn]:
        """All columns there are. Raises `SourceError` if table or query cannot be read."""

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return where a window that is planned now ends. One statement."""

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """The window's tasks; none if it is certain that it holds no row. One statement."""

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return a task for each work unit's slice, with its values for the placeholders.

        Nobody asks whether there is anything. An error is that of its unit alone; what would be
        so for all of them is raised. Afterwards `columns` can be asked: they are of the last.
        """

    def hold(self, access: Access) -> AbstractContextManager[Access]:
        """While it lasts, all tasks that are given its result see one state of the source.

        Whoever cannot promise that returns ``access`` as it is.
        """

    def warnings(self) -> Sequence[str]:
        """Return what `validate` tells: no index, a view, a type that will be read as text."""

    def close(self) -> None:
        """Let go of the server."""


@runtime_checkable
class RescansFiles(Protocol):
    """A connection that does not look into every file at each poll."""

    def look_again(self, files: Iterable[str]) -> None:
        """Look into these at each `SourceConnection.bound`, too: they were ``skipped_files``."""


class Reader(Protocol):
    """Reads one task in a Spark worker. See the module's docstring."""

    def __call__(
        self, access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
    ) -> Iterator[pa.RecordBatch | bytes]: ...


Rows: TypeAlias = pa.RecordBatch | bytes

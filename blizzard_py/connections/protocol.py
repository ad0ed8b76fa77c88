"""The protocol of a connection: planning in the driver process, a reader in Spark tasks.

**The driver process** asks a `SourceConnection` for the columns, the end of the window and its
tasks. The connection writes nothing. It keeps at most one connection to a server, opens it on first
use and reopens it after a failure. Its errors are

* `SourceError`: a permanent error. The message names what must be corrected.
* `Unavailable` (or `AccessDenied` if credentials are refused): the request is repeated later.

No message contains a password, a token or a row's value.

**A task** calls the reader of the same driver (`drivers.reader_of`) in a Spark worker, which may be
on another machine. It has only the `Access`, the task's ``spec`` and the declared fields.

**A reader yields**, one after the other and never all at once:

* ``pa.RecordBatch``: rows in a schema close to the declared one. The kernel casts each column to
  the declared type. A value that does not fit makes a bad record, not an error of the task. Readers
  prevent losses in drivers: a type that a driver reads incorrectly is read as text and parsed by
  the kernel.
* ``FileRows``: such rows of a file, with the records that their letters have.
* ``bytes``: NDJSON lines, each ended by a newline, whole lines only. They go through the line
  parser, as lines of files do.
* ``BadRecord``: a record that is no row, with the reason and one line of text for its letter. The
  kernel numbers it. A replay reads the text as NDJSON, so it must not become another row.

A reader raises `Unavailable` for a temporary failure, else `SourceError`. In both cases nothing of
the task counts. Memory is limited however much there is to read: a batch has at most 64 Ki rows or
about 16 MB, whichever is less.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable
from zoneinfo import ZoneInfo

from blizzard_core.errors import SourceError
from blizzard_py.connections.placeholders import Values
from blizzard_py.formats.protocol import BadRecord, FileRows
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, Nulls, ReadTask, Window

if TYPE_CHECKING:
    import pyarrow as pa

Rows: TypeAlias = "pa.RecordBatch | FileRows | bytes | BadRecord"
ColumnKind = Literal["time", "date", "number", "text", "other"]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as the source declares it. ``type`` is the source's own name of its type.

    ``field`` is the schema entry that holds it without loss, which `init` proposes.
    """

    name: str
    type: str
    kind: ColumnKind
    field: FieldSpec


@dataclass(frozen=True, slots=True)
class ReadSelection:
    """The data to read: a table or a query, the user's filter, fields, and watermark columns.

    Either ``table`` or ``query`` is given. ``filter`` is ANDed to everything. ``fields`` are the
    declared ones: only they (and ``columns``) are selected; ``()`` means all. ``zone`` is the zone
    of wall times in the columns; ``""`` means UTC.
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
        """The zone of times without a zone."""
        return ZoneInfo(self.zone) if self.zone else dt.UTC


@dataclass(frozen=True, slots=True)
class ReadBound:
    """The end of a window: a value for each watermark column, fixed before anything is read.

    * ``value`` is ``{}`` if there is nothing to read.
    * ``held_by`` says what holds the bound back (``pid 17, transaction since …``).
    * ``warnings`` are guarantees that do not hold here.
    * ``skipped`` are those warnings about rows that no window reads, and ``skipped_files`` their
      files, if known.
    * ``kind`` may differ from the requested one: ``settled`` without the right to see transactions
      becomes ``clock``, and a warning says why.
    """

    kind: BoundKind
    value: Mapping[str, Any] = field(default_factory=dict)
    held_by: str | None = None
    warnings: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    skipped_files: tuple[str, ...] = ()


def without_values(columns: Iterable[str]) -> str:
    """Return the warning for an empty bound of a table that is not empty."""
    names = " or ".join(columns)
    return f"no row of the table has a value in {names}; nothing is read until one has"


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """The division of a window: by a column (``""``: the connection chooses) into tasks."""

    by: str = ""
    tasks: int = 0  # 0: the connection decides by size


class SourceConnection(Protocol):
    """One table, query or API, used by the driver process. See the module's docstring.

    Its last three methods are right for a connection that opens nothing.
    """

    @property
    def default_bound(self) -> BoundKind | None:
        """The bound for these watermark columns, by their types; None: it must be configured."""

    def columns(self) -> Sequence[SourceColumn]:
        """Return all columns. Raises `SourceError` if table or query cannot be read."""

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the end of a window that is planned now. One statement."""

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return the window's tasks; none if it certainly has no row. One statement."""

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return a task for each work unit's slice, with its values for the placeholders.

        It does not check whether there are rows. An error in the list concerns its unit only; an
        error that all units have is raised. Afterwards `columns` returns those of the last unit.
        """

    def hold(self, access: Access) -> AbstractContextManager[Access]:
        """Yield an access with which all tasks see one state of the source, while the block lasts.

        A connection that cannot guarantee that yields ``access`` unchanged.
        """
        return nullcontext(access)

    def warnings(self) -> Sequence[str]:
        """Return warnings for `validate`: no index, a view, a type that will be read as text."""
        return ()

    def close(self) -> None:
        """Release the server, if anything is open."""
        return


@runtime_checkable
class RescansFiles(Protocol):
    """A connection that does not read every file at each poll."""

    def look_again(self, files: Iterable[str]) -> None:
        """Read these files too at each `SourceConnection.bound`: they were ``skipped_files``."""


class Reader(Protocol):
    """The reader of one task in a Spark worker. See the module's docstring."""

    def __call__(
        self, access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
    ) -> Iterator[Rows]: ...

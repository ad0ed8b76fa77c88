"""Readings of tables and APIs by Spark tasks: the contract between who plans and who reads.

A **window** holds the values above a stored watermark, up to a bound that was fixed before the
first read. A connection cuts it into **tasks**; one Spark task reads each. The checkpoint has the
window and its tasks before the job starts. So a process that takes over the batch reads the same
window, and the plan can be shown to people.

Everything here is plain and picklable, and free of secrets but for `Access.options`, whose
``repr`` is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from blizzard_core.settings.formats import FormatSettings

BoundKind = Literal["settled", "clock", "version", "max", "rows"]
Nulls = Literal["first", "never", "fail"]


@dataclass(frozen=True, slots=True)
class Window:
    """One reading: above ``after``, up to and with ``up_to``.

    Values are Python values; `blizzard_py.slices.notation` writes them. ``after`` is the stored
    watermark, ``{}`` for the first window. Reading starts at ``low``: the watermark less the
    look-back, or ``after`` itself without one. With ``inclusive`` rows *at* ``low`` are read again
    (ties, `BoundKind` ``max`` and ``rows``). With ``nulls_first`` the window includes rows whose
    watermark columns are all null. A source without watermark columns (a snapshot) has ``{}`` in
    all three.
    """

    after: Mapping[str, Any] = field(default_factory=dict)
    up_to: Mapping[str, Any] = field(default_factory=dict)
    low: Mapping[str, Any] = field(default_factory=dict)
    inclusive: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The reading of one Spark task.

    ``name`` is unique in its window (``0``, ``1``, …). ``where`` tells people what it reads: the
    statement for a database, the request for an API, files and filter for a lake. ``spec`` is what
    the connection's own reader goes by: a JSON object, small (the checkpoint keeps it), free of
    secrets. ``size`` is the bytes it is thought to read, 0 if that is not known.
    """

    name: str
    where: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """The access of tasks to a source: a driver's name, where, and its secrets.

    ``session`` is what only this attempt has: the name of an exported snapshot. ``format`` is that
    of a folder's files, if each of them is scanned.
    """

    driver: str
    uri: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    session: str = ""
    format: FormatSettings | None = None


@dataclass(frozen=True, slots=True)
class RowFingerprint:
    """The fingerprint of rows: a digest of ``columns``, in this order.

    ``whole`` where these are all that there are: of lines it is then the line itself.
    """

    columns: tuple[str, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class DedupSpec:
    """The recognition of rows that were published before, and the digests kept for it.

    A task reports digests, made from the columns in ``told``. ``keep`` selects their rows:
    ``above`` the ``values`` in one of the columns (all rows if there are no values), or ``at`` them
    (ties). With ``""`` no digest is reported and no row is left out. Otherwise the task leaves out
    the rows in the segments ``seen`` (paths below the table, each with the columns of its digests).
    """

    told: RowFingerprint = RowFingerprint()
    keep: Literal["", "above", "at"] = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    seen: tuple[tuple[str, RowFingerprint], ...] = ()


@dataclass(frozen=True, slots=True)
class UnitSlice:
    """A slice that is read into files of its own: ``unit`` is what `_unit` holds in its rows."""

    unit: str
    task: ReadTask


@dataclass(frozen=True, slots=True)
class Reading:
    """The items of a job that a connection reads: by name, each one's task.

    They are published together or not at all, so a job with a reading reports each item as
    ingested, or fails. With ``apart`` an unreadable item is reported alone and does not affect the
    others. All slices of an item are read, or none. If rows have the column `_unit`, an item has
    ``slices`` instead of a task.

    At most ``parallel`` items are read at the same time (0: as many as there is room for). A reader
    waits ``pacing_secs`` between two items.
    """

    access: Access
    tasks: Mapping[str, ReadTask]
    dedup: DedupSpec = DedupSpec()
    slices: Mapping[str, tuple[UnitSlice, ...]] = field(default_factory=dict)
    apart: bool = False
    parallel: int = 0
    pacing_secs: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadMarks:
    """A task's report of the rows that it accepted, besides the rows themselves.

    ``staged`` is an object with ``count`` digests of 16 bytes, below the table.
    """

    path: str
    staged: str
    count: int

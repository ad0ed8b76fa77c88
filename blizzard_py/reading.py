"""Readings of tables and APIs by Spark tasks: the contract between who plans and who reads.

A **window** is what lies above a stored watermark and not above an upper bound that was fixed
before anything was read. A connection cuts it into **tasks**, each of which one Spark task reads
alone. Window and tasks stand in the checkpoint before the job starts, so whoever takes the
batch over reads the same window, and what was planned can be shown to people.

Everything here is plain and picklable, and free of secrets but for `Access.options`, whose
``repr`` is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

BoundKind = Literal["settled", "clock", "version", "max", "rows"]
Nulls = Literal["first", "never", "fail"]


@dataclass(frozen=True, slots=True)
class Window:
    """One reading: above ``after``, up to and with ``up_to``.

    Values are Python's, which `blizzard_py.slices.notation` writes. ``after`` is the stored
    watermark, ``{}`` for the first window, and ``low`` is it shifted back by the
    look-back, or ``after`` itself without one: reading starts there. With ``inclusive`` rows
    *at* ``low`` are read again (ties, `BoundKind` ``max`` and ``rows``). ``nulls_first``: rows
    whose watermark columns are all null are in it. A source without watermark columns (a
    snapshot) has ``{}`` in all three.
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

    ``session`` is what only this attempt has: the name of an exported snapshot.
    """

    driver: str
    uri: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    session: str = ""


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

    ``keep`` says whose digests a task reports, made as ``told`` says: those ``above`` the
    ``values`` in one of the columns (all, where there are no values), or those ``at`` them
    (ties); ``""``: nobody's, and then nothing is left out either. Left out are the rows in the
    segments ``seen`` (paths below the table), each with what its digests were made of.
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
    ingested, or fails. Unless it is ``apart``: then an item that cannot be read is reported so, and
    costs the others nothing; all slices of an item are read, or none. Where rows have the
    column `_unit` an item has ``slices`` instead of a task.

    At most ``parallel`` items are read at the same time (0: as many as there is room for), and
    whoever reads them waits ``pacing_secs`` between two.
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

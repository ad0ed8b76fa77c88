"""Check of the final state against the promise. Pure.

The promise *covers* a file that appeared within a limit after the first file that sorts above it.
In the newest partitions, as many as are tracked, only files of its own partition count, since
scans start in each of them. A covered file is in the table once, row for row. Any other file is in
the table or has a letter, and not both. An unreadable file has a letter, and so has a bad line of
an ingested file. Table and letters hold nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

ROWS_A_FILE = 1000  # the row ids of file n begin at n times this


@dataclass(frozen=True, slots=True)
class Written:
    """A file as its writer knows it.

    It was not visible before ``begun`` and was by ``ended`` (monotonic seconds).
    ``old`` is how many seconds before that its modification time lies.
    """

    number: int
    path: str
    rows: int
    begun: float
    ended: float
    bad_lines: int = 0
    unreadable: bool = False
    old: float = 0.0

    @property
    def ids(self) -> range:
        """The ids of its good rows."""
        return range(self.number * ROWS_A_FILE, self.number * ROWS_A_FILE + self.rows)


@dataclass(frozen=True, slots=True)
class Found:
    """Row ids of the table, letters for whole files and for lines by path: how often each."""

    rows: Mapping[int, int]
    files: Mapping[str, int]
    lines: Mapping[str, int]


Kind = Literal["missing", "doubled", "torn", "letters", "unknown"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One file that is not where it must be."""

    kind: Kind
    path: str
    what: str


def lateness(files: Iterable[Written], tracked: int) -> dict[str, float]:
    """Return, by path, the most seconds between a higher name and the file.

    0 for a file that came before all higher names. ``tracked``: number of tracked partitions.
    """
    late: dict[str, float] = {}
    began: dict[str, float] = {}  # partitions from here upwards
    first = float("inf")
    for partition, members in _from_the_end(files):
        in_partition = float("inf")
        for file in members:
            above = sum(at < file.ended for at in began.values())
            since = in_partition if above < tracked else first
            late[file.path] = max(0.0, file.ended - since)
            in_partition = min(in_partition, file.begun)
            first = min(first, file.begun)
        began[partition] = in_partition
    return late


def _from_the_end(files: Iterable[Written]) -> Iterator[tuple[str, Iterator[Written]]]:
    """Partitions with their files, the highest first."""

    def place(file: Written) -> tuple[str, str]:
        partition, _, name = file.path.rpartition("/")
        return partition, name

    return groupby(sorted(files, key=place, reverse=True), key=lambda file: place(file)[0])


def judge(files: Sequence[Written], found: Found, limit: float, tracked: int) -> list[Fault]:
    """Return all violations; the promise covers up to ``limit`` seconds of lateness."""
    late = lateness(files, tracked)
    faults: list[Fault] = []
    for file in files:
        secs = late[file.path]
        when = "; it appeared " + (
            f"{secs:.1f} s after one that sorts above" if secs else "in order"
        )
        if file.old:
            when += f", its modification time is {file.old:,.0f} s older"
        faults += [
            replace(fault, what=fault.what + when)
            for fault in _judge(file, found, covered=secs <= limit)
        ]
    ids = {number for file in files for number in file.ids}
    strange = sorted(set(found.rows) - ids)
    if strange:
        faults.append(Fault("unknown", "", f"{len(strange)} rows of no file, first {strange[0]}"))
    paths = {file.path for file in files}
    faults += [
        Fault("unknown", path, "a letter for a file that was never written")
        for path in sorted((set(found.files) | set(found.lines)) - paths)
    ]
    return faults


def _judge(file: Written, found: Found, *, covered: bool) -> list[Fault]:
    counts = [found.rows.get(number, 0) for number in file.ids]
    letters, lines = found.files.get(file.path, 0), found.lines.get(file.path, 0)
    there, most = sum(counts), max(counts, default=0)
    expected_lines = file.bad_lines if there else 0
    wrong: list[tuple[bool, Kind, str]] = [
        (most > 1, "doubled", f"rows come up to {most} times"),
        (0 < there < file.rows, "torn", f"{there} of {file.rows} rows"),
        (not there and not letters, "missing", "neither rows nor a letter"),
        (letters > 1 or (there > 0 and letters > 0), "letters", f"{letters} with {there} rows"),
        (
            letters > 0 and covered and not file.unreadable,
            "letters",
            "one for a file that appeared in time",
        ),
        (lines != expected_lines, "letters", f"{lines} for lines, not {expected_lines}"),
    ]
    # The first says it; the others follow from it.
    return [Fault(kind, file.path, what) for is_so, kind, what in wrong if is_so][:1]

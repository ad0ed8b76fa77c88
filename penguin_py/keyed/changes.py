"""Changes that are not merged yet: files that versions of the change table have added.

A position is a version, and how many files of it were merged. Only adds of new rows count:
compactions move rows that were merged. If an entry of the log or a file is gone, `FeedGap` says so;
then all active files are merged again, which changes nothing that was merged before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.delta_json import columns_in, commit_path, read_commit
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage
from penguin_py.delta.log import LogReader
from penguin_py.keyed.files import TableFile, inside, read_rows, row_group_sizes

# So many rows are merged at once, one row group at least; they and their keys are in memory.
ROWS_AT_ONCE = 500_000
# Entries of versions that are read at the same time, and that are held.
_AT_ONCE = 16
_HELD = 1000
_WANTED = ("add.path", "add.size", "add.partitionValues", "add.dataChange", "add.stats")


class FeedGap(Exception):
    """An entry of the log that was not merged yet, or a file of it, is gone."""


@dataclass(frozen=True, order=True, slots=True)
class ChangePosition:
    """All versions below ``version`` are merged, and so many ``files`` of this one."""

    version: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The next files to merge, in order of arrival; ``end`` is the position behind them.

    ``first`` is the version that has added the first of them.
    """

    files: tuple[TableFile, ...]
    end: ChangePosition
    first: int
    is_last: bool


class _Counted(msgspec.Struct):
    """Statistics of a file; only the number of rows is decoded."""

    numRecords: int | None = None  # noqa: N815 - the name of the format


_STATS = msgspec.json.Decoder(_Counted)


class ChangeFeed:
    """The files that the versions of one table added. Not thread-safe."""

    def __init__(self, storage: Storage, log: LogReader) -> None:
        self._storage = storage
        self._log = log
        self._held: dict[int, tuple[TableFile, ...]] = {}

    def forget(self) -> None:
        """Read all entries again: another log may be in their place."""
        self._held.clear()

    def next_batch(self, start: ChangePosition, until: int) -> ChangeBatch:
        """Return the next files from ``start`` up to version ``until``. Raises `FeedGap`."""
        files: list[TableFile] = []
        rows, first = 0, start.version
        for place, file in self._pending(start, until):
            if files and rows + (file.rows or 0) > ROWS_AT_ONCE:
                return ChangeBatch(tuple(files), place, first, is_last=False)
            first = first if files else place.version
            files.append(file)
            rows += file.rows or 0
        return ChangeBatch(tuple(files), ChangePosition(until + 1), first, is_last=True)

    def paths_since(self, start: ChangePosition, until: int) -> set[str]:
        """Return the paths of files that are not merged yet, of the first versions at least."""
        end = min(until, start.version + _HELD)
        return {file.spelled for _, file in self._pending(start, end)}

    def _pending(
        self, start: ChangePosition, until: int
    ) -> Iterator[tuple[ChangePosition, TableFile]]:
        for version in range(start.version, until + 1):
            merged = start.files if version == start.version else 0
            for number, file in enumerate(self._added(version, until)):
                if number >= merged:
                    yield ChangePosition(version, number), file

    def _added(self, version: int, until: int) -> tuple[TableFile, ...]:
        if version not in self._held:
            if len(self._held) >= _HELD:
                self._held.clear()
            ahead = range(version, min(version + _AT_ONCE, until + 1))
            self._held |= zip(ahead, self._log.pool.map(self._read, ahead), strict=True)
        return self._held[version]

    def _read(self, version: int) -> tuple[TableFile, ...]:
        actions = read_commit(self._storage, version, ("add",))
        where = f"{self._storage.uri}/{commit_path(version)}"
        if actions is None:
            raise FeedGap(where)
        columns = columns_in(actions, _WANTED, where)
        adds = zip(*(columns[name] for name in _WANTED), strict=True)
        return tuple(
            TableFile(inside(path, self._storage.uri), path, size, _count(stats), _text(values))
            for path, size, values, change, stats in adds
            if change is not False
        )


def _count(stats: Any) -> int | None:
    try:
        return _STATS.decode(stats).numRecords
    except (msgspec.MsgspecError, TypeError):
        return None  # statistics are optional; then only whole files bound a batch


def _text(values: Any) -> Mapping[str, str | None]:
    return values if isinstance(values, dict) else {}


def pieces_of(
    storage: Storage, files: Sequence[TableFile], schema: pa.Schema
) -> Iterator[tuple[pa.Table, set[str]]]:
    """Yield the rows of files in order, as many at a time as are merged at once.

    With each piece come the paths, as the log spells them, of the files that it has rows of. A
    large file is read by row groups. Raises `FeedGap` if a file is gone.
    """
    found: list[pa.Table] = []
    read: set[str] = set()
    try:
        for file in files:
            for groups in _groups_at_once(storage, file):
                rows = read_rows(storage, file, schema, groups)
                if found and sum(map(len, found)) + len(rows) > ROWS_AT_ONCE:
                    yield pa.concat_tables(found), read
                    found, read = [], set()
                found.append(rows)
                read.add(file.spelled)
    except NotFound as error:
        raise FeedGap(str(error)) from error
    if found:
        yield pa.concat_tables(found), read


def _groups_at_once(storage: Storage, file: TableFile) -> Iterator[list[int] | None]:
    if (file.rows or 0) <= ROWS_AT_ONCE:
        yield None
        return
    groups: list[int] = []
    rows = 0
    for place, count in enumerate(row_group_sizes(storage, file)):
        if groups and rows + count > ROWS_AT_ONCE:
            yield groups
            groups, rows = [], 0
        groups.append(place)
        rows += count
    yield groups

"""Files of both tables, their rows, and the changes that are not merged yet.

All versions of the change table below a position are merged. Only adds of new rows count:
compactions move rows that were merged. If an entry of the log or a file is gone, `FeedGap` says so;
then all active files are merged again, which changes nothing that was merged before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.delta_json import columns_in, commit_path, logged_rows, read_commit, relative
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.active_files import spelled_value
from penguin_py.delta.entry import removal_path
from penguin_py.delta.log import LogReader
from penguin_py.groups.rows import Rewritten, open_parquet
from penguin_py.model import CommitConflict, Remove

# So many rows are merged at once, one row group at least; they and their keys are in memory.
ROWS_AT_ONCE = 500_000
# So many rows are merged by one commit, one version at least.
ROWS_A_COMMIT = 10_000_000
# So many rows are decoded at once.
_BATCH_ROWS = 1 << 16
# Entries of versions that are read at the same time.
_AT_ONCE = 16
_WANTED = ("add.path", "add.size", "add.partitionValues", "add.dataChange", "add.stats")


class FeedGap(CommitConflict):
    """An entry of the log that was not merged yet, or a file of it, is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class TableFile:
    """A file of a table: its path in the directory, and as the log spells it.

    ``rows`` is None if the log does not say. ``values`` are those of the partition columns, as
    text. ``made`` is set for new files.
    """

    path: str
    spelled: str
    size: int
    rows: int | None
    values: Mapping[str, str | None] = field(default_factory=dict)
    made: Rewritten | None = None

    @property
    def removal(self) -> Remove:
        """The ``remove`` of the file. Raises `SchemaMismatch` if none can name it."""
        return Remove(removal_path(self.spelled), self.size, self.values)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The next files to merge, in order of arrival, of versions up to ``until``.

    ``first`` is the version that has added the first of them; None: they are all active files.
    """

    files: Sequence[TableFile]
    until: int
    first: int | None = None


def active_files(active: pa.Table, root: str, partitions: Sequence[str] = ()) -> list[TableFile]:
    """Return the files of delta-rs's flattened table, in order of writing.

    Raises `SchemaMismatch` for a file outside of the table's directory.
    """
    active = active.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    names = ["path", "size_bytes", "num_records", *(f"partition.{name}" for name in partitions)]
    found = (tuple(file.values()) for file in active.select(names).to_pylist())
    return [
        TableFile(
            _inside(path, root),
            path,
            size,
            rows,
            dict(zip(partitions, map(spelled_value, values), strict=True)),
        )
        for path, size, rows, *values in found
    ]


def next_batch(storage: Storage, log: LogReader, start: int, until: int) -> ChangeBatch:
    """Return the next files that versions from ``start`` on have added. Raises `FeedGap`."""
    files: list[TableFile] = []
    rows, first = 0, start
    for low in range(start, until + 1, _AT_ONCE):
        versions = range(low, min(low + _AT_ONCE, until + 1))
        found = log.pool.map(partial(_read_version, storage), versions)
        for version, added in zip(versions, found, strict=True):
            more = sum(file.rows or 0 for file in added)
            if rows and rows + more > ROWS_A_COMMIT:
                return ChangeBatch(files, version - 1, first)
            first = first if files else version
            files += added
            rows += more
    return ChangeBatch(files, until, first)


def _read_version(storage: Storage, version: int) -> list[TableFile]:
    actions = read_commit(storage, version, ("add",))
    where = f"{storage.uri}/{commit_path(version)}"
    if actions is None:
        raise FeedGap(f"{where} is gone")
    adds = zip(*columns_in(actions, _WANTED, where).values(), strict=True)
    return [
        TableFile(_inside(path, storage.uri), path, size, logged_rows(stats), values or {})
        for path, size, values, change, stats in adds
        if change is not False
    ]


def _inside(spelled: str, root: str) -> str:
    if (path := relative(spelled, root)) is None:
        text = "is outside of the table's directory; rewrite the table's files there"
        raise SchemaMismatch(f"{spelled} {text}")
    return path


def pieces_of(
    storage: Storage, files: Iterable[TableFile], schema: pa.Schema
) -> Iterator[tuple[pa.Table, set[str]]]:
    """Yield the rows of files in order, as many at a time as are merged at once.

    With each piece come the paths, as the log spells them, of the files that it has rows of. Files
    are read by row groups. Raises `FeedGap` if a file is gone.
    """
    found: list[pa.Table] = []
    read: set[str] = set()
    try:
        for file in files:
            with open_parquet(storage, file.path, file.size) as parquet:
                for number in range(parquet.num_row_groups):
                    rows = read_rows(parquet, file, schema, [number])
                    if found and sum(map(len, found)) + len(rows) > ROWS_AT_ONCE:
                        yield pa.concat_tables(found), read
                        found, read = [], set()
                    found.append(rows)
                    read.add(file.spelled)
    except NotFound as error:
        raise FeedGap(f"{error} is gone") from error
    if found:
        yield pa.concat_tables(found), read


def read_rows(
    parquet: pq.ParquetFile, file: TableFile, schema: pa.Schema, groups: Sequence[int] | None = None
) -> pa.Table:
    """Return rows of a file, or of some of its row groups, in the columns of ``schema``.

    Raises `SchemaMismatch` for a file that cannot be read so.
    """
    there = parquet.schema_arrow
    names = [name for name in schema.names if name in there.names]
    if not names or any("." in name for name in names):
        names = there.names  # by a name with a dot Arrow finds fields of structs, too
    # One row group after the other in the same memory: new memory costs as much as decoding.
    batches = parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names)
    found = pa.Table.from_batches(batches, pa.schema([there.field(name) for name in names]))
    return fitted(found, file, schema)


def fitted(rows: pa.Table, file: TableFile, schema: pa.Schema) -> pa.Table:
    """Return a file's rows in the columns of ``schema``; null where the file lacks one.

    Raises `SchemaMismatch` for rows of unrelated types.
    """
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        try:
            if name in rows.column_names:
                columns.append(rows[name].cast(kind))
            else:
                columns.append(pa.repeat(_value(file.values.get(name), kind), len(rows)))
        except pa.ArrowException as error:
            text = f"{file.path} has {name!r} in a form that is not {kind}: {error}"
            raise SchemaMismatch(text) from error
    return pa.table(columns, schema=schema)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value by its column's type; null is spelled as nothing, too."""
    if text and pa.types.is_timestamp(kind) and kind.tz is not None:
        text = f"{text.removesuffix('Z')}Z"
    return pa.array([text or None]).cast(kind)[0]

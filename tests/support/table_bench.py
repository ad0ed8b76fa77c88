"""The readers' bench: every reader reads the tables of the test suite; the rows must be equal.

After each test deltalake, pyarrow, duckdb and polars read the tables that it left: all of them
where the test is about what stands in files and in the log, elsewhere the first of each shape.
Those in buckets are copied to a disk first, since bytes are what readers differ about. Spark is
asked once, when its session ends: the smallest table of each shape, with what delta-rs had read of
it by then. Any other could be one whose few megabytes fill a JVM's heap. Processes of one run share
the shapes, since most are left in all of them.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from blizzard_core.errors import StorageError
from blizzard_core.storage.protocol import Entry, Storage
from tests.support.penguin_readers import by_dataset, by_spark, rows_of, same_rows
from tests.support.table_harness import TableHarness

# What is larger is a test of sizes, and is not read.
LARGEST_BYTES = 16 << 20
MOST_FILES = 200
# Of all processes of a run; Spark takes half a second for each.
MOST_BY_SPARK = 50
# With these, the files alone do not tell the rows, and not every reader knows them.
NOT_BY_FILES = {"deletionVectors", "columnMapping", "v2Checkpoint"}


@dataclass
class Bench:
    """Tables that were read in this run, by shape: tables of one shape differ in values only.

    ``shapes`` is the smallest table for each set of columns: its bytes and its place.
    """

    shapes: dict[str, tuple[int, str]] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def take(self, roots: Iterable[Path], *, every: bool, stay: bool) -> None:
        """Read tables in these places by every reader but Spark, which may if they ``stay``.

        All of them, or those of a shape that was not read yet.
        """
        for root in roots:
            table = DeltaTable(root)
            if _is_read(table):
                shape = _shape(table)
                if every or shape not in self._read:
                    same_rows(table)
                    self._read.add(shape)
                if stay and table.file_uris():
                    found = sum(_sizes(table)), str(root)
                    self.shapes[shape] = min(self.shapes.get(shape, found), found)

    def is_new(self, root: Path) -> bool:
        """Return whether no table with the shape of this log was read yet."""
        return _shape(DeltaTable(root)) not in self._read

    def take_by_spark(self, spark: SparkSession, claims: Path) -> None:
        """Read a table of each shape by Spark, of so many shapes whichever tests ran before.

        Each shape that a process reads has a file in ``claims``, which all processes share.
        """
        claims.mkdir(exist_ok=True)
        order = {shape: zlib.crc32(shape.encode()) for shape in self.shapes}
        for shape in sorted(order, key=order.__getitem__):
            root = self.shapes[shape][1]
            if not Path(root, "_delta_log").is_dir():
                continue
            if len([*claims.iterdir()]) >= MOST_BY_SPARK:
                break
            try:
                (claims / f"{order[shape]:08x}").touch(exist_ok=False)
            except FileExistsError:
                continue
            table = DeltaTable(root)
            partitions = table.metadata().partition_columns
            names = [f.name for f in table.schema().fields if f.name not in partitions]
            rows = by_dataset(table)
            if rows.nbytes > LARGEST_BYTES:
                continue  # a file of kilobytes may be more than a JVM's heap
            expected = rows_of(rows, names)
            found = rows_of(by_spark(table, spark), names)
            assert found == expected, f"{root}: Spark reads {found[:3]}, not {expected[:3]}"


def tables_below(root: Path) -> list[Path]:
    """Every directory below that has a Delta log."""
    return sorted(log.parent for log in root.rglob("_delta_log") if any(log.glob("*.json")))


@contextmanager
def copied(worlds: Iterable[TableHarness], wanted: Callable[[Path], bool]) -> Iterator[list[Path]]:
    """Tables in buckets, on a disk, if they are wanted by their logs.

    Servers that have gone with their test took theirs along.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for number, world in enumerate(worlds):
            root, storage = Path(folder, str(number)), world.storage
            try:
                entries = [e for page in storage.list_range("", None) for e in page.entries]
                if sum(entry.size for entry in entries) > LARGEST_BYTES:
                    continue
                logs = [entry for entry in entries if "_delta_log/" in entry.path]
                _copy(storage, logs, root)
                tables = tables_below(root)
                if not any(map(wanted, tables)):
                    continue
                _copy(storage, entries, root)
            except StorageError:
                continue
            found += tables
        yield found


def _copy(storage: Storage, entries: Iterable[Entry], root: Path) -> None:
    for entry in entries:
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.read(entry.path))


def _is_read(table: DeltaTable) -> bool:
    protocol = table.protocol()
    # Version 2 is that of column mapping, also where it is off: pyarrow refuses it.
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_reader_version == 2 or NOT_BY_FILES & features:
        return False
    sizes = _sizes(table)
    return len(sizes) <= MOST_FILES and sum(sizes) <= LARGEST_BYTES


def _sizes(table: DeltaTable) -> list[int]:
    return table.get_add_actions()["size_bytes"].to_pylist()


def _shape(table: DeltaTable) -> str:
    return f"{table.schema().to_json()} by {table.metadata().partition_columns}"

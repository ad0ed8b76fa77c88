"""The files of a keyed table while merges of it are planned.

A merge reads the keys of files that may have one of the batch, rewrites the files that lose
rows, and the winning changes to a new file. Nothing is committed here. Several batches may be
merged one after the other: their files are then only steps on the way to what one commit brings.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from blizzard_core.storage.file_sink import FileSink
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.delta.replace_entry import removal_path
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.groups.rows import Rewritten, open_parquet, rewrite_rows
from penguin_py.intake.file_statistics import file_statistics, leaf_count
from penguin_py.keyed.files import TableFile
from penguin_py.keyed.matching import Leaving, Matching
from penguin_py.keyed.order import Order
from penguin_py.keyed.pruning import KeyRanges, groups_that_may_meet
from penguin_py.model import Add, Remove, TableState

# Small enough that a later merge can leave out most of a file.
_GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that loses rows: ``masks`` has the leaving ones by row group, ``count`` them all."""

    file: TableFile
    masks: Mapping[int, pa.Array]
    count: int


class FileSet:
    """The files of one keyed table for a commit on one version. Not thread-safe."""

    def __init__(
        self,
        storage: Storage,
        notes: RewriteNotes,
        files: Iterable[TableFile],
        order: Order,
        version: int,
    ) -> None:
        self._storage = storage
        self._notes = notes
        self._order = order
        self._version = version
        self._before = {file.path: file for file in files}
        self._files = dict(self._before)
        self._made: dict[str, Rewritten] = {}
        self._key: str | None = None
        self._noted: list[str] = []

    def __iter__(self) -> Iterator[TableFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def clear(self) -> None:
        """Begin with no file: all that the table has will leave it."""
        self._files.clear()

    def touched(self, matching: Matching) -> list[Touched]:
        """Let the changes meet all stored rows; return the files that lose some."""
        ranges = KeyRanges(matching.rows, self._order.keys)
        found = []
        for file in self._files.values():
            if ranges.may_meet(file.bounds):
                touched = self._met(file, matching, ranges)
                if touched is not None:
                    found.append(touched)
        return found

    def _met(self, file: TableFile, matching: Matching, ranges: KeyRanges) -> Touched | None:
        with open_parquet(self._storage, file.path, file.size) as parquet:
            keys = list(self._order.keys)
            groups = groups_that_may_meet(parquet.metadata, parquet.schema_arrow, ranges, keys)
            if not groups:
                return None
            leaving = matching.meet(
                parquet.read_row_groups(groups, columns=keys),
                lambda: parquet.read_row_groups(groups, columns=list(self._order.sequence)),
            )
            if leaving is None:
                return None
            sizes = [parquet.metadata.row_group(number).num_rows for number in groups]
            _count_ties(parquet, matching, leaving, groups, sizes)
        starts = np.cumsum([0, *sizes])[:-1].tolist()
        masks = {
            number: leaving.mask.slice(start, size)
            for number, start, size in zip(groups, starts, sizes, strict=True)
        }
        return Touched(file, masks, leaving.count) if leaving.count else None

    def merge(self, touched: Sequence[Touched], winners: pa.Table) -> None:
        """Replace the touched files by what stays of them, and add the winners."""
        remaining = [each for each in touched if each.count != each.file.rows]
        targets = [_target("part-") for _ in remaining]
        new = [_target("")] if winners.num_rows else []
        self._note([*targets, *new])
        made = [
            rewrite_rows(
                self._storage, each.file.path, each.file.size, target, _leaving(each.masks)
            )
            for each, target in zip(remaining, targets, strict=True)
        ]
        made += [_write(self._storage, path, winners) for path in new]
        for each in touched:
            del self._files[each.file.path]
        for written in made:
            rows = written.metadata.num_rows
            if rows:
                file = TableFile(written.path, written.path, written.size, rows)
                self._files[file.path] = file
                self._made[file.path] = written

    def _note(self, paths: Sequence[str]) -> None:
        self._noted += paths
        if paths:
            key = self._notes.announce(self._key, self._version, self._noted)
            # None: another Penguin has seen a later version. Then this commit will not land.
            self._key = key or self._notes.announce(None, self._version, self._noted)

    def adds(self, columns: pa.Schema, state: TableState | None, now: float) -> tuple[Add, ...]:
        """Return the new files, with statistics typed by ``columns``."""
        properties = {} if state is None else state.properties
        found = []
        for path in self._files.keys() - self._before.keys():
            made = self._made[path]
            stats = file_statistics(made.metadata, made.schema, columns, properties)
            found.append(Add(Entry(path, made.size, now), {}, stats, None))
        return tuple(found)

    def removes(self) -> tuple[Remove, ...]:
        """Return the old files that are replaced. Raises `SchemaMismatch`."""
        gone = [file for path, file in self._before.items() if path not in self._files]
        return tuple(Remove(removal_path(file.spelled), file.size, {}) for file in gone)

    @property
    def rewritten_bytes(self) -> int:
        """The bytes of the files that leave the table."""
        return sum(f.size for path, f in self._before.items() if path not in self._files)

    @property
    def rewritten_share(self) -> float:
        """The share of the table's bytes that leaves it."""
        total = sum(file.size for file in self._before.values())
        return self.rewritten_bytes / total if total else 0.0

    def landed(self) -> None:
        """Delete what was written on the way, and forget the names that were noted."""
        for path in self._noted:
            if path not in self._files:
                self._storage.delete(path)
        if self._key is not None:
            self._notes.forget(self._key)


def _count_ties(
    parquet: pq.ParquetFile,
    matching: Matching,
    leaving: Leaving,
    groups: Sequence[int],
    sizes: Sequence[int],
) -> None:
    """Count stored rows that tie with a change and differ from it, a row group at a time."""
    places = leaving.equal.to_numpy()
    start = 0
    for number, size in zip(groups, sizes, strict=True):
        inside = places[(places >= start) & (places < start + size)] - start
        if len(inside):
            matching.count_ties(parquet.read_row_group(number).take(pa.array(inside)))
        start += size


def _leaving(masks: Mapping[int, pa.Array]) -> Callable[[int, pa.Table], pa.Array]:
    return lambda number, rows: masks.get(number, pa.repeat(False, rows.num_rows))


def _target(kind: str) -> str:
    """Return a new name that listings ignore."""
    return f"{UNIT_FILE_PREFIX}{kind}{uuid.uuid4()}.parquet"


def _write(storage: Storage, path: str, rows: pa.Table) -> Rewritten:
    """Write rows to a new file, durably."""
    schema = rows.schema.with_metadata({NAN_COLUMNS_KEY: _nan_columns(rows)})
    collected: list[pq.FileMetaData] = []
    sink = FileSink(storage.open_output(path), f"{storage.uri}/{path}")
    try:
        with pq.ParquetWriter(
            sink, schema, compression="zstd", metadata_collector=collected
        ) as writer:
            writer.write_table(rows.cast(schema), row_group_size=_GROUP_ROWS)
    finally:
        sink.close()
    storage.sync(path)
    return Rewritten(path, sink.written, collected[0], schema)


def _nan_columns(rows: pa.Table) -> str:
    """Return the numbers of the columns that may hold NaN: flat ones that do, all nested ones."""
    found: list[int] = []
    place = 0
    for column in rows.schema:
        count = leaf_count(column.type)
        if pa.types.is_nested(column.type):
            found += range(place, place + count)
        elif pa.types.is_floating(column.type) and pc.any(pc.is_nan(rows[column.name])).as_py():
            found.append(place)
        place += count
    return ",".join(map(str, found))

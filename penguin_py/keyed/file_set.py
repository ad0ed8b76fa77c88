"""The files of a keyed table while merges of it are planned.

A merge reads the keys of files that may have one of the batch, rewrites the files that lose
rows, and the winning changes to a new file. Nothing is committed here. Several pieces may be
merged one after the other: their files are then only steps on the way to what one commit brings.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.groups.rows import Rewritten, open_parquet, rewrite_rows, write_rows
from penguin_py.intake.file_statistics import file_statistics, leaf_count
from penguin_py.keyed.changes import TableFile, active_files, fitted, read_rows
from penguin_py.keyed.matching import Leaving, Matching
from penguin_py.keyed.order import Order
from penguin_py.keyed.pruning import may_hold
from penguin_py.model import Add, Remove

# Small enough that a later merge can leave out most of a file.
_GROUP_ROWS = 1 << 17


class FileSet:
    """The files of one keyed table for a commit on one version. Not thread-safe.

    ``schema`` is that of its rows; ``active`` are its files as delta-rs's flattened table, None
    before the first merge. The commit is planned on ``version``.
    """

    def __init__(
        self,
        storage: Storage,
        notes: RewriteNotes,
        order: Order,
        schema: pa.Schema,
        active: pa.Table | None,
        version: int,
    ) -> None:
        self._storage, self._notes = storage, notes
        self._schema, self._version = schema, version
        self._keys, self._sequence = (
            pa.schema([schema.field(name) for name in names])
            for names in (order.keys, order.sequence)
        )
        self._active = active
        files = [] if active is None else active_files(active, storage.uri)
        self._before = {file.path: file for file in files}
        self._files = dict(self._before)
        self._key: str | None = None
        self._noted: list[str] = []

    def __iter__(self) -> Iterator[TableFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def clear(self) -> None:
        """Begin with no file: all that the table has will leave it."""
        self._files.clear()

    def touched(self, matching: Matching) -> dict[TableFile, Leaving]:
        """Let the changes meet all stored rows; return the files that lose some."""
        found: dict[TableFile, Leaving] = {}
        if not len(matching):
            return found
        passed: set[str] = set()
        if self._active is not None:  # files without a key of the changes, by their bounds
            rows, active = matching.rows, self._active
            may = (may_hold(active, n, rows[n].combine_chunks()) for n in self._keys.names)
            passed = set(active["path"].filter(pc.invert(reduce(pc.and_, may))).to_pylist())
        for file in self._files.values():
            if file.spelled in passed:
                continue
            with open_parquet(self._storage, file.path, file.size) as parquet:
                keys = read_rows(parquet, file, self._keys)
                leaving = matching.meet(keys, partial(read_rows, parquet, file, self._sequence))
            if leaving is not None:
                found[file] = leaving
        return found

    def merge(self, touched: Mapping[TableFile, Leaving], matching: Matching) -> None:
        """Replace the touched files by what stays of them, and add the winners."""
        winners = matching.winners().select(self._schema.names)
        partly = {file: _target("part-") for file, each in touched.items() if not each.is_complete}
        new = [_target("")] if winners.num_rows else []
        self._note([*partly.values(), *new])
        made = [self._rewrite(each, touched[each], partly[each], matching) for each in partly]
        made += [_write(self._storage, path, winners) for path in new]
        for file in touched:
            del self._files[file.path]
        for each in made:
            if rows := each.metadata.num_rows:
                self._files[each.path] = TableFile(each.path, each.path, each.size, rows, made=each)

    def _rewrite(
        self, file: TableFile, leaving: Leaving, target: str, matching: Matching
    ) -> Rewritten:
        start = 0

        def leave(rows: pa.Table) -> pa.Array:
            nonlocal start
            inside = slice(start, start + len(rows))
            start += len(rows)
            if len(tied := rows.filter(leaving.equal[inside])):
                matching.count_ties(fitted(tied, file, self._schema))
            return leaving.mask[inside]

        return rewrite_rows(self._storage, file.path, file.size, target, leave)

    def _note(self, paths: Sequence[str]) -> None:
        self._noted += paths
        if paths:
            key = self._notes.announce(self._key, self._version, self._noted)
            # None: another Penguin has seen a later version. Then this commit will not land.
            self._key = key or self._notes.announce(None, self._version, self._noted)

    def adds(self, properties: Mapping[str, str], now: float) -> tuple[Add, ...]:
        """Return the new files, with statistics by the table's columns and ``properties``."""

        def stats(made: Rewritten) -> str:
            return file_statistics(made.metadata, made.schema, self._schema, properties)

        made = [file.made for file in self._files.values() if file.made is not None]
        return tuple(Add(Entry(each.path, each.size, now), {}, stats(each), None) for each in made)

    def removes(self) -> tuple[Remove, ...]:
        """Return the old files that are replaced. Raises `SchemaMismatch`."""
        return tuple(f.removal for path, f in self._before.items() if path not in self._files)

    def share(self, size: int) -> float:
        """Return the share of so many bytes of the table as it was."""
        return size / max(1, sum(file.size for file in self._before.values()))

    def close(self, *, has_landed: bool) -> None:
        """Delete what was written and is not in the log, and forget the names that were noted."""
        for path in self._noted:
            if not has_landed or path not in self._files:
                self._storage.delete(path)
        if self._key is not None:
            self._notes.forget(self._key)


def _target(kind: str) -> str:
    """Return a new name that listings ignore."""
    return f"{UNIT_FILE_PREFIX}{kind}{uuid.uuid4()}.parquet"


def _write(storage: Storage, path: str, rows: pa.Table) -> Rewritten:
    rows = rows.replace_schema_metadata({NAN_COLUMNS_KEY: _nan_columns(rows)})
    groups = (rows.slice(at, _GROUP_ROWS) for at in range(0, len(rows), _GROUP_ROWS))
    return write_rows(storage, path, rows.schema, groups, compression="zstd")


def _nan_columns(rows: pa.Table) -> str:
    """Return the numbers of the columns that may hold NaN: flat ones that do, all nested ones."""
    found: list[int] = []
    place = 0
    for kind, column in zip(rows.schema.types, rows.columns, strict=True):
        end = place + leaf_count(kind)
        is_real = pa.types.is_floating(kind)
        if pa.types.is_nested(kind) or (is_real and pc.any(pc.is_nan(column)).as_py()):
            found += range(place, end)
        place = end
    return ",".join(map(str, found))

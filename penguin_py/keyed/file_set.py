"""The files of a keyed table while merges of it are planned.

A merge reads the keys of files that may have one of the batch, rewrites the files that lose
rows, and the winning changes to a new file. Nothing is committed here. Several pieces may be
merged one after the other: their files are then only steps on the way to what one commit brings.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.nan_columns import nan_columns
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.groups.rows import Rewritten, open_parquet, rewrite_rows, write_rows
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
    before the first merge. The commit is planned on ``version``. ``files`` are those that stay, and
    new ones, by their paths.
    """

    def __init__(
        self,
        storage: Storage,
        notes: RewriteNotes,
        order: Order,
        schema: pa.Schema,
        active: pa.Table | None = None,
        version: int = -1,
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
        self.files = dict(self._before)
        self._key: str | None = None
        self._noted: list[str] = []

    def touched(self, matching: Matching) -> dict[TableFile, Leaving]:
        """Let the changes meet all stored rows; return the files that lose some."""
        found: dict[TableFile, Leaving] = {}
        passed: set[str] = set()
        if self._active is not None:  # files without a key of the changes, by their bounds
            rows, active = matching.rows, self._active
            may = (may_hold(active, n, rows[n].combine_chunks()) for n in self._keys.names)
            passed = set(active["path"].filter(pc.invert(reduce(pc.and_, may))).to_pylist())
        for file in self.files.values():
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
            del self.files[file.path]
        for each in made:
            if rows := each.metadata.num_rows:
                self.files[each.path] = TableFile(each.path, each.path, each.size, rows, made=each)

    def _rewrite(self, file: TableFile, leaving: Leaving, target: str, by: Matching) -> Rewritten:
        start = 0

        def leave(rows: pa.Table) -> pa.Array:
            nonlocal start
            inside = slice(start, start + len(rows))
            start += len(rows)
            if len(tied := rows.filter(leaving.equal[inside])):
                by.count_ties(fitted(tied, file, self._schema))
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
        made = [file.made for file in self.files.values() if file.made is not None]
        return tuple(each.add(self._schema, properties, now) for each in made)

    def removes(self) -> tuple[Remove, ...]:
        """Return the old files that are replaced. Raises `SchemaMismatch`."""
        return tuple(f.removal for path, f in self._before.items() if path not in self.files)

    def share(self, size: int) -> float:
        """Return the share of so many bytes of the table as it was."""
        return size / max(1, sum(file.size for file in self._before.values()))

    def close(self, *, has_landed: bool) -> None:
        """Delete what was written and is not in the log, and forget the names that were noted."""
        for path in self._noted:
            if not has_landed or path not in self.files:
                self._storage.delete(path)
        if self._key is not None:
            self._notes.forget(self._key)


def _target(kind: str) -> str:
    """Return a new name that listings ignore."""
    return f"{UNIT_FILE_PREFIX}{kind}{uuid.uuid4()}.parquet"


def _write(storage: Storage, path: str, rows: pa.Table) -> Rewritten:
    nan = ",".join(map(str, sorted(nan_columns(rows))))
    rows = rows.replace_schema_metadata({NAN_COLUMNS_KEY: nan})
    groups = (rows.slice(at, _GROUP_ROWS) for at in range(0, len(rows), _GROUP_ROWS))
    return write_rows(storage, path, rows.schema, groups, compression="zstd")

"""Checkpoints of the Delta log, read through the storage: the paths that they know.

Formats: https://github.com/delta-io/delta/blob/master/PROTOCOL.md. What is not understood is a
`StateError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.delta_json import relative
from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.storage.protocol import Storage
from penguin_py.model import Known, Telling

_CHECKPOINT_COLUMNS = (
    "add.path",
    "add.modificationTime",
    "add.dataChange",
    "remove.path",
    "remove.deletionTimestamp",
    "txn.appId",
    "txn.version",
    "sidecar.path",
)
CHECKPOINT_REMEDY = (
    "If the commits before it, or an older checkpoint, are still there, delete it; else restore it"
    " from a backup"
)
# In milliseconds: the numbers of the log have 64 bits.
_LATEST = 2**63
# Where each kind of action has a time.
TIMES = (("add", "modificationTime"), ("remove", "deletionTimestamp"))


def told_by(kind: str, data_change: Any) -> Telling:
    """What an action of this kind says of its path."""
    if kind == "remove":
        return "removal"
    return "rewrite" if data_change is False else "data"


def known_at(path: str, millis: Any, told: Telling, root: str) -> Iterator[Known]:
    """What the log says of a path; nothing of one outside of the table's directory ``root``."""
    plain = relative(path, root)
    if plain is not None:
        yield Known(plain, 0, _seconds(millis), told)


def _seconds(millis: Any) -> float:
    """A time of the log; 0 for what is none, also where it has more digits than any time."""
    return millis / 1000 if isinstance(millis, int) and abs(millis) < _LATEST else 0.0


def checkpoint_paths(storage: Storage, path: str, transactions: dict[str, int]) -> Iterator[Known]:
    """The paths of one checkpoint file, batch by batch."""
    where = f"{storage.uri}/{path}"
    try:
        raw = storage.read(path)
    except NotFound as error:
        raise Unavailable(f"{where}: was cleaned up while the log was read") from error
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        names = {file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)}
        columns = [name for name in _CHECKPOINT_COLUMNS if name in names]
        for batch in file.iter_batches(columns=columns):
            for kind, key in TIMES:
                yield from _batch_paths(batch, kind, key, storage.uri)
            apps, numbers = _field(batch, "txn", "appId"), _field(batch, "txn", "version")
            named = zip(apps, numbers, strict=True)
            transactions.update({app: number for app, number in named if app is not None})
            if any(_field(batch, "sidecar", "path")):
                raise StateError(f"{where}: has sidecar files, which are not supported here")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StateError(
            f"{where}: is not a readable checkpoint ({error}). {CHECKPOINT_REMEDY}"
        ) from error


def _batch_paths(batch: pa.RecordBatch, kind: str, key: str, root: str) -> Iterator[Known]:
    paths = _field(batch, kind, "path")
    nothing = [None] * len(paths)
    times = _field(batch, kind, key) or nothing
    changes = (_field(batch, kind, "dataChange") if kind == "add" else None) or nothing
    for path, millis, change in zip(paths, times, changes, strict=True):
        if path is not None:
            yield from known_at(path, millis, told_by(kind, change), root)


def _field(batch: pa.RecordBatch, kind: str, name: str) -> list[Any]:
    """One field of an action's column as a list; empty if the checkpoint lacks it."""
    position = batch.schema.get_field_index(kind)
    if position < 0 or batch.schema.field(position).type.get_field_index(name) < 0:
        return []
    column = batch.column(position)
    # `field` ignores the struct's own nulls, `flatten` applies them.
    values: list[Any] = column.flatten()[column.type.get_field_index(name)].to_pylist()
    return values

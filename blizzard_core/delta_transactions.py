"""Newest ``txn`` of each application in a Delta log. Reads only.

They outlive log clean-up, since each log checkpoint repeats them. So they tell how far a source's
work is in a table, however old its newest commit. A log is read from its newest checkpoint on,
and of that the two columns of ``txn`` alone.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.checkpoint.decode import decoded
from blizzard_core.checkpoint.document import parsed
from blizzard_core.delta_checkpoint import newest_checkpoint
from blizzard_core.delta_json import COMMIT, LOG, commit_path, listed, read_each
from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile

_COLUMNS = ("txn.appId", "txn.version")
_NEWEST = 1 << 62


@dataclass(frozen=True, slots=True)
class _Transaction:
    appId: str  # noqa: N815  # the protocol's name
    version: int


@dataclass(frozen=True, slots=True)
class _Action:
    txn: _Transaction | None = None


def newest_transactions(storage: Storage, concurrency: int) -> Mapping[str, int]:
    """Return the version of each application's newest ``txn``; empty where there is no log.

    Costs a GET and a LIST, a few ranges of a log checkpoint, and a GET for each commit behind it.
    Raises `StateError` for what is not understood, `StorageError`.
    """
    found: dict[str, int] = {}
    try:
        checkpoint = newest_checkpoint(storage, _NEWEST)
    except NotFound:  # a local directory that nothing was written to yet
        return found
    after = -1
    if checkpoint is not None:
        after, parts = checkpoint
        for part in parts:
            found |= _of_checkpoint(storage, part)
    start = f"{LOG}/" if after < 0 else commit_path(after)
    names = (entry.path for entry in listed(storage, start, f"{LOG}/:"))  # ":" follows "9"
    commits = iter([path for path in names if COMMIT.fullmatch(path)])
    for where, raw in read_each(storage, commits, concurrency):
        found |= _of_commit(raw, where)
    return found


def _of_commit(raw: bytes, where: str) -> dict[str, int]:
    lines = (line for line in raw.split(b"\n") if b'"txn"' in line)
    told = (decoded(_Action, parsed(line, where), where, open_=True).txn for line in lines)
    return {txn.appId: txn.version for txn in told if txn is not None}


def _of_checkpoint(storage: Storage, path: str) -> dict[str, int]:
    where = f"{storage.uri}/{path}"
    entry = storage.stat(path)
    if entry is None:
        raise Unavailable(f"{where}: was cleaned up while the log was read")
    found: dict[str, int] = {}
    try:
        with pq.ParquetFile(pa.PythonFile(RangeFile(storage, path, entry.size), mode="r")) as file:
            schema = file.metadata.schema
            names = {schema.column(i).path for i in range(file.metadata.num_columns)}
            if not names.issuperset(_COLUMNS):
                return found
            for batch in file.iter_batches(columns=list(_COLUMNS)):
                apps, versions = (each.to_pylist() for each in batch.column(0).flatten())
                named = zip(apps, versions, strict=True)
                found.update({app: version for app, version in named if app is not None})
    except NotFound as error:
        raise Unavailable(f"{where}: was cleaned up while the log was read") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StateError(
            f"{where}: is not a readable checkpoint of the log ({error}); restore it, or delete it"
            " if an older one and the commits behind it are there"
        ) from error
    return found

"""A foreign Delta log: entries, checkpoints, and the table as delta-rs opens it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from blizzard_core import delta_json
from blizzard_core.errors import BlizzardError, SourceError, StateError, StorageError
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.table.committed import lost_folders, paths_in
from blizzard_py.connections.lakes import delta_log
from blizzard_py.connections.lakes.sink_table import sink_table
from penguin_py.delta.active_files import bounds_in
from penguin_py.delta.log import COMMON_APP_ID, LogReader
from penguin_py.delta.table import DeltaLog
from penguin_py.settings import tables_of
from tests.fuzz.mutate import json_lines
from tests.fuzz.mutate import parquet as mutated
from tests.fuzz.target import Target, hold
from tests.support.memory_store import MemoryStorage

_APP = "penguin-events"
_CHECKPOINT = f"{delta_json.LOG}/{0:020d}.checkpoint.parquet"


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def _refused(action: Callable[[], object]) -> bool:
    """Return whether the action raises an error that the log's readers may raise."""
    try:
        action()
    except (StateError, StorageError) as error:
        hold("a message is bounded", len(str(error)) < 20_000, len(str(error)))
        return True
    return False


def entries(data: bytes) -> None:
    """Read a log entry, or refuse it by name, with each reader of entries."""
    store = MemoryStorage()
    store.objects[delta_json.commit_path(0)] = (data, 0.0)
    store.objects[f"{delta_json.LOG}/_last_checkpoint"] = (data.partition(b"\n")[0], 0.0)
    reader = LogReader(store, _pool())
    refused = _refused(lambda: delta_json.read_commit(store, 0))
    known = _refused(lambda: list(reader.known_paths(0)))
    hold("whoever reads the paths reads the entry", known or not refused)
    _refused(lambda: reader.news(-1, 0))
    _refused(lambda: reader.penguin_news(-1, 0))
    _refused(lambda: reader.last_own_commit(_APP, 1, 0))
    _refused(lambda: reader.paths_of(["p/s/b/1/0"], 0))
    _refused(reader.features)
    _refused(lambda: list(paths_in(data, "mem://log", store.uri, "add")))
    _refused(lambda: lost_folders(store, [*delta_json.commit_entries(store)], 1))
    _refused(lambda: sink_table(store))
    with contextlib.suppress(SourceError):
        delta_log.parsed(data, 0, "mem://log")
    for line in data.split(b"\n"):
        bounds_in(line.decode("utf-8", "replace"), "_unit")


def checkpoints(data: bytes) -> None:
    """Read a checkpoint of the log, or refuse it by name."""
    store = MemoryStorage()
    store.objects[_CHECKPOINT] = (data, 0.0)
    _refused(lambda: list(LogReader(store, _pool()).known_paths(0, {})))
    _refused(lambda: delta_json.newest_transactions(store, 1))
    _refused(lambda: sink_table(store))


def table(data: bytes) -> None:
    """Open a table, or refuse it by name; delta-rs does not end the process."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder, delta_json.LOG, f"{0:020d}.json")
        path.parent.mkdir()
        path.write_bytes(data)
        [settings] = tables_of(_config(folder))
        try:
            DeltaLog(settings, open_storage(folder, {}), _pool()).refresh()
        except BlizzardError as error:
            hold("a message is bounded", len(str(error)) < 20_000, len(str(error)))


def _config(folder: str) -> Config:
    return Config.model_validate({"tables": {"events": {"table_uri": folder}}})


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _entry_seeds() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        rows = pa.table({"id": [1], "_unit": ["2024-01-28/a"], "date": ["2024-01-28"]})
        write_deltalake(folder, rows, partition_by=["date"])
        yield Path(folder, delta_json.LOG, f"{0:020d}.json").read_bytes()
    ours = {"app_id": _APP, "commit_id": "c", "output_ids": ["p/s/b/1/0"], "progress": {}}
    actions = [
        {"commitInfo": {"timestamp": 1, "penguin": ours}},
        {"txn": {"appId": _APP, "version": 1}},
        {"txn": {"appId": COMMON_APP_ID, "version": 1}},
        {"add": {"path": "date=1/a%20b.parquet", "size": 1, "partitionValues": {"date": None},
                 "modificationTime": 1, "dataChange": True,
                 "stats": '{"minValues":{"_unit":"a"},"nullCount":{"_unit":0}}'}},
        {"remove": {"path": "s3:/other/x", "deletionTimestamp": 1, "dataChange": False}},
        {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                      "readerFeatures": ["deletionVectors"], "writerFeatures": ["rowTracking"]}},
        {"version": 0, "size": 1},
    ]  # fmt: skip
    yield "\n".join(map(json.dumps, actions)).encode()
    yield b'{"version":3}\n'


def _checkpoint_seeds() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(folder, pa.table({"id": [1]}))
        DeltaTable(folder).create_checkpoint()
        yield Path(folder, _CHECKPOINT).read_bytes()


def _table_seeds() -> Iterator[bytes]:
    for seed in _entry_seeds():
        if b'"metaData"' in seed:
            yield seed


TARGETS = (
    Target("delta-entries", entries, _entry_seeds, json_lines),
    Target("delta-checkpoints", checkpoints, _checkpoint_seeds, mutated, max_bytes=1 << 16),
    Target("delta-table", table, _table_seeds, json_lines),
)

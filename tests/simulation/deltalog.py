"""The product's `DeltaLog` on the simulated store, which replaces delta-rs.

Entries are those of the Delta protocol, made with put-if-absent, and log checkpoints are
Parquet. What decides about landing, conflicts and recovery stays the product's own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError

from blizzard_core import delta_json
from blizzard_core.errors import Conflict, NotFound, StorageError
from penguin_py.delta import log as deltalog
from penguin_py.delta.active_files import ActiveFiles
from penguin_py.delta.table import DeltaLog
from penguin_py.delta.writer import LogWriter, Marks
from penguin_py.model import CommitPlan, TableState
from tests.simulation.engine import rows_of
from tests.simulation.store import Client

_PATH = pa.struct(
    [
        ("path", pa.string()),
        ("modificationTime", pa.int64()),
        ("size", pa.int64()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64())])
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64())])
_META = pa.struct([("partitionColumns", pa.list_(pa.string())), ("createdTime", pa.int64())])
_CHECKPOINT = pa.schema([("add", _PATH), ("remove", _REMOVE), ("txn", _TXN), ("metaData", _META)])
# The toy schema never changes but for its partition columns.
_ROW = pa.schema([pa.field("row", pa.string())])
# How often a commit is tried on top of those that came before it.
_RETRIES = 5


@dataclass
class Table:
    """A version of the table: what a handle of delta-rs holds."""

    version: int = -1
    transactions: dict[str, int] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    created: float = 0.0
    adds: dict[str, dict[str, Any]] = field(default_factory=dict)
    removes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply(self, actions: list[dict[str, Any]], version: int) -> None:
        """Apply the entry of ``version``."""
        for action in actions:
            for kind, body in action.items():
                match kind:
                    case "txn":
                        self.transactions[body["appId"]] = body["version"]
                    case "metaData":
                        self.partition_columns = tuple(body["partitionColumns"])
                        self.created = body["createdTime"] / 1000
                    case "add":
                        self.adds[body["path"]] = body
                        self.removes.pop(body["path"], None)
                    case "remove":
                        self.adds.pop(body["path"], None)
                        self.removes[body["path"]] = body
        self.version = version

    def transaction_version(self, app_id: str) -> int | None:
        return self.transactions.get(app_id)


class SimulatedLog(DeltaLog):
    """One process's view of the log. ``clock`` is the process's own."""

    def __init__(
        self, table: Any, storage: Any, pool: Any, clock: Callable[[], float], kept_secs: float
    ) -> None:
        super().__init__(table, storage, pool)
        self.writer = SimulatedWriter(table, storage)
        self._clock = clock
        self._kept_secs = kept_secs

    def refresh(self) -> TableState | None:
        self._forget_replaced()
        table = self._handle
        if table is None:
            table = opened(self._storage)
            self._handle = table
            self._current = None
        if table is None:
            return None
        while (actions := delta_json.read_commit(self._storage, table.version + 1)) is not None:
            table.apply(actions, table.version + 1)
        newest = opened(self._storage) if self._table.advanced.delta_log_cleanup else None
        if newest is not None and newest.version > table.version:
            # The entries behind what was read are cleaned up: a log checkpoint has them.
            table = self._handle = newest
            while (actions := delta_json.read_commit(self._storage, table.version + 1)) is not None:
                table.apply(actions, table.version + 1)
        if self._current is None or table.version != self._current.version:
            columns = [*_ROW, *(pa.field(n, pa.string()) for n in table.partition_columns)]
            return self._became(
                TableState(
                    table.version,
                    table.transaction_version(self._table.app_id) or 0,
                    pa.schema(columns),
                    table.partition_columns,
                    table.created,
                )
            )
        return self._current

    def active_files(self) -> ActiveFiles:
        table: Table = self._handle  # type: ignore[assignment]  # ours, as `refresh` left it
        adds = list(table.adds.values())
        count = [len(rows_of(self._storage.read(unquote(add["path"])))) for add in adds]
        partitions = {
            name: pa.array([add["partitionValues"].get(name) for add in adds], pa.string())
            for name in table.partition_columns
        }
        return ActiveFiles(
            pa.array([add["path"] for add in adds], pa.string()),
            pa.array([add["size"] for add in adds], pa.int64()),
            pa.array(count, pa.int64()),
            {},
            partitions,
        )

    def replace_objections(self) -> list[str]:
        return []

    def _chore(self, _action: Callable[[Any], Any]) -> Any:
        """Write a log checkpoint and clean the log up: the only chore that is simulated."""
        self.refresh()
        table = self._handle
        if table is not None:
            checkpoint(self._storage, table)
            if self._table.advanced.delta_log_cleanup:
                clean_up(self._storage, table.version, self._clock() - self._kept_secs)


class SimulatedWriter(LogWriter):
    """Entries by put-if-absent, rebased as delta-rs rebases them."""

    def __init__(self, table: Any, storage: Client) -> None:
        super().__init__(table, {})
        self._storage = storage

    def write(self, handle: Any, plan: CommitPlan, marks: Marks, now: float) -> None:
        table: Table | None = handle
        actions = self._actions(plan, marks, now, table)
        ours = {txn.app_id for txn in self.transactions(table, marks, now)}
        version = 0 if table is None else table.version + 1
        data = "".join(json.dumps(action) + "\n" for action in actions).encode()
        for _ in range(_RETRIES):
            try:
                self._storage.put_if(delta_json.commit_path(version), data, None)
                break
            except Conflict as conflict:
                if plan.replaces:
                    raise CommitFailedError("another commit came first") from conflict
                self._rebase(version, table, ours, conflict)
                version += 1
            except StorageError as error:
                raise OSError(str(error)) from error
        else:
            raise CommitFailedError("too many commits came first")

    def _rebase(
        self, version: int, table: Table | None, ours: set[str], conflict: Conflict
    ) -> None:
        """Check whether a commit can follow the one that landed first, as delta-rs decides."""
        if table is None:
            raise CommitFailedError("there is a table already") from conflict
        won = delta_json.read_commit(self._storage, version) or []
        theirs = {action["txn"]["appId"] for action in won if "txn" in action}
        if ours & theirs:
            raise CommitFailedError("a concurrent transaction of the same id") from conflict

    def _actions(
        self, plan: CommitPlan, marks: Marks, now: float, table: Table | None
    ) -> list[dict[str, Any]]:
        millis = int(now * 1000)
        info = {"timestamp": millis, "operation": "WRITE", deltalog.OUR_KEY: dict(marks.document)}
        found: list[dict[str, Any]] = [{"commitInfo": info}]
        if table is None:
            columns = [
                {"name": f.name, "type": "string", "nullable": True, "metadata": {}}
                for f in plan.schema
            ]
            found += [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {
                    "metaData": {
                        "id": marks.commit_id,
                        "name": self._table.name,
                        "format": {"provider": "parquet", "options": {}},
                        "schemaString": json.dumps({"type": "struct", "fields": columns}),
                        "partitionColumns": list(plan.partition_columns),
                        "configuration": {},
                        "createdTime": millis,
                    }
                },
            ]
        found += [
            {"txn": {"appId": t.app_id, "version": t.version, "lastUpdated": millis}}
            for t in self.transactions(table, marks, now)
        ]
        found += [
            {
                "add": {
                    "path": quote(add.entry.path, safe="/="),
                    "size": add.entry.size,
                    "partitionValues": dict(add.partition_values),
                    "modificationTime": int(add.entry.modified * 1000),
                    "dataChange": True,
                    "stats": add.stats,
                }
            }
            for add in plan.adds
        ]
        found += [
            {
                "remove": {
                    "path": remove.path,
                    "deletionTimestamp": millis,
                    "dataChange": True,
                }
            }
            for remove in plan.removes
        ]
        return found


def opened(storage: Client) -> Table | None:
    """Return the table of its newest log checkpoint, or of version 0; None without a table."""
    names = [
        entry.path.removeprefix(f"{delta_json.LOG}/")
        for page in storage.list_range(f"{delta_json.LOG}/", f"{delta_json.LOG}0")
        for entry in page.entries
    ]
    table = Table()
    for name in sorted((n for n in names if n.endswith(".checkpoint.parquet")), reverse=True):
        try:
            raw = storage.read(f"{delta_json.LOG}/{name}")
        except NotFound:
            continue
        table.apply(_actions_of(raw), int(name[:20]))
        return table
    return table if any(name.endswith(".json") for name in names) else None


@lru_cache(maxsize=64)
def _actions_of(raw: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log checkpoint; the same bytes are parsed once."""
    rows = pq.read_table(pa.BufferReader(raw)).to_pylist()
    for row in rows:
        if row["add"] is not None:
            row["add"]["partitionValues"] = dict(row["add"]["partitionValues"])
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


def checkpoint(storage: Client, table: Table) -> None:
    """Write the log checkpoint of a version."""
    rows: list[dict[str, Any]] = [
        {"txn": {"appId": a, "version": v}} for a, v in table.transactions.items()
    ]
    rows.append(
        {
            "metaData": {
                "partitionColumns": list(table.partition_columns),
                "createdTime": int(table.created * 1000),
            }
        }
    )
    rows += [{"add": body} for body in table.adds.values()]
    rows += [{"remove": body} for body in table.removes.values()]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINT), sink)
    name = f"{delta_json.LOG}/{table.version:020d}.checkpoint.parquet"
    storage.put_atomic(name, sink.getvalue())
    hint = json.dumps({"version": table.version, "size": len(rows)})
    storage.put_atomic(f"{delta_json.LOG}/_last_checkpoint", hint.encode())


def clean_up(storage: Client, version: int, oldest: float) -> None:
    """Delete the entries that a log checkpoint covers, if they were written before ``oldest``."""
    first = f"{delta_json.LOG}/{0:020d}"
    doomed = [
        entry.path
        for page in storage.list_range(first[:-1], delta_json.commit_path(version))
        for entry in page.entries
        if entry.path.endswith(".json") and entry.modified < oldest
    ]
    for path in doomed:
        storage.delete(path)

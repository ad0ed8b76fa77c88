"""Penguin with a small log: the product's cycle, certificates and commit.

It finds outputs by a listing that at times leaves some out, as one that begins at scan starts does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from blizzard_core.delta_json import STAMP_BYTES, anchored, commit_path, stamp_of
from blizzard_core.errors import CommitError, Conflict, NotFound, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.settings.tables import TableSettings
from blizzard_core.storage.protocol import Entry, listed
from blizzard_core.watermark.progress import Progress
from penguin_py.certificates import Certificates
from penguin_py.committer import Committer
from penguin_py.delta.writer import Marks
from penguin_py.model import CommitConflict
from penguin_py.pipeline import TablePipeline
from penguin_py.planning.memory import Memory, Snapshot
from penguin_py.settings import Table
from penguin_py.table.part import TableContext
from penguin_py.table.view import TableView
from tests.simulation.markers.blizzard import LAKE, SOURCE_ID
from tests.simulation.quiet import Quiet

if TYPE_CHECKING:
    from tests.simulation.markers.world import MarkerWorld
    from tests.simulation.scheduler import Owner
    from tests.simulation.store import Client

_TABLE = Table("events", TableSettings(table_uri=LAKE), None, certified=(SOURCE_ID,))


@dataclass(frozen=True, slots=True)
class _State:
    version: int
    table_id: str
    txn_version: int
    anchor: str


@lru_cache(10_000)
def _entry(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw)


class _Log:
    """The table's log and the view of it: each commit is one object with its output ids."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table, self._refused = _TABLE, set[str]()
        self._delta = SimpleNamespace(commit=self._append)
        self._replaced = 0
        self.forget()

    def forget(self) -> None:
        """Read all of it again."""
        self._raw: list[bytes] = []
        self._known: set[str] = set()
        self._inside: set[str] = set()
        self._txn = 0
        self.table_id = ""

    def sync(self) -> Snapshot:
        """Follow the log; read all of it again if it was replaced."""
        if self._raw and self._read(len(self._raw) - 1) != self._raw[-1]:
            self.forget()
            self._replaced += 1
        while (raw := self._read(len(self._raw))) is not None:
            entry = _entry(raw)
            self._raw.append(raw)
            self._known.update(entry["ids"])
            self._inside = set(entry["all"])
            self._txn += entry["ours"]
            self.table_id = self.table_id or entry["table"]
        return self._snapshot()

    def current(self) -> Snapshot:
        """Return the table as it was read, if there is no later version."""
        later = self._raw and self._client.stat(commit_path(len(self._raw))) is None
        return self._snapshot() if later else self.sync()

    def _read(self, version: int) -> bytes | None:
        try:
            return self._client.read(commit_path(version))
        except NotFound:
            return None

    def _snapshot(self) -> Snapshot:
        if not self._raw:
            return Snapshot(None, Memory(Progress()))
        state = _State(
            len(self._raw) - 1, self.table_id, self._txn, anchored(self._raw[-1][:STAMP_BYTES])
        )
        return Snapshot(state, Memory(Progress(), self._txn))  # type: ignore[arg-type]

    @property
    def log_id(self) -> str:
        return f"{self.table_id}/{self._replaced}"

    def has_commit(self, version: int, anchor: str) -> bool:
        """As `TableView.has_commit`; this log is never cleaned up."""
        return anchored(stamp_of(self._client, version)) == anchor

    def output_ids(self, _memory: Memory) -> set[str]:
        return self._known

    def barred_ids(self, _snapshot: Snapshot) -> set[str]:
        return self._inside

    commit = TableView.commit  # the product's own

    def _append(self, plan: Any, marks: Marks, _now: float) -> None:
        """Commit; a commit of another Penguin is a conflict, one of somebody else is not."""
        ids = [add.output_id for add in plan.adds]
        version = len(self._raw)
        while True:
            before = self._read(version - 1) if version else None
            known = _entry(before)["all"] if before else []
            entry = {
                "table": self.table_id or marks.commit_id,
                "id": marks.commit_id,
                "ours": True,
                "ids": ids,
                "all": [*known, *ids],
            }
            data = msgspec.json.encode(entry)
            try:
                self._client.put_if(commit_path(version), data, None)
            except Conflict:
                found = self._read(version)
                if found is None or _entry(found)["ours"]:
                    raise CommitConflict("another Penguin came first") from None
                version += 1
            except Unavailable:
                if self._read(version) != data:
                    raise CommitError("the commit did not land") from None
                return
            else:
                return


class _Committer(Committer):
    def __init__(self, log: _Log, certificates: Certificates) -> None:
        self._view = log  # type: ignore[assignment]  # only what is used
        self._certificates = certificates
        self._log = get_logger()

    def __len__(self) -> int:
        return 0

    def clear(self) -> None:
        """Nothing waits."""


class _Certificates(Certificates):
    def __init__(self, world: MarkerWorld, owner: Owner, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._world, self._owner = world, owner

    def revoke(self) -> None:
        self._world.revoking[self._owner] = self._world.step
        super().revoke()


class _Pool:
    def map(self, fn: Any, *items: Any) -> Iterator[Any]:
        return map(fn, *items)


class Penguin(TablePipeline):
    """One incarnation of the table's daemon; ``cycle`` is the product's."""

    def __init__(self, world: MarkerWorld, owner: Owner, lake: Client) -> None:
        self.activity = Quiet("penguin", lambda _text: None)  # type: ignore[assignment]
        self._world = world
        self._lake = lake
        self._is_prepared = True
        self._view = log = _Log(lake)  # type: ignore[assignment]  # only what is used
        records = SimpleNamespace(records=dict)
        self._certificates = _Certificates(
            world,
            owner,
            TableContext(_TABLE, lake, log, _Pool(), bool, world.clock, self.activity),  # type: ignore[arg-type]  # only what is used
            log,
            records,
        )
        self._committer = _Committer(log, self._certificates)
        self._groups = SimpleNamespace(turn=lambda: False, forget=lambda: None)  # type: ignore[assignment]
        self._swept = None
        self.stop = threading.Event()
        self._outputs: dict[str, str] = {}

    def _cycle(self) -> bool:
        log, chance = self._view, self._world.chance
        snapshot = log.sync()
        found = [e for e in listed(self._lake, "", "_") if e.path.endswith(".parquet")]
        if chance.random() < 0.1:
            found = [e for e in found if chance.random() < 0.5]
        adds: dict[str, Entry] = {}
        for entry in found:
            output = self._output_id(entry.path)
            if output and output not in log.barred_ids(snapshot):
                adds.setdefault(output, entry)
        if not adds:
            return False
        plan = SimpleNamespace(
            adds=[SimpleNamespace(entry=e, output_id=o) for o, e in adds.items()], changed=()
        )
        now = self._world.clock()
        self._committer._commit(plan, snapshot.memory, snapshot.memory.progress, now)  # type: ignore[arg-type]  # as the planner
        return True

    def _output_id(self, path: str) -> str:
        if path not in self._outputs:
            try:
                self._outputs[path] = _entry(self._lake.read(path))["id"]
            except NotFound:
                return ""
        return self._outputs[path]

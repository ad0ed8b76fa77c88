"""Whole merges on real Delta tables: deaths, rivals, compactions, RESTORE, vacuum, clean-up."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from blizzard_core.errors import BlizzardError
from blizzard_core.settings.tables import TableAdvanced, TableSettings
from blizzard_core.storage.opening import delta_options
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed import changes as feed
from penguin_py.keyed.pipeline import KeyedPipeline
from penguin_py.settings import KeyedTable, Table
from tests.chaos.keyed.model import DELETES, Changes, by_key, reduce
from tests.chaos.replacing.faults import Faults, Killed, faulty
from tests.support.faulty_log import around
from tests.support.table_harness import TableHarness

Between = Callable[[], None]


def keyed_table(
    uri: str, keys: tuple[str, ...], sequence: tuple[str, ...], **more: Any
) -> KeyedTable:
    """Return the settings of a keyed table in ``uri``, beside its changes."""
    options = more.pop("options", {})

    def table(name: str, **block: Any) -> Table:
        place = TableSettings.model_validate({"table_uri": f"{uri}/{name}", **block})
        return Table(name, place, {}, options)

    current = table("current", advanced=TableAdvanced(app_id="keyed"), **more.pop("block", {}))
    return KeyedTable(current, table("changes"), keys, sequence, **{"every": 0.0, **more})


@dataclass
class KeyedWorld:
    """A table of changes, its keyed table, and Penguins that merge."""

    keyed: KeyedTable
    pool: Executor
    now: float = 1_800_000_000.0
    faults: Faults | None = None
    # Called between the plan of a commit to the keyed table and the commit.
    between: Between = field(default=lambda: None)

    def __post_init__(self) -> None:
        options = dict(self.keyed.table.storage_options)
        self.changes = TableHarness(self.keyed.changes.uri, self.pool, options)
        self.current = TableHarness(self.keyed.table.uri, self.pool, options)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(
            self.changes.uri,
            rows,
            mode="append",
            schema_mode="merge",
            writer_properties=WriterProperties(max_row_group_size=2),
            storage_options=delta_options(self.changes.uri, self.changes.options, os.environ),
        )

    def penguin(self, *, is_patient: bool = False) -> KeyedPipeline:
        """Return a freshly started Penguin."""
        opened = []
        for table in (self.keyed.changes, self.keyed.table):
            storage = (self.changes if table is self.keyed.changes else self.current).storage
            storage = faulty(storage, self.faults) if self.faults else storage
            opened.append((storage, DeltaLog(table, storage, self.pool)))
        around(opened[1][1], self._commit)
        activity = TableActivity(self.keyed.name, self.keyed.table.uri, lambda: self.now)
        changes, current = opened
        return KeyedPipeline(
            self.keyed, changes, current, lambda: self.now, activity, is_patient=is_patient
        )

    def _commit(self, write: Callable[[], None]) -> None:
        self.between()
        if self.faults is None:
            write()
        else:
            self.faults.around(write, lambda: OSError("the answer was lost"))

    def run(self, penguin: KeyedPipeline | None = None) -> int:
        """Merge until nothing is left; return the number of merges."""
        worker, merges = penguin or self.penguin(), 0
        while worker.cycle(threading.Event()):
            merges += 1
            assert merges < 100
        return merges

    def rows(self) -> list[dict[str, Any]]:
        return self.current.rows()

    def has_current(self) -> bool:
        return self.current.storage.stat(f"_delta_log/{0:020d}.json") is not None

    def clean_log(self) -> None:
        """Clean the change log up and vacuum the table, as others do."""
        table = self.changes.delta()
        table.create_checkpoint()
        for version in range(table.version()):
            self.changes.storage.delete(f"_delta_log/{version:020d}.json")
        table = self.changes.delta()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        self.changes.tampered = True  # entries are gone before their time

    def leftovers(self) -> set[str]:
        """Return files of merges that the log does not know."""
        known = set()
        for version in range(self.current.delta().version() + 1):
            for action in self.current.actions(version):
                known |= {action[k]["path"] for k in ("add", "remove") if k in action}
        return {path.name for path in Path(self.current.uri).glob("unit-*")} - known


def play_on_delta(folder: Path, pool: Executor, seed: int) -> Counter[str]:
    """Play one history. Raises `AssertionError`."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        # Few rows at once, so that merges have several pieces, and a backlog several merges.
        patch.setattr(feed, "ROWS_AT_ONCE", chance.choice([1, 3, 10, 1000]))
        patch.setattr(feed, "ROWS_A_COMMIT", chance.choice([1, 5, 1000]))
        history = _History(folder, pool, chance, Changes(chance, ties=chance.random() < 0.4))
        return history.play()


class _History:
    def __init__(
        self, folder: Path, pool: Executor, chance: random.Random, changes: Changes
    ) -> None:
        self.chance = chance
        self.changes = changes
        keyed = keyed_table(str(folder), changes.keys, changes.sequence, deletes_text=DELETES)
        self.world = KeyedWorld(keyed, pool, faults=Faults(chance, 0.02))
        # delta-rs cuts upper bounds of times to milliseconds, also below the lower ones.
        self.world.changes.tampered = self.world.current.tampered = True
        self.counts: Counter[str] = Counter()
        self.is_wide = False
        self.depth = 0

    def play(self) -> Counter[str]:
        for _ in range(self.chance.randrange(6, 16)):
            self.step()
        assert self.world.faults is not None
        self.world.faults.rate = 0
        self.world.between = lambda: None
        self.append()
        for _ in range(2):  # the second start clears what the last death left
            self.world.run()
        self.append()
        self.world.run()
        self.check()
        self.counts["deaths"] += self.world.faults.deaths
        self.counts["answers lost"] += self.world.faults.lost
        self.counts["histories"] += 1
        return self.counts

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.4 or not self.changes.made:
            self.append()
        elif what < 0.48:
            self.world.changes.delta().optimize.compact()
            self.counts["changes compacted"] += 1
        elif what < 0.56 and not self.changes.ties and self.world.has_current():
            self.restore()
        elif what < 0.62 and not self.changes.ties and self.world.has_current():
            self.world.clean_log()
            self.counts["change log cleaned"] += 1
        else:
            self.turn()

    def append(self) -> None:
        rows = self.changes.draw(self.chance.randrange(1, 6))
        self.changes.made += rows
        table = self.changes.table(rows)
        if self.is_wide or self.chance.random() < 0.04:
            self.is_wide = True
            table = table.append_column("w", pa.array(["x"] * len(rows)))
        self.world.append(table)

    def restore(self) -> None:
        table = self.world.current.delta()
        if table.version():
            table.restore(self.chance.randrange(table.version()))
            self.counts["restored"] += 1

    def turn(self) -> None:
        """Run a Penguin; something may happen before its commit."""
        rival = self.chance.choice(["nobody", "nobody", "another Penguin", "compaction", "append"])

        def between() -> None:
            if self.depth or rival == "nobody" or not self.world.has_current():
                return
            self.depth += 1
            self.counts[rival] += 1
            try:
                if rival == "another Penguin":
                    self.world.run()
                elif rival == "compaction":
                    self.world.current.delta().optimize.compact()
                else:
                    table = self.world.current.delta()
                    empty = pa.schema(table.schema().to_arrow()).empty_table()
                    write_deltalake(table, empty, mode="append")
            except BlizzardError as error:
                if not error.retryable:
                    raise
            finally:
                self.depth -= 1

        self.world.between = between
        try:
            self.world.run()
        except Killed:
            self.depth = 0
        except BlizzardError as error:
            if not error.retryable:
                raise
            self.counts["errors"] += 1

    def check(self) -> None:
        rows = self.world.rows()
        for row in rows:
            row.pop("w", None)
        expected = reduce(self.changes.made, self.changes.keys, self.changes.sequence)
        assert by_key(rows, self.changes.keys) == expected
        assert self.world.leftovers() == set()
        version = self.world.current.delta().version()
        assert DeltaTable(self.world.keyed.table.uri, version).version() == version

"""Whole merges on real Delta tables: deaths, rivals, compactions, RESTORE, vacuum, rebuilds."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake

from blizzard_core.errors import BlizzardError
from blizzard_core.settings.tables import TableAdvanced, TableSettings
from blizzard_core.storage.opening import delta_options
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed import changes as feed
from penguin_py.keyed.merger import Merger
from penguin_py.keyed.pipeline import KeyedPipeline
from penguin_py.settings import KeyedTable, Table
from tests.chaos.faults import Faults, faulty
from tests.chaos.keyed.model import DELETES, IDS, Changes, by_key, reduce
from tests.chaos.penguins import has_table
from tests.support.faulty_log import around
from tests.support.memory_store import Died
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
        merger = Merger(self.keyed, changes, current, lambda: self.now, activity)
        return KeyedPipeline(merger, is_patient=is_patient)

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
        return has_table(self.current)

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
        pages = self.current.storage.list_range("unit-", "unit.")
        return {entry.path for page in pages for entry in page.entries} - known


class Rivals(Faults):
    """Faults, and at any request of a Penguin perhaps a rival that comes ``meanwhile``."""

    meanwhile: Between = staticmethod(lambda: None)

    def around(self, action: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        # Not in threads that read ahead: their Penguin goes on beside the rival.
        if threading.current_thread() is threading.main_thread() and self.chance.random() < 0.02:
            self.meanwhile()
        return super().around(action, lost)


def play_on_delta(
    uri: str, pool: Executor, seed: int, options: Mapping[str, str] | None = None
) -> Counter[str]:
    """Play one history. Raises `AssertionError`."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        # Processes die here, not machines, so nothing has to wait for a disk.
        patch.setattr(os, "fsync", lambda _file: None)
        # Few rows at once, so that merges have several pieces, and a backlog several merges.
        patch.setattr(feed, "ROWS_AT_ONCE", chance.choice([1, 3, 10, 1000]))
        patch.setattr(feed, "ROWS_A_COMMIT", chance.choice([1, 5, 1000]))
        changes = Changes(chance, ties=chance.random() < 0.4)
        more = {"deletes_text": DELETES, "options": dict(options or {})}
        keyed = keyed_table(uri, changes.keys, changes.sequence, **more)
        return _History(keyed, pool, chance, changes).play()


class _History:
    def __init__(
        self, keyed: KeyedTable, pool: Executor, chance: random.Random, changes: Changes
    ) -> None:
        self.chance = chance
        self.changes = changes
        self.faults = Rivals(chance, chance.choice([0.0, 0.002, 0.02]))
        self.world = KeyedWorld(keyed, pool, faults=self.faults)
        # delta-rs cuts upper bounds of times to milliseconds, also below the lower ones.
        self.world.changes.tampered = self.world.current.tampered = True
        self.counts: Counter[str] = Counter()
        self.is_wide = False
        self.depth = 0
        self.is_over = False
        self.deletes = {"d", "D"}
        # Whether a rebuild by other settings has begun and not ended.
        self.is_being_rebuilt = False
        # Whether the table has had a row of no change, which a RESTORE may bring back.
        self.is_stained = False
        # Files of older versions are vacuumed.
        self.oldest = 0

    def play(self) -> Counter[str]:
        for _ in range(self.chance.randrange(6, 16)):
            self.step()
        self.is_over = True
        self.faults.rate = 0
        self.world.between = self.faults.meanwhile = lambda: None
        if self.is_being_rebuilt or self.is_stained:
            self.rebuild()
        self.append()
        for _ in range(2):  # the second start clears what the last death left, an hour later
            self.world.run()
            self.world.now += 3600
        self.append()
        self.world.run()
        self.check()
        self.counts["deaths"] += self.faults.deaths
        self.counts["answers lost"] += self.faults.lost
        self.counts["histories"] += 1
        return self.counts

    def step(self) -> None:
        what = self.chance.random()
        # What follows reads changes in another order, which decides between ties.
        may_reorder = not self.changes.ties and self.world.has_current()
        if what < 0.4 or not self.changes.made:
            self.append()
        elif what < 0.46:
            self.world.changes.delta().optimize.compact()
            self.counts["changes compacted"] += 1
        elif what < 0.53 and may_reorder:
            self.restore()
        elif what < 0.58 and may_reorder:
            self.world.clean_log()
            self.counts["change log cleaned"] += 1
        elif what < 0.62 and self.world.has_current():
            self.vacuum()
        elif what < 0.68 and may_reorder:
            self.rebuild()
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
        if table.version() > self.oldest:
            before = table.metadata().description
            table.restore(self.chance.randrange(self.oldest, table.version()))
            # Behind a rebuild by other settings, which is to be done again.
            self.is_being_rebuilt |= self.world.current.delta().metadata().description != before
            self.counts["restored"] += 1

    def vacuum(self) -> None:
        table = self.world.current.delta()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        self.oldest = self.world.current.delta().version()
        self.counts["vacuumed"] += 1

    def rebuild(self) -> None:
        """Rebuild the table, perhaps by other settings; a death may come, and nobody goes on."""
        if not self.is_over and self.chance.random() < 0.5:
            is_first = self.deletes == {"d"}
            self.deletes, text = ({"d", "D"}, DELETES) if is_first else ({"d"}, "op = 'd'")
            self.world.keyed = replace(self.world.keyed, deletes_text=text)
        if not self.is_over and self.chance.random() < 0.3:
            self.stain()
        self.is_being_rebuilt = True
        self.counts["rebuilds"] += 1

        def rebuild() -> None:
            self.world.penguin().rebuild()
            self.is_being_rebuilt = False

        self.go(rebuild)

    def stain(self) -> None:
        """Append a row of no change to the keyed table, as others do; a rebuild leaves it out."""
        table = self.world.current.delta()
        row = self.changes.row_of(IDS)
        write_deltalake(
            table, pa.Table.from_pylist([row], pa.schema(table.schema().to_arrow())), mode="append"
        )
        self.is_stained = True
        self.counts["rows of others"] += 1

    def turn(self) -> None:
        """Run a Penguin; something may happen before its commit, or at any of its requests."""
        rivals = ["nobody", "nobody", "another Penguin", "compaction", "vacuum", "append"]
        rival = self.chance.choice(rivals)

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
                elif rival == "vacuum":
                    self.vacuum()
                else:
                    table = self.world.current.delta()
                    empty = pa.schema(table.schema().to_arrow()).empty_table()
                    write_deltalake(table, empty, mode="append")
            except BlizzardError as error:
                if not error.retryable:
                    raise
            finally:
                self.depth -= 1

        if self.chance.random() < 0.5:
            self.world.between, self.faults.meanwhile = between, lambda: None
        else:
            self.world.between, self.faults.meanwhile = lambda: None, between
        self.go(self.world.run)

    def go(self, action: Callable[[], object]) -> None:
        """Let a Penguin act until it ends, dies, or meets an error."""
        try:
            action()
        except Died:
            self.counts["rebuilds killed"] += self.is_being_rebuilt
            self.depth = 0
        except BlizzardError as error:
            # By other settings nothing is merged before a rebuild has ended.
            if not error.retryable and not (self.is_being_rebuilt and not self.is_over):
                raise
            self.counts["errors"] += 1

    def check(self) -> None:
        rows = self.world.rows()
        for row in rows:
            row.pop("w", None)
        keys, sequence = self.changes.keys, self.changes.sequence
        expected = reduce(self.changes.made, keys, sequence, self.deletes)
        assert by_key(rows, keys) == expected
        assert self.world.leftovers() == set()

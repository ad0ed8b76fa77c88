"""One random history of one table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.chaos.faults import Faults
from tests.chaos.penguins import Penguins, has_table
from tests.chaos.replacing.model import Model, Source
from tests.support.group_publisher import Publisher, reading, unit
from tests.support.table_harness import TableHarness, footer_pool

KEYS = ("a", "b", "c/%2F", "ü😀")
SOURCES = ("p_one", "p_two")
SETTINGS: dict[str, Any] = {"delta_checkpoint_interval": 7, "reconcile_interval": "5m"}
STEPS = 24
RATE = 0.01


@dataclass
class History(Penguins):
    """One run over a table of its own."""

    numbers: int = 0
    held: list[Callable[[], None]] = field(default_factory=list)
    normal: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.model = Model({name: Source(name) for name in SOURCES})
        self.publishers = {name: Publisher(self.world, name) for name in SOURCES}

    def run(self) -> dict[str, int]:
        """Play the whole history. Raises `AssertionError`."""
        for _ in range(STEPS):
            self.step()
        self.finish()
        self.check()
        return {**self.counts, "deaths": self.faults.deaths, "answers lost": self.faults.lost}

    def step(self) -> None:
        self.world.now += self.chance.choice([0, 1, 30, 400])
        for _ in range(self.arrivals.randrange(3)):
            self.publish()
        if self.arrivals.random() < 0.3:
            self.arrive()
        if self.chance.random() < 0.2:
            self.interfere()
        while self.held and self.chance.random() < 0.8:
            self.held.pop(0)()
        for _ in range(self.chance.randrange(1, 4)):
            self.turn(self.chance.choice(["live", "live", "twin", "other"]))
        self.maybe_lose_the_mirror()

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def publish(self) -> None:
        """Publish a reading of a unit from some value on; its manifest may come later, in order."""
        name, key = self.arrivals.choice(SOURCES), self.arrivals.choice(KEYS)
        low = self.arrivals.choice([0, 0, 3, 6])
        starts = [at for at in (0, 3, 6) if at >= low and self.arrivals.random() < 0.8]
        rows = {
            at: frozenset(self.number() for _ in range(self.arrivals.randrange(1, 4)))
            for at in starts
        }
        self.model.sources[name].read(key, low, rows)
        files = [
            {"id": sorted(ids), "_unit": [unit(name, key, at)] * len(ids)}
            | ({f"extra{self.arrivals.randrange(3)}": sorted(ids)} if low == 6 else {})
            for at, ids in rows.items()
        ]
        publisher = self.publishers[name]
        ids = [f"{name}/{publisher.seq + 1}/1/{number}" for number in range(len(files))]
        group = publisher.group(files, ids=ids, replace=[reading(name, key, low)], put=False)
        self.held.append(lambda: publisher.put(group))
        self.counts["groups"] += 1

    def arrive(self) -> None:
        """Put a file without units, as other sources do."""
        number = self.number()
        self.normal.add(number)
        self.world.put(f"{number:05d}.parquet", {"id": [number]}, output_id=f"p/n/{number}")

    def interfere(self) -> None:
        """Another engine appends, compacts or deletes; or the log is cleaned up."""
        if not has_table(self.world):
            return
        what = self.chance.choice(["append", "compact", "compact", "compact", "delete"])
        table = self.world.delta()
        if what == "append":
            number = self.number()
            self.normal.add(number)
            write_deltalake(table, pa.table({"id": [number]}), mode="append", schema_mode="merge")
        elif what == "compact":
            table.optimize.compact()
        else:
            doomed = self.chance.randrange(1, self.numbers + 1)
            table.delete(f"id = {doomed}")
            if doomed in {i for s in self.all_ids(table.version()) for i in s}:
                raise AssertionError("a delete did not delete")
            self.model.deleted.setdefault(doomed, table.version())
            self.deleted_early(doomed)
        self.counts[f"{what}s"] += 1

    def all_ids(self, version: int) -> list[list[int]]:
        return list(self.found(version).values())

    def deleted_early(self, number: int) -> None:
        """Take back the deletion of a row that was not in the table yet."""
        version = self.model.deleted[number]
        if version == 0 or number not in {i for s in self.all_ids(version - 1) for i in s}:
            del self.model.deleted[number]
        else:
            self.normal.discard(number)

    def between(self, name: str, depth: int) -> None:
        if self.chance.random() < 0.7:
            self.interfere()
        else:
            self.let_another_act(name, depth)

    def finish(self) -> None:
        """Let all files arrive and end the faults."""
        self.faults.rate = 0
        for put in self.held:
            put()
        self.held.clear()
        self.publish()
        self.held.pop()()
        # Twice: what was rewritten for the last version is cleared away by the sweep behind it.
        apps: list[dict[str, Any]] = [{}, {"app_id": "events-other"}]
        for app in apps * 2:
            self.world.now += 3600
            self.world.run(**self.settings, **app)

    def check(self) -> None:
        """Check that each version holds each unit as of one group, without old rows."""
        last = self.world.delta().version()
        groups: dict[str, int] = {}
        for version in range(last + 1):
            for action in self.world.actions(version):
                told = action.get("commitInfo", {}).get("penguin", {})
                for mark in told.get("output_ids", []):
                    name, _, seq = mark.rpartition("/")
                    if name in SOURCES:
                        assert groups.get(name, 0) + 1 == int(seq), (mark, groups)
                        groups[name] = int(seq)
                self.counts["rewritten files"] += "unit-part-" in action.get("add", {}).get(
                    "path", ""
                )
            told = self.model.wrong(version, groups, self.found(version))
            assert told is None, told
        published = {name: p.seq for name, p in self.publishers.items() if p.seq}
        assert groups == published, f"{groups} of {published}: {self.held_up()}"
        there = sorted(self.found(last).get(None, []))
        assert there == sorted(self.normal), (there, sorted(self.normal))
        self.nothing_is_left_over()
        self.counts["versions"] += last + 1

    def held_up(self) -> object:
        """Return the groups that a Penguin reports as blocked."""
        penguin = self.world.penguin(**self.settings)
        self.world.run(penguin)
        return penguin.activity.to_json()["groups"]

    def nothing_is_left_over(self) -> None:
        logged = {
            action[kind]["path"]
            for version in range(self.world.delta().version() + 1)
            for action in self.world.actions(version)
            for kind in ("add", "remove")
            if kind in action
        }
        left = [path.name for path in Path(self.world.uri).glob("unit-part-*")]
        assert set(left) <= logged, f"left over: {set(left) - logged}"
        for note in Path(self.world.uri, "_penguin").glob("*_rewriting.json"):
            assert json.loads(note.read_bytes()) == {"planned": {}, "doomed": []}, note

    def found(self, version: int) -> dict[str | None, list[int]]:
        """Read the ids of a version's rows by duckdb, by their units."""
        events = DeltaTable(self.world.uri, version).to_pyarrow_dataset()
        column = "_unit" if "_unit" in events.schema.names else "NULL"
        with duckdb.connect() as db:
            db.register("events", events)
            rows = db.sql(f"select {column}, list(id) from events group by all").fetchall()
        # A table without units and without rows is one group of nothing.
        return {unit: ids or [] for unit, ids in rows}


def run(root: Path, seed: int, rate: float = RATE, between: float = 0.3) -> dict[str, int]:
    """Run on a local disk; return the counts of events. Raises `AssertionError`.

    ``rate`` is how often a request goes wrong, ``between`` how often something comes between
    look and commit.
    """
    arrivals, chance = random.Random(f"{seed} arrivals"), random.Random(seed)
    with footer_pool() as pool:
        world = TableHarness(str(root / f"table-{seed}"), pool)
        return History(world, arrivals, chance, Faults(chance, rate), SETTINGS, between).run()

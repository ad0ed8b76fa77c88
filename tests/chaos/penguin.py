"""Random faults around one table.

What arrives is the seed's alone. What goes wrong is drawn as requests come, of which some are
made by threads or until a process is killed, so it is nearly the same for one seed.

Every round a writer drops files in random order and holds some back for later, and
then Penguins run, each of which may die before or after any write, lose the answer
to a write that was applied, or meet a store that does not answer. A second one (a
twin, or a another with an ``app_id`` of its own) commits in the middle of the
first one's commit, and so do OPTIMIZE, log checkpoints and the loss of the mirror. Now
and then a whole process is started and killed with SIGKILL.

In the end every row is in the table exactly once, and every version can be read.

On S3 (``--store s3``) everything, delta-rs included, goes over HTTP through a proxy
that loses answers: requests are applied and then nobody says so, or the answer is
an error.

    python -m tests.chaos.penguin --rounds 200 --seed 1 --store s3
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from blizzard_core.storage.opening import delta_options
from tests.chaos.console import say, say_counts
from tests.chaos.faults import Faults
from tests.chaos.penguins import Penguins, has_table, killed
from tests.support.fault_proxy import FaultProxy, Lost, fault_proxy
from tests.support.s3_server import S3Server, s3_server
from tests.support.table_harness import TableHarness, footer_pool

JUNK = b"junk that is long enough"
SETTINGS: dict[str, Any] = {
    "max_files_per_commit": 7,
    "max_tracked_partitions": 3,
    "delta_checkpoint_interval": 9,
    "optimize": {"interval": "5000s"},
}
# Objects cannot be dated, so on S3 the clock stays near the store's, and chores are due sooner.
S3_SETTINGS = {**SETTINGS, "reconcile_interval": "5m", "optimize": {"interval": "400s"}}
DAYS = 6


@dataclass
class Chaos(Penguins):
    """One run over a table of its own."""

    process_rate: float = 0.0
    rows: int = 0
    held: list[tuple[str, pa.Table | bytes, str | None]] = field(default_factory=list)
    proxy: FaultProxy | None = None

    def round(self) -> None:
        """Let files arrive and give each running Penguin a few turns."""
        self.write()
        jumps = [0, 5, 60, 200, 400, 1500] if self.proxy is None else [0, 1, 5, 30, 60]
        self.world.now += self.chance.choice(jumps)
        if self.chance.random() < self.process_rate:
            killed(self.reached(), self.chance.uniform(0, 1), own_prefixes=[""], **self.settings)
            self.counts["processes killed"] += 1
        for _ in range(self.chance.randrange(1, 5)):
            self.turn(self.chance.choice(["live", "twin", "other"]))
        self.maybe_lose_the_mirror()

    def write(self) -> None:
        """Make files, hold some back, and drop the others in random order."""
        made: list[tuple[str, pa.Table | bytes, str | None]] = []
        for _ in range(self.arrivals.randrange(4)):
            self.rows += 1
            folder = f"date=2024-01-0{self.arrivals.randrange(1, DAYS + 1)}"
            name = f"{folder}/{self.rows:05d}-{self.arrivals.randrange(1000):03d}"
            columns: dict[str, list[Any]] = {"id": [self.rows]}
            if self.arrivals.random() < 0.1:
                columns[f"extra{self.arrivals.randrange(5)}"] = [self.rows]
            data = pa.table(columns)
            output_id = f"p/s/{self.rows}"
            made.append((f"{name}.parquet", data, output_id))
            if self.arrivals.random() < 0.1:
                made.append((f"{name}-again.parquet", data, output_id))
            if self.arrivals.random() < 0.1:
                made.append((f"{name}-junk.parquet", JUNK, None))
        self.arrivals.shuffle(made)
        self.held += made
        self.arrivals.shuffle(self.held)
        keep = self.arrivals.randrange(len(self.held) + 1) if self.arrivals.random() < 0.5 else 0
        self.drop(self.held[keep:])
        del self.held[keep:]

    def drop(self, files: list[tuple[str, pa.Table | bytes, str | None]]) -> None:
        for path, data, output_id in files:
            # Junk is bytes already and carries no id.
            self.world.put(path, data, **({} if output_id is None else {"output_id": output_id}))
            if self.proxy is None:
                os.utime(Path(self.world.uri, path), (self.world.now, self.world.now))

    def reached(self) -> TableHarness:
        if self.proxy is None:
            return self.world
        options = {**self.world.options, "AWS_ENDPOINT_URL": self.proxy.endpoint}
        return replace(self.world, options=options)

    def between(self, name: str, depth: int) -> None:
        """Commit as another writer between this Penguin's plan and its commit."""
        if self.chance.random() < 0.3 and has_table(self.world):
            self.world.delta().optimize.compact()
            self.counts["compactions"] += 1
        self.let_another_act(name, depth)

    def finish(self) -> None:
        """Let all files arrive, end the faults, and pass two intervals of the sweep."""
        self.faults.rate = 0
        if self.proxy is not None:
            self.proxy.lose = lambda _method: None
        self.world.now += 1
        self.drop(self.held)
        self.held.clear()
        for _ in range(2):
            self.world.run(**self.settings)
            self.world.now += 3601

    def check(self) -> None:
        """Every row once, and no version that a reader could not read."""
        ids = sorted(row["id"] for row in self.world.rows())
        doubled = sorted({i for i in ids if ids.count(i) > 1})
        missing = sorted(set(range(1, self.rows + 1)) - set(ids))
        assert not doubled, f"doubled: {doubled}"
        assert not missing, f"missing: {missing}"
        last = self.world.delta().version()
        known: set[int] = set()
        for version in range(last + 1):
            options = delta_options(self.world.uri, self.world.options, {})
            table = DeltaTable(self.world.uri, version, storage_options=options)
            found = pa.table(table.to_pyarrow_dataset().to_table())
            seen = found["id"].to_pylist()
            assert len(set(seen)) == len(seen), f"version {version} has rows twice"
            assert known <= set(seen), f"version {version} lost rows"
            known = set(seen)
            for name in found.column_names:
                if name.startswith("extra"):
                    # A column never stands there without the file that brought it.
                    assert found[name].null_count < found.num_rows, f"version {version}: {name}"
        self.counts["versions"] = last + 1
        self.counts["rows"] = self.rows


def losses(seed: int, rate: float) -> Callable[[str], Lost | None]:
    """Return a function that decides how a request fails: writes often, reads now and then."""
    chance, lock = random.Random(seed), threading.Lock()

    def lose(method: str) -> Lost | None:
        with lock:
            if chance.random() >= (rate if method in ("PUT", "POST", "DELETE") else rate / 30):
                return None
            return chance.choice(["silence", "error", "refused"])

    return lose


def run(root: Path, rounds: int, seed: int, process_rate: float) -> dict[str, int]:
    """Run on a local disk; return the counts of events. Raises `AssertionError`."""
    with footer_pool() as pool:
        world = TableHarness(str(root / "table"), pool, now=time.time())
        return _run(world, rounds, seed, process_rate, None)


def run_on_s3(server: S3Server, rounds: int, seed: int, process_rate: float) -> dict[str, int]:
    """Run over HTTP, with answers lost on the way."""
    with footer_pool() as pool, fault_proxy(server.endpoint) as proxy:
        uri = f"s3://{server.new_bucket()}/lake/events"
        world = TableHarness(uri, pool, server.options, now=time.time())
        proxy.lose = losses(seed, 0.2)
        found = _run(world, rounds, seed, process_rate, proxy)
        return {**found, "requests lost on the wire": proxy.lost, "requests": len(proxy.seen)}


def _run(
    world: TableHarness, rounds: int, seed: int, process_rate: float, proxy: FaultProxy | None
) -> dict[str, int]:
    arrivals, chance = random.Random(f"{seed} arrivals"), random.Random(seed)
    settings = SETTINGS if proxy is None else S3_SETTINGS
    faults = Faults(chance, 0.01)
    chaos = Chaos(world, arrivals, chance, faults, settings, process_rate=process_rate, proxy=proxy)
    for _ in range(rounds):
        chaos.round()
    chaos.finish()
    chaos.check()
    return {**chaos.counts, "deaths": faults.deaths, "answers lost": faults.lost}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--store", choices=["local", "s3"], default="local")
    parser.add_argument("--kill-rate", type=float, default=0.1, help="rounds with a real SIGKILL")
    options = parser.parse_args()
    say(f"seed {options.seed}, {options.rounds} rounds")
    how = (options.rounds, options.seed, options.kill_rate)
    if options.store == "s3":
        with s3_server() as server:
            found = run_on_s3(server, *how)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), *how)
    say_counts(found)


if __name__ == "__main__":
    main()

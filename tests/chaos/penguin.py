"""Random faults around one table.

What arrives is the seed's alone. What goes wrong is drawn as requests come, of which some are
made by threads or until a process is killed, so it is nearly the same for one seed.

Every round a writer drops files in random order and holds some back for later, and
then Penguins run, each of which may die before or after any write, lose the answer
to a write that was applied, or meet a store that does not answer. A second one (a
twin, or a backfill with an ``app_id`` of its own) commits in the middle of the
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
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable

from blizzard_core.errors import BlizzardError, Unavailable
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import delta_options
from blizzard_core.storage.protocol import ListingPage, NameTest, Range, Storage
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.support.fault_proxy import FaultProxy, Lost, fault_proxy
from tests.support.faulty_log import around
from tests.support.flat_settings import nested
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


class Killed(BaseException):
    """Death of the process; nothing handles it."""


@dataclass
class Faults:
    """A random choice, for each step, whether and how it fails."""

    chance: random.Random
    rate: float
    deaths: int = 0
    lost: int = 0
    refused: int = 0

    def around(self, action: Callable[[], Any], lost: Exception) -> Any:
        """Run it; die before or after it, or lose its answer."""
        draw = self.chance.random()
        if draw < self.rate:
            self.deaths += 1
            raise Killed
        if draw < 1.5 * self.rate:
            self.refused += 1
            raise lost
        found = action()
        draw = self.chance.random()
        if draw < self.rate:
            self.deaths += 1
            raise Killed
        if draw < 2 * self.rate:
            self.lost += 1
            raise lost
        return found

    def before(self) -> None:
        """Let a request that only reads fail: the store does not answer."""
        if self.chance.random() < self.rate / 12:
            self.refused += 1
            raise Unavailable("no answer")


class Unreliable:
    """A storage with faults in all that Penguin asks of it."""

    def __init__(self, inner: Storage, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        self._faults.before()
        return self._inner.list_range(after, until)

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        self._faults.before()
        return self._inner.list_ranges(ranges, may_be_wanted)

    def read(self, path: str) -> bytes:
        self._faults.before()
        return self._inner.read(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self._faults.before()
        return self._inner.read_range(path, start, end)

    def put_atomic(self, path: str, data: bytes) -> None:
        self._faults.around(lambda: self._inner.put_atomic(path, data), Unavailable("no answer"))


@dataclass
class Chaos:
    """One run over a table of its own."""

    world: TableHarness
    arrivals: random.Random  # of files alone: what comes depends on nothing that went wrong
    chance: random.Random
    faults: Faults
    process_rate: float
    rows: int = 0
    held: list[tuple[str, pa.Table | bytes, str | None]] = field(default_factory=list)
    penguins: dict[str, TablePipeline | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    proxy: FaultProxy | None = None

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def round(self) -> None:
        """Let files arrive and give each running Penguin a few turns."""
        self.write()
        jumps = [0, 5, 60, 200, 400, 1500] if self.proxy is None else [0, 1, 5, 30, 60]
        self.world.now += self.chance.choice(jumps)
        if self.chance.random() < self.process_rate:
            self.kill_a_process()
        for _ in range(self.chance.randrange(1, 5)):
            self.turn(self.chance.choice(["live", "twin", "backfill"]), depth=0)
        if self.chance.random() < 0.05:
            self.world.storage.delete("_penguin/events_checkpoint.json")
            self.count("mirrors lost")

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

    def turn(self, name: str, depth: int) -> None:
        """Run one cycle of one Penguin; start it again if it dies."""
        penguin = self.penguins.get(name) or self.start(name, depth)
        self.penguins[name] = None  # not to be entered again from within its own commit
        try:
            penguin.cycle(threading.Event())
        except Killed:
            self.count("deaths")
            return
        except BlizzardError as error:
            if not error.retryable:
                raise
            self.count("errors")
        self.penguins[name] = penguin

    def start(self, name: str, depth: int) -> TablePipeline:
        more: dict[str, Any] = {"app_id": "events-backfill"} if name == "backfill" else {}
        table = self.on_the_wire().table(**self.settings, **more)
        storage: Any = Unreliable(self.on_the_wire().storage, self.faults)
        log = DeltaLog(table, storage, self.world.pool)

        def commit(write: Callable[[], None]) -> None:
            if depth < 2 and self.chance.random() < 0.3:
                self.interfere(name, depth)
            self.faults.around(write, OSError("the answer was lost"))

        around(log, commit)
        return self.world.penguin_on(table, storage, log)

    @property
    def settings(self) -> dict[str, Any]:
        return SETTINGS if self.proxy is None else S3_SETTINGS

    def on_the_wire(self) -> TableHarness:
        """Return the table as a Penguin reaches it."""
        if self.proxy is None:
            return self.world
        options = {**self.world.options, "AWS_ENDPOINT_URL": self.proxy.endpoint}
        return replace(self.world, options=options)

    def interfere(self, name: str, depth: int) -> None:
        """Commit as another writer between this Penguin's plan and its commit."""
        if self.chance.random() < 0.3 and self.table_exists():
            self.world.delta().optimize.compact()
            self.count("compactions")
        other = self.chance.choice([n for n in ("live", "twin", "backfill") if n != name])
        if self.penguins.get(other) is not None or depth == 0:
            self.turn(other, depth + 1)
            self.count("interleaved")

    def table_exists(self) -> bool:
        return self.world.storage.stat(f"_delta_log/{0:020d}.json") is not None

    def kill_a_process(self) -> None:
        """Run a real process on the same table and kill it at a random moment."""
        place = self.on_the_wire()
        where = {"table_uri": place.uri, "storage_options": place.options}
        block = {**where, "own_prefixes": [""], **self.settings}
        document = {
            "tables": {"events": {**block, "poll_interval": "10ms"}},
            "global": {"poll_jitter": 0},
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            yaml.safe_dump(nested(Config, document), config)
            config.flush()
            with subprocess.Popen(
                [sys.executable, "-m", "penguin_py", "run", config.name, "--log-level", "error"],
                stderr=subprocess.DEVNULL,
            ) as process:
                time.sleep(self.chance.uniform(0.3, 1.5 if self.proxy is None else 4))
                process.send_signal(signal.SIGKILL)
        self.count("processes killed")

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
    chaos = Chaos(world, arrivals, chance, Faults(chance, 0.06), process_rate, proxy=proxy)
    for _ in range(rounds):
        chaos.round()
    chaos.finish()
    chaos.check()
    faults = chaos.faults
    return {**chaos.counts, "answers lost": faults.lost, "requests refused": faults.refused}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--store", choices=["local", "s3"], default="local")
    parser.add_argument("--kill-rate", type=float, default=0.1, help="rounds with a real SIGKILL")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}, {options.rounds} rounds\n")
    sys.stdout.flush()
    how = (options.rounds, options.seed, options.kill_rate)
    if options.store == "s3":
        with s3_server() as server:
            found = run_on_s3(server, *how)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), *how)
    for what, count in sorted(found.items()):
        sys.stdout.write(f"{count:7,}  {what}\n")


if __name__ == "__main__":
    main()

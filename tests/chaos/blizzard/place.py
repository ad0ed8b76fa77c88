"""The source and the table: on a disk, or behind an S3 API that loses answers."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.writer import Put
from tests.support.fault_proxy import FaultProxy, Lost, fault_proxy
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
# Of a hundred requests that change something so many are lost or land late; of those that
# only read a tenth of it. Each is tried again by its client, which costs up to seconds.
_LOST = 0.06
_DELAYED = 0.03


@dataclass(frozen=True, slots=True)
class Place:
    """``scenario`` as daemons reach it; ``table`` and ``options`` without faults on the way."""

    scenario: Scenario
    table: Storage
    put: Put
    options: dict[str, str] = field(default_factory=dict)
    proxy: FaultProxy | None = None
    lock: Path | None = None

    def locked(self) -> bool:
        """Return whether a process holds the checkpoint's lock, running or stopped."""
        if self.lock is None or not self.lock.exists():
            return False
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def calm(self) -> None:
        """Faults end: nothing is lost from now on, and what was delayed has landed."""
        if self.proxy is not None:
            self.proxy.lose = lambda _method: None
            self.proxy.land()


def configured(scenario: Scenario, pace: Pace) -> Scenario:
    """Write the run's configuration; all other settings keep their defaults."""
    scenario.main_source.update(
        poll_interval=f"{pace.poll}s",
        grace_period=f"{pace.grace}s",
        late_sweep_interval=f"{pace.sweep}s",
        late_files="quarantine",
        max_tracked_partitions=pace.tracked,
        checkpoint={"interval_files": 25},
    )
    # The run is not about files that cannot be read for long: each try may meet a lost answer.
    scenario.document["pipelines"]["events"]["error_handling"] = {"max_retries": 1000}
    scenario.document["global"]["shutdown_grace"] = f"{pace.shutdown}s"
    scenario.document["tables"] = {
        "events": {
            "table_uri": f"{scenario.place}/lake/events",
            "poll_interval": f"{pace.poll}s",
            "storage_options": scenario.options,
        }
    }
    scenario.write_config()
    return scenario


def local_place(folder: Path, pace: Pace) -> Place:
    """Return a place with all its data below ``folder``."""
    scenario = configured(Scenario(folder, str(folder)), pace)
    made = folder / "made"
    made.mkdir()

    def put(path: str, data: bytes, old: float) -> None:
        """Put a file as `rsync -t` does: in one step, with its original time."""
        (made / "file").write_bytes(data)
        if old:
            os.utime(made / "file", (time.time() - old,) * 2)
        target = folder / "raw" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (made / "file").rename(target)

    return Place(
        scenario, scenario.table, put, lock=folder / "lake" / "events" / f"{CHECKPOINT}.lock"
    )


@contextmanager
def s3_place(folder: Path, pace: Pace, server: S3Server, seed: int) -> Iterator[Place]:
    """Yield a fresh bucket behind a proxy; the daemons' configuration is in ``folder``.

    The server gives every object the time of its last byte, multipart or not, and so does
    the proxy show the old times of those that are to look replicated.
    """
    bucket = server.new_bucket()
    with fault_proxy(server.endpoint) as proxy:
        options = {**server.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        scenario = configured(Scenario(folder, f"s3://{bucket}/base", options), pace)
        source = open_storage(f"s3://{bucket}/base/raw", server.options)
        table = open_storage(f"s3://{bucket}/base/lake/events", server.options)

        def put(path: str, data: bytes, old: float) -> None:
            if old:
                proxy.dated[f"base/raw/{path}"] = time.time() - old
            source.put_atomic(path, data)

        proxy.lose = losses(seed, pace)
        yield Place(scenario, table, put, server.options, proxy)


def losses(seed: int, pace: Pace) -> Callable[[str], Lost | None]:
    """Return a function that decides how each request of a daemon fails, if it does."""
    chance, lock = random.Random(seed), threading.Lock()

    def lose(method: str) -> Lost | None:
        with lock:
            draw = chance.random()
            if method not in ("PUT", "POST", "DELETE"):
                return "refused" if draw < _LOST / 10 else None
            if draw < _DELAYED:
                return chance.uniform(0.02, 0.4) * pace.grace
            if draw < _DELAYED + _LOST:
                kinds: list[Lost] = ["silence", "error", "refused"]
                return chance.choice(kinds)
            return None

    return lose

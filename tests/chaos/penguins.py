"""Penguins of one table that die, and of which one acts within another's commit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from blizzard_core.delta_json import commit_path
from blizzard_core.errors import BlizzardError
from blizzard_core.settings.document import Config
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.chaos.faults import Faults, faulty
from tests.support.faulty_log import around
from tests.support.flat_settings import nested
from tests.support.memory_store import Died
from tests.support.table_harness import TableHarness


def has_table(world: TableHarness) -> bool:
    return world.storage.stat(commit_path(0)) is not None


def killed(world: TableHarness, secs: float, **settings: Any) -> None:
    """Run a real Penguin on the table and kill it with SIGKILL after so many seconds."""
    where = {"table_uri": world.uri, "storage_options": world.options, "poll_interval": "10ms"}
    document = {"tables": {"events": {**where, **settings}}, "global": {"poll_jitter": 0}}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        yaml.safe_dump(nested(Config, document), config)
        config.flush()
        with subprocess.Popen(
            [sys.executable, "-m", "penguin_py", "run", config.name], stderr=subprocess.PIPE
        ) as process:
            assert any(b'"started"' in line for line in process.stderr)
            with suppress(subprocess.TimeoutExpired):
                process.wait(secs)
            process.send_signal(signal.SIGKILL)


@dataclass
class Penguins:
    """Some Penguins by name; ``settings`` are those of the table, ``apps`` what some have more."""

    world: TableHarness
    arrivals: random.Random  # of files alone: what comes depends on nothing that went wrong
    chance: random.Random
    faults: Faults
    settings: dict[str, Any]
    # How often something comes between a Penguin's look and its commit.
    between_rate: float = 0.3
    running: dict[str, TablePipeline | None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def reached(self) -> TableHarness:
        """Return the table as a Penguin reaches it."""
        return self.world

    def turn(self, name: str, depth: int = 0) -> None:
        """Run one cycle of one Penguin; start it again if it dies."""
        penguin = self.running.get(name) or self.start(name, depth)
        self.running[name] = None  # not to be entered again from within its own commit
        try:
            penguin.cycle(threading.Event())
        except Died:
            return
        except BlizzardError as error:
            if not error.retryable:
                raise
            self.counts["errors"] += 1
        self.running[name] = penguin

    def start(self, name: str, depth: int) -> TablePipeline:
        more = {"app_id": "events-other"} if name == "other" else {}
        table = self.reached().table(**self.settings, **more)
        storage = faulty(self.reached().storage, self.faults)
        log = DeltaLog(table, storage, self.world.pool)

        def commit(write: Callable[[], None]) -> None:
            if depth < 2 and self.chance.random() < self.between_rate:
                self.between(name, depth)
            self.faults.around(write, lambda: OSError("the answer was lost"))

        around(log, commit)
        return self.world.penguin_on(table, storage, log)

    def between(self, name: str, depth: int) -> None:
        """Act between a Penguin's planning and its commit."""
        raise NotImplementedError

    def let_another_act(self, name: str, depth: int) -> None:
        other = self.chance.choice([n for n in ("live", "twin", "other") if n != name])
        if self.running.get(other) is not None or depth == 0:
            self.turn(other, depth + 1)
            self.counts["interleaved"] += 1

    def maybe_lose_the_mirror(self) -> None:
        if self.chance.random() < 0.05:
            self.world.storage.delete("_penguin/events_checkpoint.json")
            self.counts["mirrors lost"] += 1

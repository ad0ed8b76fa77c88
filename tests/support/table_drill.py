"""A table in a folder with both daemons in this process, and copies of it to put back."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from blizzard_core.daemon import Loop, run
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.workers import build
from penguin_py.__main__ import main as penguin
from penguin_py.app import build as tables_of
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
ALL = list(range(12))
ONCE = Loop(once=True, jitter_secs=0, grace_secs=0)
_PROGRAMS = {"blizzard": blizzard, "penguin": penguin}


class Drill(Scenario):
    """A table in a folder, of which there is a copy after each round."""

    @property
    def lake(self) -> Path:
        return Path(self.place) / "lake" / "events"

    def start_once(self) -> int:
        """Run Blizzard once, then Penguin; return Blizzard's exit code; ``told`` is its error."""
        workers = build(load_config(self.config), DirectEngine())
        code = run(workers, ONCE, threading.Event())
        self.told = workers[0].activity.pulse.error
        with tables_of(load_config(self.config)) as tables:
            assert run(tables, ONCE, threading.Event()) == 0
        return code

    def arrive(self, number: int) -> None:
        self.put_rows(f"date=2024-01-2{number}/170{number}-a.ndjson.gz", *ALL[3 * number :][:3])

    def rounds(self) -> None:
        for number in range(3):
            self.arrive(number)
            assert self.start_once() == 0
            shutil.copytree(self.lake, self.copy(number))

    def copy(self, number: int) -> Path:
        return self.folder / f"copy{number}"

    def put_back(self, *parts: str, number: int = 0) -> None:
        """Restore these parts of the table's folder as they were after that round."""
        for part in parts:
            now, then = self.lake / part, self.copy(number) / part
            if now.is_dir():
                shutil.rmtree(now)
            else:
                now.unlink(missing_ok=True)
            if then.is_dir():
                shutil.copytree(then, now)
            elif then.exists():
                shutil.copy(then, now)

    def call(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command in this process without Spark; the tests are about neither."""
        assert not environment
        program, *arguments = command
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
            done = CliRunner().invoke(_PROGRAMS[program], arguments)
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

    def rebuild(self, *arguments: str, pipeline: str = "events") -> int:
        where = ("--pipeline", pipeline, "--source", "main", "--yes")
        done = self.call("blizzard", "checkpoint", "rebuild", str(self.config), *where, *arguments)
        self.told = done.stdout + done.stderr
        return done.returncode

"""Real processes: started, signalled, and checked for the documented exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.scenario import ROOT, Scenario

_TAIL_BYTES = 4000
_TICK_SECS = 0.1
FENCED = 3


class Trouble(AssertionError):
    """A process did what it must not do."""


@dataclass(slots=True)
class Daemon:
    """One process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def code(self) -> int | None:
        """The exit code; None while it lives."""
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def has_logged(self, event: str) -> bool:
        """Return whether the daemon's log has the event."""
        return f'"event": "{event}"' in self.log.read_text(errors="replace")

    def trouble(self, what: str) -> Trouble:
        """Return a `Trouble` with the end of the daemon's log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            tail = file.read().decode(errors="replace")
        return Trouble(f"{self.name} {what}; the end of {self.log}:\n{tail}")

    def must_end(self, code: int, secs: float) -> None:
        """Wait for its end. Raises `Trouble` for another exit code, or none in time."""
        try:
            found = self.process.wait(secs)
        except subprocess.TimeoutExpired:
            raise self.trouble(f"should have ended with {code} within {secs:.0f} s") from None
        if found != code:
            raise self.trouble(f"ended with {found}, not {code}")


@dataclass(slots=True)
class Fleet:
    """The running daemons. ``folder`` holds their logs and the files that slow jobs down."""

    scenario: Scenario
    folder: Path
    started: list[Daemon] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def start(self, program: str) -> Daemon:
        """``blizzard run`` (without Spark) or ``penguin run``, for ever.

        A Blizzard takes over from one that still runs: what then happens is what is tried.
        """
        more = ["--take-over"] if program == "blizzard" else []
        config = str(self.scenario.config)
        return self._start(program, "run", config, "--log-level", "debug", *more)

    def drain(self, program: str, secs: float) -> None:
        """``run --once``, which must end with 0."""
        self._start(program, "run", str(self.scenario.config), "--once").must_end(0, secs)

    def kill(self, daemon: Daemon) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.count(f"{daemon.name.split()[0]} killed")
        daemon.send(signal.SIGKILL)
        daemon.must_end(-signal.SIGKILL, 60)

    def wait_for(self, event: str, daemon: Daemon, secs: float) -> None:
        """Wait until the daemon has logged it. Raises `Trouble` after ``secs``."""
        until = time.monotonic() + secs
        while not daemon.has_logged(event):
            self.watch(_TICK_SECS, daemon)
            if time.monotonic() > until:
                raise daemon.trouble(f"did not get as far as {event!r} within {secs:.0f} s")

    def watch(self, secs: float, *alive: Daemon) -> None:
        """Let time pass. Raises `Trouble` if one of them ends."""
        until = time.monotonic() + secs
        while time.monotonic() < until:
            for daemon in alive:
                if daemon.code is not None:
                    raise daemon.trouble(f"ended by itself with {daemon.code}")
            time.sleep(_TICK_SECS)

    def stop(self, daemon: Daemon, secs: float) -> None:
        """SIGTERM, which must end it with 0 within ``secs``."""
        # Before that nobody handles the signal.
        self.wait_for("started", daemon, secs)
        self.count(f"{daemon.name.split()[0]} told to stop")
        daemon.send(signal.SIGTERM)
        daemon.must_end(0, secs)

    def end(self) -> None:
        """End all daemons."""
        for daemon in self.started:
            if daemon.code is None:
                daemon.send(signal.SIGKILL)
                daemon.process.wait()

    def _start(self, program: str, *arguments: str) -> Daemon:
        module = {
            "blizzard": ["tests.chaos.blizzard.daemon", str(self.folder)],
            "penguin": ["penguin_py"],
        }[program]
        name = f"{program} {len(self.started) + 1}"
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as out:
            process = _popen([*module, *arguments], out)
        self.started.append(Daemon(name, process, log))
        return self.started[-1]


def _popen(module: list[str], out: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
    )

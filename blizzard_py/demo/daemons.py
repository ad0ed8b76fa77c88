"""The two daemons as processes, run the way an operator runs them.

Nothing of the product is imported here: the demo sees what a user sees, the
commands, their exit codes and the JSON of ``status``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blizzard_py.demo.stage import DemoFailedError

MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}
# Codes of a `status` that could be read: all is well, or a daemon is down.
_READ = (0, 8, 9)


def run_once(daemon: str, config: Path, log: Path) -> float:
    """Run ``DAEMON run CONFIG --once`` to its end; seconds it took. Its output goes to ``log``.

    Raises `DemoFailedError` if it exits with anything but 0.
    """
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        code = subprocess.run(  # noqa: S603  # our own module, and no shell
            [sys.executable, "-m", MODULES[daemon], "run", str(config), "--once"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code != 0:
        raise _failed(daemon, code, log)
    return time.monotonic() - start


class RunningDaemon:
    """A daemon that runs until the demo ends it, with its log."""

    def __init__(self, daemon: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._daemon = daemon
        self._process = process
        self._log = log

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return what it has logged of one kind. Raises `DemoFailedError` if it has ended."""
        if (code := self._process.poll()) is not None:
            raise _failed(self._daemon, code, self._log)
        whole, _, _ = self._log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


@contextmanager
def running(daemon: str, config: Path, log: Path) -> Iterator[RunningDaemon]:
    """Start ``DAEMON run CONFIG`` and end it by SIGTERM, which has to end it with 0.

    Raises `DemoFailedError` at the end if it does not. Its output goes to ``log``.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # likewise
            [sys.executable, "-m", MODULES[daemon], "run", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield RunningDaemon(daemon, process, log)
    except BaseException:
        process.kill()  # what went wrong is told by the error on its way
        process.wait()
        raise
    process.send_signal(signal.SIGTERM)
    if (code := process.wait(timeout=60)) != 0:
        raise _failed(daemon, code, log)


def status(daemon: str, config: Path) -> Any:
    """Return what ``DAEMON status CONFIG --json`` prints.

    Raises `DemoFailedError` as `run_once`.
    """
    return _query_daemon(daemon, "status", config)


def plan(config: Path) -> Any:
    """Return what ``blizzard plan CONFIG --json`` prints.

    Raises `DemoFailedError` as `run_once`.
    """
    return _query_daemon("blizzard", "plan", config)


def _failed(daemon: str, code: int, log: Path) -> DemoFailedError:
    tail = log.read_text(errors="replace").splitlines()[-20:]
    return DemoFailedError("\n".join([f"{daemon} exited with {code}; {log} ends:", *tail]))


def _query_daemon(daemon: str, command: str, config: Path) -> Any:
    done = subprocess.run(  # noqa: S603  # likewise
        [sys.executable, "-m", MODULES[daemon], command, str(config), "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in _READ:
        raise DemoFailedError(f"{daemon} {command} exited with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)

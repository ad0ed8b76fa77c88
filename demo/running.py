"""Daemons that run while a demo goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blizzard_py.demo.daemons import MODULES, failed


class RunningDaemon:
    """A daemon that runs until the demo ends it, with its log."""

    def __init__(self, daemon: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._daemon = daemon
        self._process = process
        self._log = log

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return what it has logged of one kind. Raises `DemoFailedError` if it has ended."""
        if (code := self._process.poll()) is not None:
            raise failed(self._daemon, code, self._log)
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
        process = subprocess.Popen(
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
        raise failed(daemon, code, log)

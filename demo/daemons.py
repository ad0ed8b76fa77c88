"""The two daemons as processes, run the way an operator runs them.

Nothing of the product is imported here: the demo sees what a user sees, the
commands, their exit codes and the JSON of ``status``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}


class DaemonFailedError(Exception):
    """A daemon's process ended with something other than 0; the message holds its last lines."""


def run_once(daemon: str, config: Path, log: Path) -> float:
    """Run ``DAEMON run CONFIG --once`` to its end; seconds it took. Its output goes to ``log``.

    Raises `DaemonFailedError` if it exits with anything but 0.
    """
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, "-m", MODULES[daemon], "run", str(config), "--once"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code != 0:
        tail = log.read_text(errors="replace").splitlines()[-20:]
        raise DaemonFailedError("\n".join([f"{daemon} exited with {code}; {log} ends:", *tail]))
    return time.monotonic() - start


def status(daemon: str, config: Path) -> Any:
    """What ``DAEMON status CONFIG --json`` prints. Raises `DaemonFailedError` as `run_once`."""
    done = subprocess.run(
        [sys.executable, "-m", MODULES[daemon], "status", str(config), "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DaemonFailedError(f"{daemon} status exited with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)

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
        raise failed(daemon, code, log)
    return time.monotonic() - start


def ask(daemon: str, command: str, config: Path) -> Any:
    """Return what ``DAEMON COMMAND CONFIG --json`` prints.

    Raises `DemoFailedError` as `run_once`.
    """
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


def failed(daemon: str, code: int, log: Path) -> DemoFailedError:
    """Return the error of a daemon that has ended, with the end of its log."""
    tail = log.read_text(errors="replace").splitlines()[-20:]
    return DemoFailedError("\n".join([f"{daemon} exited with {code}; {log} ends:", *tail]))

"""The first second of a command, and streams that whoever started it has closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blizzard_core.signals import INTERRUPTED

# What a start finds: closed streams, and a file that would take their place.
STARTED = """
import os, sys
from blizzard_core.signals import started
started()
place = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("a log line", file=sys.stderr, flush=True)
assert not sys.stdin.isatty() and not sys.stdin.read()
try:
    print("a result", flush=True)
except OSError:
    os._exit(7)
"""


@pytest.mark.parametrize("package", ["blizzard_py", "penguin_py"])
def test_ctrl_c_while_python_imports_shows_no_trace(tmp_path: Path, package: str) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-m", package], env={"PYTHONPATH": path}, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_other_errors_show_theirs() -> None:
    text = "from blizzard_core.signals import started; started(); 1 / 0"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"ZeroDivisionError" in done.stderr


def test_a_closed_stream_is_no_file_of_ours(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint.json"
    command = [sys.executable, "-c", STARTED, str(place)]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=False)
    assert done.returncode == 7
    assert place.read_bytes() == b""


def test_ctrl_c_in_a_destructor_ends_the_process() -> None:
    code = """
from blizzard_core.signals import started
import signal
started()
class Fragile:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
Fragile()
print("went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")

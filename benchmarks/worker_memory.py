"""Peak memory of the Python workers below this process, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def reset(*besides: int) -> None:
    """Restart the count from the present memory of each worker and each process ``besides``."""
    for pid in [*python_workers(), *besides]:
        try:
            (_PROC / str(pid) / "clear_refs").write_text("5")
        except OSError:
            continue  # it is gone


def peak_mb(*pids: int) -> float:
    """Return the largest peak of one worker in MB, or of the given processes.

    Workers start no processes of their own.
    """
    return max((_field(pid, b"VmHWM:") for pid in pids or python_workers()), default=0) / 1e6


def python_workers() -> list[int]:
    """Return the processes that pyspark forked to run tasks, and their parent."""
    parents = {int(p.name): _field(int(p.name), b"PPid:") for p in _PROC.glob("[0-9]*")}
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return [pid for pid in mine if b"pyspark.worker" in _read(pid, "cmdline")]


def _field(pid: int, name: bytes) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith(name):
            number = int(line.split()[1])
            return number * 1024 if line.endswith(b"kB") else number
    return 0


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""  # it is gone

"""CPU seconds of this process and all below it, as Linux counts them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """What a child leaves behind becomes ours, to be waited for. Raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process may not adopt")


def children() -> set[int]:
    """Those of this process that run, or have ended and were not waited for."""
    mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, mine.split()))


def cpu_seconds() -> float:
    """User and system time up to now, also of children that have ended and were waited for."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            # What stands behind the name, which may hold anything: state, parent, … , times.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it is gone
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks.get(pid, 0) for pid in mine) / _TICKS

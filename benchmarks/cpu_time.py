"""CPU seconds of this process and all below it, as Linux counts them."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


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

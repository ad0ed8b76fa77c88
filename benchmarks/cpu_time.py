"""CPU seconds of the processes below this one, as Linux counts them.

Each process's own, since what a parent has of its children is not all: Spark's Python daemon
waits for none of its workers. This process itself only starts others and waits, so it is left out.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_TICKS = os.sysconf("SC_CLK_TCK")
# A process that ends has done that much at most of which nobody knows; looking takes 2 ms.
_INTERVAL_SECS = 0.1

# A process by its number and when it was started, since numbers are used again.
Ticks = Mapping[tuple[int, int], int]


def adopt_orphans() -> None:
    """Make this process the parent of its children's orphans. Raise `OSError` on failure."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process may not adopt")


def children() -> set[int]:
    """Return the child processes that run, or that ended and were not waited for."""
    mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, mine.split()))


def ticks() -> Ticks:
    """Return the CPU ticks of each process below this one up to now."""
    found: dict[int, tuple[int, int]] = {}
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            # What stands behind the name, which may hold anything: state, parent, … , times.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it is gone
        parents[int(folder.name)] = int(fields[1])
        found[int(folder.name)] = int(fields[19]), int(fields[11]) + int(fields[12])
    mine = below = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in below}:
        mine = mine | below
    return {(pid, found[pid][0]): found[pid][1] for pid in mine - {os.getpid()}}


def seconds_between(before: Ticks, after: Ticks) -> float:
    """Return the CPU seconds of all processes since ``before``; new processes count in full."""
    return sum(used - before.get(process, 0) for process, used in after.items()) / _TICKS


class Watched:
    """Sums of `watched`."""

    def __init__(self) -> None:
        self._before = ticks()
        self._last = dict(self._before)

    def look(self) -> None:
        """Take down what each process has used; those that have ended stay as they were."""
        self._last.update(ticks())

    @property
    def seconds(self) -> float:
        """Used since the beginning."""
        return seconds_between(self._before, self._last)


@contextmanager
def watched() -> Iterator[Watched]:
    """Count the CPU time inside, with processes that begin and end there."""
    found, ended = Watched(), threading.Event()

    def watch() -> None:
        while not ended.wait(_INTERVAL_SECS):
            found.look()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield found
        finally:
            ended.set()
        watching.result()
        found.look()

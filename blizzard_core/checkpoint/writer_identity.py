"""The writer of a state file: host, pid and start of its process, and whether it still runs.

A process of this machine can be looked up: its pid with the kernel's start time, in the same boot
and pid namespace, is unique. Nothing is known of a process elsewhere, and no clock is used to
guess.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blizzard_core.errors import FencedError
from blizzard_core.text import iso

_PROC = Path("/proc")
# States of a dead process whose parent has not collected its exit yet.
_GONE = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it names itself: ``started`` in epoch seconds of its machine's clock.

    ``key`` is its machine's boot, pid namespace, pid and start in the kernel's ticks; empty
    where the kernel does not tell.
    """

    host: str
    pid: int
    started: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a state file: an id per process and source, its epoch, and the process.

    Without a process nothing is known of it. A ``released`` writer writes no more.
    """

    id: str
    epoch: int
    process: Process | None = None
    released: bool = False

    def __str__(self) -> str:
        """Return the writer for messages, with its process if it is known."""
        if self.process is None:
            return f"writer {self.id}, epoch {self.epoch}"
        found = self.process
        since = iso(found.started)
        return (
            f"writer {self.id}, epoch {self.epoch} (host {found.host}, pid {found.pid},"
            f" started {since})"
        )


# This process, and before a fork its parent.
_PROCESSES: dict[int, Process] = {}

# Asked before a file is taken over from somebody else; raises `FencedError` to leave it.
TakeoverPolicy = Callable[[Writer], None]


def allow_takeover(_found: Writer) -> None:
    """Allow every take-over; the replaced daemon ends at its next save."""


def refuse_if_running(*, person: bool) -> TakeoverPolicy:
    """Return a policy that refuses a take-over while the writer runs.

    If that is unknown, a supervisor's start takes over, since it may replace a lost machine; a
    ``person`` gets an error with the writer's name.
    """

    def admit(found: Writer) -> None:
        runs = is_running(found)
        if runs:
            raise FencedError(
                f"{found} works on this and is running; stop it, or take over with --take-over,"
                " which ends it at its next save"
            )
        if runs is None and person and found.process is not None:
            raise FencedError(
                f"{found} worked on this last, and from here nobody can see whether it still"
                " does; stop it, then take over with --take-over"
            )

    return admit


def this_process() -> Process:
    """Return the running process, always the same value. Its host is the pod on Kubernetes."""
    pid = os.getpid()
    found = _PROCESSES.get(pid)
    if found is None:
        # The start is measured anew each time; of threads that do so together one value stays.
        new = Process(socket.gethostname(), pid, _started(), process_key(pid))
        found = _PROCESSES.setdefault(pid, new)
    return found


def is_running(writer: Writer, proc: Path = _PROC) -> bool | None:
    """Return whether the process of a writer runs; None if that cannot be seen from here.

    This very process does not count: it may continue its own state.
    """
    if writer.released:
        return False
    found = writer.process
    if found is None or not found.key:
        return None
    if found == this_process():
        return False
    here = _namespace(proc)
    if not here or not found.key.startswith(here):
        return None
    return process_key(found.pid, proc) == found.key


def process_key(pid: int, proc: Path = _PROC) -> str:
    """`Process.key` of a process of this machine; empty if it is gone or cannot be seen."""
    namespace = _namespace(proc)
    try:
        # The name in brackets may hold anything; what follows is columns.
        columns = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    if not namespace or columns[0] in _GONE:
        return ""
    return f"{namespace}{pid}/{columns[19]}"


def _namespace(proc: Path) -> str:
    """Return the machine's boot id and this pid namespace; empty if the kernel does not say."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        inode = re.sub(r"\D", "", str((proc / "self/ns/pid").readlink()))
    except OSError:
        return ""
    return f"{boot}/{inode}/"


def _started() -> float:
    """Return when this process started; the current time if the kernel does not say."""
    try:
        ticks = int((_PROC / "self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float((_PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return time.time()
    return round(time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK"), 3)

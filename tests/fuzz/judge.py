"""Check whether a target keeps its contract for some bytes, within limits of time and memory."""

from __future__ import annotations

import hashlib
import os
import resource
import time
import traceback
from pathlib import Path

from tests.fuzz.target import Broken, Target

# A few kilobytes are nobody's work for longer, also where the code counts its own branches.
CPU_SECS = 3.0
# What they may take beside what the process has when it begins.
MEMORY_BYTES = 1 << 30

PACKAGES = ("blizzard_core", "blizzard_py", "penguin_py")


class TooSlow(Exception):
    """The bytes took more of the processor's time than any may."""


def judge(target: Target, data: bytes) -> None:
    """Raise what is wrong, if anything is."""
    began = time.process_time()
    target.check(data)
    if time.process_time() - began > CPU_SECS:
        again = time.process_time()  # what is only made once may take its time
        target.check(data)
        if (took := time.process_time() - again) > CPU_SECS:
            raise TooSlow(f"{took:.1f} s for {len(data)} bytes")


def signature(error: BaseException) -> str:
    """Return a key of the defect: the rule, or the error with the place that raised it."""
    if isinstance(error, Broken):
        return error.rule
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(f"/{package}/" in frame.filename for package in PACKAGES)
    ]
    if not ours:
        return type(error).__name__
    last = ours[-1]
    return f"{type(error).__name__} in {Path(last.filename).name} {last.name}"


class Findings:
    """Folder of the inputs that broke a contract in a run: the first of each kind."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.most = 20
        self._target = target
        self._folder = folder
        self._known: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def one(self, data: bytes) -> None:
        """Judge some bytes; ignore further cases of known findings."""
        try:
            judge(self._target, data)
        except BaseException as error:  # a panic of Rust's is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            told = signature(error)
            if told not in self._known:
                self._known.add(told)
                self._keep(told, data, error)
                if len(self._known) == self.most:
                    os._exit(1)  # enough for one run, and nobody else's code is to go on

    def _keep(self, told: str, data: bytes, error: BaseException) -> None:
        name = hashlib.sha256(data).hexdigest()[:16]
        (self._folder / name).write_bytes(data)
        trace = "".join(traceback.format_exception(error, limit=-8))
        (self._folder / f"{name}.txt").write_text(
            f"{told}\n\n{trace[:8000]}\n", errors="backslashreplace"
        )


def bound_memory() -> None:
    """Let no bytes take more than `MEMORY_BYTES`: what asks for more gets a `MemoryError`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

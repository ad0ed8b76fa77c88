"""A Penguin's log with an interruption before, after or instead of a commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penguin_py.delta.table import DeltaLog
from penguin_py.delta.writer import LogWriter
from penguin_py.model import CommitPlan

Write = Callable[[], None]


class Around(LogWriter):
    """``faults`` is called for each entry: with its plan, and what writes it."""

    def __init__(self, real: LogWriter, faults: Callable[[CommitPlan, Write], None]) -> None:
        self.real = real
        self._faults = faults

    def write(self, handle: Any, plan: CommitPlan, *more: Any) -> None:
        self._faults(plan, partial(self.real.write, handle, plan, *more))


def around(log: DeltaLog, faults: Callable[[Write], None]) -> None:
    """Write each entry of the log by ``faults`` from here on."""
    log.writer = Around(log.writer, lambda _plan, write: faults(write))


def alone(log: DeltaLog) -> None:
    """Write entries directly again."""
    assert isinstance(log.writer, Around)
    log.writer = log.writer.real

"""A worker that follows a script, and a stop event that never waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from blizzard_core.daemon import (
    StopEvent,
)
from blizzard_core.observability.activity import Activity


class InstantStop:
    """A stop event whose waits return at once and are written down."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.waits: list[float] = []
        self.stop_after = stop_after
        self.stopped = False

    def is_set(self) -> bool:
        return self.stopped

    def set(self) -> None:
        self.stopped = True

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if self.stop_after is not None and len(self.waits) >= self.stop_after:
            self.stopped = True
        return self.stopped


@dataclass
class ScriptedWorker:
    """A worker that returns or raises the next item of a script."""

    script: Iterator[bool | BaseException]
    name: str = "w"
    poll_interval_secs: float = 60.0
    is_paced: bool = False
    called_at: int = 0
    asked: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    activity: Activity = field(default_factory=lambda: Activity("w", "", lambda: 0.0))

    def cycle(self, stop: StopEvent) -> bool:  # noqa: ARG002 (the protocol's)
        step = next(self.script)
        if isinstance(step, BaseException):
            raise step
        return step

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait; nothing ends the pause but the daemon."""
        return stop.wait(secs)

    def is_called(self) -> bool:
        self.asked += 1
        return self.asked == self.called_at

    def cancel(self) -> None:
        self.cancelled.set()

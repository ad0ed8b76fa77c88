"""Warnings that repeat, told once and then summed up.

A store that is down for a night makes the same line thousands of times. The first is
printed; within the window after it equal ones are counted; the next one after the
window is printed with ``repeated``, how many were not. When none follows, the last one
is printed with its own time as soon as anything else is logged, or at the end: the
last state of a problem is never lost.

Equal means: the same facts, the batch, numbers, and numbers and ids in the error left
out of account (request ids differ each time). Only warnings and errors are held back;
an info line is a fact of its own.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

WINDOW_SECS = 600.0
# More kinds than that at once: the oldest window ends early.
MAX_KINDS = 1000

_LIMITED = frozenset({"warning", "error", "critical"})
# A file that fails again does so in another batch.
_PASSING = frozenset({"timestamp", "batch", "attempt"})
_FUZZY = frozenset({"error", "problem", "line", "message", "exception"})
_VARYING = re.compile(r"[0-9a-fA-F-]{8,}|\d+")

Render = Callable[[Any, str, Any], str]


@dataclass
class _Window:
    """From a printed line on: what was held back since."""

    began: float
    held: int = 0
    last: Any = None


class Repeats:
    """A renderer around a renderer; thread-safe. ``clock`` gives seconds of any origin."""

    def __init__(
        self, render: Render, clock: Callable[[], float], window_secs: float = WINDOW_SECS
    ) -> None:
        self._render = render
        self._clock = clock
        self._window_secs = window_secs
        self._lock = threading.Lock()
        # In the order in which windows began, hence in which they end.
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()

    def __call__(self, logger: Any, method: str, event: Any) -> str:
        """The line, with lines before it whose time has come. Raises `DropEvent` for none."""
        with self._lock:
            now = self._clock()
            key = key_of(event) if event.get("level") in _LIMITED else None
            known = self._windows.get(key) if key is not None else None
            if known is not None and now < known.began + self._window_secs:
                known.held += 1
                known.last = dict(event)
                due = self._due(now)
            else:
                if known is not None and key is not None:
                    event = _counted(event, known.held)
                    del self._windows[key]
                due = [*self._due(now), event]
                if key is not None:
                    self._windows[key] = _Window(now)
        if not due:
            raise structlog.DropEvent
        return "\n".join(self._render(logger, method, line) for line in due)

    def flush(self) -> str:
        """What is held back, as lines; nothing is held back after it."""
        with self._lock:
            held = [w for w in self._windows.values() if w.held]
            self._windows.clear()
        return "\n".join(self._render(None, "", _counted(w.last, w.held - 1)) for w in held)

    def _due(self, now: float) -> list[Any]:
        lines = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            over = now >= window.began + self._window_secs
            if not over and len(self._windows) <= MAX_KINDS:
                break
            del self._windows[key]
            if window.held:
                lines.append(_counted(window.last, window.held - 1))
        return lines


def _counted(event: Any, others: int) -> Any:
    """The event and how many equal ones before it were not printed."""
    return {**event, "repeated": others} if others else event


def key_of(event: Any) -> tuple[str, ...]:
    """What makes two events the same: every fact that is no number and does not pass."""
    return tuple(
        f"{name}={_VARYING.sub('#', str(value)) if name in _FUZZY else value}"
        for name, value in sorted(event.items())
        if name not in _PASSING and not isinstance(value, int | float)
    )

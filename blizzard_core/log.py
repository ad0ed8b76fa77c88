"""Structured logs: readable on a terminal, JSON lines everywhere else.

One event per fact, with pipeline, source and batch bound to it. Every line passes these steps in
this order:

1. credentials are masked, in values of keys with secret names and inside any text;
2. repeated warnings are summed up (`log_lines.RepeatFilter`);
3. characters that control a terminal or mislead a reader are escaped: control characters,
   direction marks, undecodable bytes. JSON lines read back as the same values.

Levels: *debug* every poll; *info* finished work; *warning* a problem that the daemon handles (it
retries, it quarantines a file); *error* a problem that it cannot handle.
``docs/reference/log-events.md`` lists every event.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from typing import Any, TextIO

from blizzard_core import redact
from blizzard_core.log_lines import EventLines

# Current and previous directory of a shell: no passwords, whatever the names contain.
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})


class _Output:
    """The stream of a log and its lowest level; without a stream nothing is printed.

    structlog takes 0.05 s to load, so it waits for an event.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lowest = 0
        self._out: TextIO | _Stderr | None = None
        self._lines: EventLines | None = None

    def set(self, lowest: int, out: TextIO | _Stderr | None) -> None:
        with self._lock:
            self._lowest, self._out, self._lines = lowest, out, None

    def write(self, number: int, event: dict[str, Any]) -> None:
        if self._out is None or number < self._lowest:
            return
        with self._lock:
            if self._lines is None:
                self._lines = EventLines(is_terminal=self._out.isatty())
            _print(self._lines.of(_LEVELS[number], event), self._out)

    def flush(self) -> None:
        with self._lock:
            if self._lines is not None:
                _print(self._lines.flush(), self._out)


def _print(lines: str, out: Any) -> None:
    if lines:
        print(lines, file=out, flush=True)


_LEVELS = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}
_output = _Output()


def configure(level: str, stream: TextIO | None = None) -> None:
    """Set up logging for the process. Logs go to stderr; stdout belongs to results."""
    redact.learn({name: text for name, text in os.environ.items() if name not in _DIRECTORIES})
    _output.set(getattr(logging, level.upper()), _Stderr() if stream is None else stream)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Libraries)]:
        root.removeHandler(handler)
    root.addHandler(_Libraries(logging.WARNING))


def silence() -> None:
    """Print no event until `configure`, as at the start; for programs that try our parts."""
    _output.set(logging.CRITICAL, None)


def flush() -> None:
    """Print what is held back as a repetition, before the process ends."""
    _output.flush()


class Logger:
    """Events of one part of the program, with facts bound to them."""

    __slots__ = ("_bound",)

    def __init__(self, bound: dict[str, Any]) -> None:
        self._bound = bound

    def bind(self, **facts: Any) -> Logger:
        """Return a logger with more facts."""
        return Logger({**self._bound, **facts})

    def debug(self, event: str, **facts: Any) -> None:
        """Log what happens at every poll."""
        self._log(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Log finished work."""
        self._log(logging.INFO, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Log a problem that the daemon handles."""
        self._log(logging.WARNING, event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Log a problem that the daemon cannot handle."""
        self._log(logging.ERROR, event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Log the error that is being handled, with its trace."""
        self._log(logging.ERROR, event, {"exc_info": True, **facts})

    def _log(self, number: int, event: str, facts: dict[str, Any]) -> None:
        _output.write(number, {**self._bound, **facts, "event": event})


class _Libraries(logging.Handler):
    """Libraries log through the standard module; only their warnings matter here."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a library's line on as an event of ours."""
        facts = {"logger": record.name, "message": record.getMessage()}
        if record.levelno >= logging.ERROR:
            get_logger().error("library", **facts, exc_info=record.exc_info)
            return
        # A library's warning needs no trace: botocore's for a missing token is two pages.
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            facts["error"] = f"{type(error).__name__}: {error}"
        get_logger().warning("library", **facts)


class _Stderr(io.TextIOBase):
    """The current ``sys.stderr`` at each write: a live view may replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def get_logger(**bound: Any) -> Logger:
    """Return a logger with facts bound to it."""
    return Logger(bound)

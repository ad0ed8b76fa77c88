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
from typing import TYPE_CHECKING, Any, TextIO

from blizzard_core import redact

if TYPE_CHECKING:
    from blizzard_core.log_lines import RepeatFilter

# Current and previous directory of a shell: no passwords, whatever the names contain.
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})


class _Output:
    """The stream of a log. structlog takes 0.1 s to load, so it waits for an event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: tuple[int, Any] | None = None
        self._out: Any = None
        self._repeats: RepeatFilter | None = None

    def configure(self, number: int, out: Any) -> None:
        with self._lock:
            self._asked, self._repeats = (number, out), None
        if "structlog" in sys.modules:  # it costs nothing any more
            self.open(number)

    def open(self, number: int) -> bool:
        """Set structlog up for an event of this level; return whether one is printed at all."""
        with self._lock:
            if self._asked is not None:
                lowest, out = self._asked
                if number < lowest:
                    return False
                from blizzard_core.log_lines import set_up  # noqa: PLC0415  # see the class

                self._repeats, self._out, self._asked = set_up(lowest, out), out, None
        return True

    def flush(self) -> None:
        lines = self._repeats.flush() if self._repeats else ""
        if lines:
            print(lines, file=self._out, flush=True)  # as structlog's own logger


_output = _Output()


def configure(level: str, stream: TextIO | None = None) -> None:
    """Set up logging for the process. Logs go to stderr; stdout belongs to results."""
    redact.learn({name: text for name, text in os.environ.items() if name not in _DIRECTORIES})
    _output.configure(getattr(logging, level.upper()), _Stderr() if stream is None else stream)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Libraries)]:
        root.removeHandler(handler)
    root.addHandler(_Libraries(logging.WARNING))


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
        if not _output.open(number):
            return
        import structlog  # noqa: PLC0415  # see `_Output`

        structlog.get_logger(**self._bound).log(number, event, **facts)


class _Libraries(logging.Handler):
    """Libraries log through the standard module; only their warnings matter here."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a library's line on as an event of ours."""
        facts = {"logger": record.name, "message": record.getMessage()}
        # structlog's filters and levels apply and drop unwanted lines.
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

"""Structured logs: readable on a terminal, JSON lines everywhere else.

One event per fact, with pipeline, source and batch bound to it. Every line passes these steps in
this order:

1. credentials are masked, in values of keys with secret names and inside any text;
2. repeated warnings are summed up (`RepeatFilter`);
3. characters that control a terminal or mislead a reader are escaped: control characters,
   direction marks, undecodable bytes. JSON lines read back as the same values.

Levels: *debug* every poll; *info* finished work; *warning* a problem that the daemon handles (it
retries, it quarantines a file); *error* a problem that it cannot handle.
``docs/reference/log-events.md`` lists every event.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from blizzard_core import redact
from blizzard_core.redact import MASK, SECRET_NAME, redacted
from blizzard_core.text import json_safe, printable, printable_lines

# Equal warnings within so long are printed once, and then counted.
WINDOW_SECS = 600.0
# More kinds than that at once: the oldest window ends early.
MAX_KINDS = 1000

_LIMITED = frozenset({"warning", "error"})
# A file that fails again does so in another batch.
_PASSING = frozenset({"timestamp", "batch", "attempt"})
_FUZZY = frozenset({"error", "problem", "line", "message", "exception"})
_VARYING = re.compile(r"[0-9a-fA-F-]{8,}|\d+")

# What of rich structlog imports first; without it structlog leaves rich out.
_RICH = "rich.console"

Event = dict[str, Any]
Render = Callable[[Event], str]


class EventLines:
    """The lines of a log's events: columns on a terminal, JSON elsewhere."""

    def __init__(self, *, is_terminal: bool) -> None:
        """Load structlog, so create it for the first event."""
        structlog = _structlog(with_colours=is_terminal)
        self._steps = (
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        )
        render = _Columns(structlog.dev.ConsoleRenderer()) if is_terminal else _json_line
        self._repeats = RepeatFilter(render, time.monotonic)

    def of(self, level: str, event: Event) -> str:
        """Return what is to be printed after an event; it may be nothing."""
        for step in self._steps:
            event = step(None, level, event)
        return self._repeats(mask_secrets(event))

    def flush(self) -> str:
        """Return the held-back lines and forget them."""
        return self._repeats.flush()


def _structlog(*, with_colours: bool) -> Any:
    """Import structlog. It loads rich for its colours, which takes as long as all else of it."""
    is_hidden = not with_colours and _RICH not in sys.modules
    if is_hidden:
        sys.modules[_RICH] = None  # type: ignore[assignment]  # so an import of it fails
    try:
        import structlog  # noqa: PLC0415  # see `EventLines`
    finally:
        if is_hidden:
            del sys.modules[_RICH]
    return structlog


def _json_line(event: Event) -> str:
    return json_safe(json.dumps(event, ensure_ascii=False, default=str))


class _Columns:
    """For people: columns and colours around text that cannot add its own."""

    def __init__(self, render: Callable[[Any, str, Event], str]) -> None:
        self._render = render

    def __call__(self, event: Event) -> str:
        shown = {
            printable(str(key)): printable_lines(value)
            if key == "exception"
            else printable(value)
            if isinstance(value, str)
            else value
            for key, value in event.items()
        }
        return self._render(None, event["level"], shown)


def mask_secrets(event: Event) -> Event:
    """Mask secret-looking keys and credentials inside text, in nested values too."""
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: Any) -> Any:
    if SECRET_NAME.search(key):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(k): _masked(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_masked("", v) for v in value]
    return redacted(str(value))


@dataclass
class _Window:
    """The repetitions held back since a line was printed."""

    began: float
    repeats: int = 0
    last: Event = field(default_factory=dict)


class RepeatFilter:
    """A renderer that prints a repeated warning once and then sums it up. Thread-safe.

    A store that is down for a night causes the same line thousands of times. The first is printed;
    equal ones within the window are counted. The next one after the window is printed with
    ``repeated``, the number of hidden ones. If none follows, the last one is printed with its own
    time as soon as anything else is logged, or at the end. The last state of a problem is never
    lost.

    Lines are equal if they have the same facts. The batch, numbers, and ids in the error do not
    count, since request ids always differ. Only warnings and errors are filtered. ``clock`` gives
    seconds of any origin.
    """

    def __init__(
        self, render: Render, clock: Callable[[], float], window_secs: float = WINDOW_SECS
    ) -> None:
        self._render = render
        self._clock = clock
        self._window_secs = window_secs
        self._lock = threading.RLock()
        # In the order in which windows began, hence in which they end.
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()

    def __call__(self, event: Event) -> str:
        """Return the line, after earlier lines that are due; nothing if it is held back."""
        with self._lock:
            now = self._clock()
            key = key_of(event) if event.get("level") in _LIMITED else None
            known = self._windows.get(key) if key is not None else None
            if known is not None and now < known.began + self._window_secs:
                known.repeats += 1
                known.last = dict(event)
                due = self._due(now)
            else:
                if known is not None and key is not None:
                    event = _counted(event, known.repeats)
                    del self._windows[key]
                due = [*self._due(now), event]
                if key is not None:
                    self._windows[key] = _Window(now)
        return "\n".join(map(self._render, due))

    def flush(self) -> str:
        """Return the held-back lines and forget them."""
        with self._lock:
            held = [w for w in self._windows.values() if w.repeats]
            self._windows.clear()
        return "\n".join(self._render(_counted(w.last, w.repeats - 1)) for w in held)

    def _due(self, now: float) -> list[Event]:
        lines: list[Event] = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            over = now >= window.began + self._window_secs
            if not over and len(self._windows) <= MAX_KINDS:
                break
            del self._windows[key]
            if window.repeats:
                lines.append(_counted(window.last, window.repeats - 1))
        return lines


def _counted(event: Event, others: int) -> Event:
    """Return the event with the number of equal ones that were not printed."""
    return {**event, "repeated": others} if others else event


def key_of(event: Event) -> tuple[str, ...]:
    """Return the identity of an event: all facts except numbers, the batch and the time."""
    return tuple(
        f"{name}={_VARYING.sub('#', str(value)) if name in _FUZZY else value}"
        for name, value in sorted(event.items())
        if name not in _PASSING and not isinstance(value, int | float)
    )


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

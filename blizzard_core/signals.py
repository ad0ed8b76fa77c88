"""Start and end of a process: its standard streams and its stop signals.

The module is light: it works during the second in which Python imports the rest.
"""

from __future__ import annotations

import ctypes
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# A shell's exit code for a process that SIGINT has ended.
INTERRUPTED = 128 + signal.SIGINT
# A moving display has hidden the cursor and no longer restores it.
_SHOW_CURSOR = "\x1b[?25h"


# New objects until Python looks for cycles among them; 700 is its own number. A start makes 80,000
# that stay; later 50,000 are some 5 MB.
_OBJECTS_OF_STARTS = 200_000
_OBJECTS_TO_COLLECT = 50_000
# Of `mallopt` in glibc; other C libraries have no arenas.
_ARENA_MAX = -8


def keep_little_memory() -> None:
    """Let the C library allocate everything, from two arenas. Called before Arrow is imported.

    Arrow's own allocators keep what was freed, and threads would have an arena each: 8 MB in an
    idle daemon. The environment has precedence.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


class Stoppable(Protocol):
    """An object that a signal sets, such as a `threading.Event`."""

    def set(self) -> None: ...


@contextmanager
def stop_on_signals(stop: Stoppable, grace_secs: float) -> Iterator[None]:
    """Set ``stop`` on SIGTERM and SIGINT; end the process at the second SIGINT.

    A person at a terminal sees what the process waits for, ``grace_secs`` at most. Ending at once
    loses nothing: the process may be killed at any step, and its children end with it. A supervisor
    may send SIGTERM several times, so it never forces the end.

    A handler interrupts the main thread, which may hold the lock of ``stop``: `threading.Event.set`
    would wait for ever. So another thread sets it, and handlers only use a reentrant queue.
    """
    was_interrupted = False
    signals: SimpleQueue[bool] = SimpleQueue()
    setter = threading.Thread(
        target=_set_when_signalled, args=(stop, signals), name="stop", daemon=True
    )
    setter.start()

    def terminate(_number: int, _frame: FrameType | None) -> None:
        signals.put(True)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_interrupted
        if was_interrupted:
            end_at_once()
        was_interrupted = True
        signals.put(True)
        _write_to_terminal(
            f"stopping; what runs now may finish within {grace_secs:g} seconds. Press Ctrl-C again"
            " to end at once: nothing is lost, the next start does it again\n"
        )

    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signals.put(False)
        setter.join()


def _set_when_signalled(stop: Stoppable, signals: SimpleQueue[bool]) -> None:
    while signals.get():
        stop.set()


def end_at_once() -> NoReturn:
    """End this process without waiting for its threads, as after a second Ctrl-C."""
    _write_to_terminal(f"{_SHOW_CURSOR}ended at once\n")
    os._exit(INTERRUPTED)


def _write_to_terminal(text: str) -> None:
    """Write to a terminal, if there is one, bypassing the log and its lock."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text.encode())


def started() -> None:
    """Make Ctrl-C end this process without a trace, and open missing standard streams.

    Nothing here multiplies matrices, so numpy needs no threads for it: they are half the cost of
    its import. Pydantic would search all installed packages for plugins, of which settings need
    none. Imports make many objects that stay, so the collector of cycles waits for
    `spare_imports`: it would take a twentieth of a short command's time. Ctrl-C is covered during
    the imports; from the first step of a command on `blizzard_core.cli` and `stop_on_signals` take
    over.
    """
    sys.excepthook = _report_uncaught
    sys.unraisablehook = _report_unraisable
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(_OBJECTS_OF_STARTS)
    _opened_streams()


def spare_imports() -> None:
    """Never look for cycles among the objects of a start: a daemon keeps them to its end."""
    if gc.get_threshold()[0] == _OBJECTS_OF_STARTS:
        gc.freeze()
        gc.set_threshold(_OBJECTS_TO_COLLECT)


def _report_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def _report_unraisable(found: UnraisableHookArgs) -> None:
    """End the process if Ctrl-C struck a destructor; Python would report it and go on.

    Imports run many callbacks of weak references, so this is likely in the first second.
    """
    if isinstance(found.exc_value, KeyboardInterrupt):
        end_at_once()
    sys.__unraisablehook__(found)


def _opened_streams() -> None:
    """Open a file for each standard stream that the parent closed (``>&-``).

    Otherwise the next opened file gets the number, and output would be written into it. Writing
    results to a closed stdout is an error, as with other commands; logs are not.
    """
    for number, (name, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None and os.open(os.devnull, flags) == number:
            # Unbuffered: failed writes are not retried at the end.
            raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))

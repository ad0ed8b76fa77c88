"""How signals end a daemon: in order at first, at once if a person insists."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import NoReturn, Protocol

# What a shell says of a process that SIGINT has ended.
INTERRUPTED = 128 + signal.SIGINT
# A display that moves has hidden it, and is not asked any more.
_SHOW_CURSOR = "\x1b[?25h"


class Stoppable(Protocol):
    """What a signal sets, such as a `threading.Event`."""

    def set(self) -> None: ...


@contextmanager
def stop_on_signals(stop: Stoppable, grace_secs: float) -> Iterator[None]:
    """SIGTERM and SIGINT set ``stop``; a second SIGINT ends the process where it stands.

    Whoever pressed the keys is told what is waited for, ``grace_secs`` at most. Ending at once
    loses nothing: whatever a process does it may be killed at, and its children end with it.
    SIGTERM may come several times from one supervisor, so it never insists.

    A handler runs in the middle of whatever the main thread does, which may hold the very lock
    that ``stop`` is set under: `threading.Event.set` would wait for itself then, for ever. So
    another thread sets it, and handlers only put into a queue that is made for that.
    """
    told = False
    asked: SimpleQueue[bool] = SimpleQueue()
    setter = threading.Thread(target=_set_when_asked, args=(stop, asked), name="stop", daemon=True)
    setter.start()

    def terminate(_number: int, _frame: FrameType | None) -> None:
        asked.put(True)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            _end_at_once()
        told = True
        asked.put(True)
        _say(
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
        asked.put(False)
        setter.join()


def _set_when_asked(stop: Stoppable, asked: SimpleQueue[bool]) -> None:
    while asked.get():
        stop.set()


def _end_at_once() -> NoReturn:
    _say(f"{_SHOW_CURSOR}ended at once\n")
    os._exit(INTERRUPTED)


def _say(text: str) -> None:
    """To a person, if there is one. Past the log, whose lock the interrupted code may hold."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text.encode())

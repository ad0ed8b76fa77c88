"""A cache of facts for the status page, filled by background threads on demand.

A request returns the latest result at once, and nothing the first time. A few threads read a key
while somebody keeps asking for it. So no request waits for a store and no poll waits for a
request. A page that nobody opens costs nothing, and a hanging store blocks only its own keys. A
result that could not be renewed for long carries an error: old data is never shown as new.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_core.log import get_logger
from blizzard_core.redact import error_text

# A document is read again after this time, while somebody asks for it.
FRESH_SECS = 60.0
# Interest ends after this time without a request; documents are dropped later.
WANTED_SECS = 20.0
KEPT_SECS = 600.0
# A read that is due this long, with steady requests, is late.
LATE_SECS = 30.0
# The number of concurrent reads.
READERS = 4
# How long the shutdown waits for running reads.
STOP_SECS = 1.0


@dataclass(frozen=True, slots=True)
class CachedDocument:
    """A document that was read, and the moment ``at`` (epoch seconds); None before the first read.

    ``error`` is the reason of a failed read; ``document`` and ``at`` are then of the last success.
    """

    at: float | None = None
    document: Any = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the page gets it."""
        return {"at": self.at, "error": self.error, "document": self.document}


class Busy(BlizzardError):
    """Too many keys wait for their first read."""


@dataclass(slots=True)
class _Entry:
    requested_at: float
    # The start of the current interest.
    wanted: float
    read: float | None = None
    reading: bool = False
    result: CachedDocument = CachedDocument()


class BackgroundCache:
    """A cache that reads documents by key in its own threads. Thread-safe.

    ``read`` returns the document of a key and may raise `BlizzardError`. Several threads call it,
    but never two at a time for the same key. At most ``waiting`` keys wait for their first read.
    ``clock`` gives the shown times, ``elapsed`` decides what is due.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[str], Any],
        clock: Callable[[], float],
        elapsed: Callable[[], float],
        waiting: int,
    ) -> None:
        self._name = name
        self._read = read
        self._clock = clock
        self._elapsed = elapsed
        self._most = waiting
        self._entries: dict[str, _Entry] = {}
        self._requested = threading.Condition()
        self._over = False

    def ask(self, key: str) -> CachedDocument:
        """Return the cached document, and have it read again if it is old. Raises `Busy`."""
        with self._requested:
            now = self._elapsed()
            entry = self._entries.get(key)
            if entry is None:
                self._forget(now)
                if sum(each.read is None for each in self._entries.values()) >= self._most:
                    raise Busy("others are being answered; ask again in a moment")
                entry = self._entries[key] = _Entry(now, now)
            if now - entry.requested_at > WANTED_SECS:
                entry.wanted = now
            entry.requested_at = now
            if entry.read is None or now - entry.read >= FRESH_SECS:
                self._requested.notify()
            return _mark_late(entry, now)

    def look(self) -> bool:
        """Read what is due next, if anything is. Only the thread and tests call it."""
        with self._requested:
            key = next_of(
                {k: (e.requested_at, e.read) for k, e in self._entries.items() if not e.reading},
                self._elapsed(),
            )
            if key is None:
                return False
            self._entries[key].reading = True
        document, error = self._answer(key)
        with self._requested:
            entry = self._entries.get(key)
            if entry is not None:
                entry.read, entry.reading = self._elapsed(), False
                if error and entry.result.document is not None:
                    entry.result = replace(entry.result, error=error)
                else:
                    entry.result = CachedDocument(self._clock(), document, error)
        return True

    def _answer(self, key: str) -> tuple[Any, str]:
        try:
            return self._read(key), ""
        except BlizzardError as error:
            return None, error_text(error)
        except Exception as error:  # a bug of the page must not end the daemon
            get_logger().warning("lookup_failed", lookup=self._name, key=key, exc_info=True)
            return None, f"this cannot be shown: {error_text(error)}"

    def _forget(self, now: float) -> None:
        expired = [
            key
            for key, each in self._entries.items()
            if not each.reading
            and now - each.requested_at > (WANTED_SECS if each.read is None else KEPT_SECS)
        ]
        for key in expired:
            del self._entries[key]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Read while the block runs."""
        threads = [
            threading.Thread(target=self._work, name=f"{self._name}-{n}", daemon=True)
            for n in range(READERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            with self._requested:
                self._over = True
                self._requested.notify_all()
            until = self._elapsed() + STOP_SECS
            for thread in threads:
                thread.join(max(0.0, until - self._elapsed()))

    def _work(self) -> None:
        while True:
            busy = self.look()
            with self._requested:
                if self._over:
                    return
                if not busy:
                    self._requested.wait(FRESH_SECS)
                if self._over:
                    return


def _mark_late(entry: _Entry, now: float) -> CachedDocument:
    """Return the cached document, with an error if it is too old."""
    due = entry.wanted if entry.read is None else max(entry.wanted, entry.read + FRESH_SECS)
    if entry.result.error or now - due <= LATE_SECS:
        return entry.result
    late = f"could not be read for {now - due:.0f} s: a store does not answer, or is slow"
    return replace(entry.result, error=late)


def next_of(entries: Mapping[str, tuple[float, float | None]], now: float) -> str | None:
    """Return the key to read next, from the times of requests and reads. Pure.

    Unread keys come first, then the one that was read longest ago. Fresh keys and keys that nobody
    asks for are skipped.
    """
    due = {
        key: read
        for key, (asked, read) in entries.items()
        if now - asked <= WANTED_SECS and (read is None or now - read >= FRESH_SECS)
    }
    unread = [key for key, read in due.items() if read is None]
    if unread:
        return max(unread, key=lambda key: entries[key][0])
    return min(due, key=lambda key: due[key] or 0.0, default=None)

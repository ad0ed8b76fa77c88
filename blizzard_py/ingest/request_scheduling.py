"""Turns of live files and requested files within one poll of the source. Pure.

Live files come first. A batch of a request has its turn when no live files wait, or after three
live batches. So a request makes progress during a long backlog. At most one batch of a request is
in flight, and none starts when the next poll is due. So new files wait for at most one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.sources.protocol import Requested, Work

# The number of live batches between two of a request, while live files wait.
_LIVE_TURNS = 3
# Limits of a batch of a request, because new live files wait for it.
_REQUEST_SECS = 20.0
_FIRST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Turn:
    """The files of the next batch, and their request; ``""`` for live files."""

    files: tuple[Entry, ...]
    request: str = ""


class Turns:
    """Chooses the next batch. ``is_due`` says whether the next poll is due.

    Without any work the first batch has no files, for jobs that have something due anyway.
    """

    def __init__(
        self, live: Work, requested: Requested, limits: BatchLimits, is_due: Callable[[], bool]
    ) -> None:
        self._live = live
        self._request = requested
        self._requested = requested.work
        self._is_empty = not live and not requested.work
        self._limits = limits
        self._is_due = is_due
        # Turns of live files since one of a request.
        self._since = 0
        self._is_first = True

    def next(self, bytes_per_sec: float | None, *, is_beside_request: bool) -> Turn | None:
        """Take the next batch's files; None if no batch may start now.

        With ``is_beside_request`` a batch of a request is in flight.
        """
        if self._is_empty:
            self._is_empty = False
            return Turn(())
        may_begin = self._may_begin and not is_beside_request
        if self._live and (self._since < _LIVE_TURNS or not may_begin):
            self._since += 1
            return Turn(self._live.take(self._limits, bytes_per_sec))
        if not may_begin:
            return None
        self._since, self._is_first = 0, False
        files = self._requested.take(self._small(bytes_per_sec), bytes_per_sec)
        return Turn(files, self._request.id)

    @property
    def _may_begin(self) -> bool:
        # While live files wait there is no need to look for others.
        return bool(self._requested) and (bool(self._live) or self._is_first or not self._is_due())

    def _small(self, bytes_per_sec: float | None) -> BatchLimits:
        limits = self._limits
        most = limits.bytes if bytes_per_sec is not None else min(limits.bytes, _FIRST_BYTES)
        return replace(limits, bytes=most, secs=min(limits.secs, _REQUEST_SECS))

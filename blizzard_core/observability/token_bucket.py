"""A token bucket for the requests to stores that the status page may cause.

The page asks on behalf of anybody who can reach it. Requests are counted, not questions: one
question may take a single request, another one thousands.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from blizzard_core.errors import BlizzardError
from blizzard_core.limits import STORY_REQUESTS

PER_SEC = 10.0


class RequestLimitReached(BlizzardError):
    """A question needs more requests than are left now."""


class TokenBucket:
    """The requests that are left. Thread-safe; ``elapsed`` is a clock that never goes back."""

    def __init__(
        self, elapsed: Callable[[], float], burst: int = STORY_REQUESTS, per_sec: float = PER_SEC
    ) -> None:
        self._elapsed = elapsed
        self._burst = burst
        self._per_sec = per_sec
        self._tokens = float(burst)
        self._at = elapsed()
        self._lock = threading.Lock()

    def spend(self) -> None:
        """Count a request. Raises `RequestLimitReached` if none is left."""
        with self._lock:
            now = self._elapsed()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_sec)
            self._at = now
            if self._tokens < 1:
                secs = math.ceil((self._burst / 2 - self._tokens) / self._per_sec)
                raise RequestLimitReached(
                    "this takes more requests to the store than a page may cause; ask on a"
                    f" terminal with `blizzard explain CONFIG URI`, or here in {secs} s"
                )
            self._tokens -= 1

"""Repeated requests and the pauses before them. Pure."""

from __future__ import annotations

import datetime as dt
import email.utils
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import random

# Too slow, too early, too many requests: another attempt may succeed.
_PASSING = frozenset({408, 425, 429})
# The request and its repetitions: with doubling pauses half a minute in all.
TRIES = 6
_FIRST_SECS = 1.0
MAX_PAUSE_SECS = 60.0


@dataclass(frozen=True, slots=True)
class Time:
    """Clocks, sleep and random numbers from 0 up to 1; tests replace them."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random


def passes(status: int) -> bool:
    """Return whether a later answer may have another status."""
    return status in _PASSING or 500 <= status <= 599


def pause(failures: int, retry_after: str, server_now: float, chance: float) -> float:
    """Return the seconds to wait after so many failures in a row, at most 60.

    The server may state them (``Retry-After``: seconds, or a date by its own clock). Otherwise they
    double from one second, and between half and all of that is used, so that tasks that failed
    together do not return together. The pause is never shorter than the server states.
    """
    requested = _requested_pause(retry_after.strip(), server_now)
    if requested is not None:
        return min(requested + chance * min(requested, 1.0), MAX_PAUSE_SECS)
    doubled = min(_FIRST_SECS * (1 << min(failures - 1, 30)), MAX_PAUSE_SECS)
    return doubled * (0.5 + 0.5 * chance)


def moment(date: str) -> float | None:
    """Return the epoch seconds of an HTTP date; None if it is not one."""
    try:
        parsed = email.utils.parsedate_to_datetime(date)
        zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)
        return zoned.timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _requested_pause(retry_after: str, server_now: float) -> float | None:
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after.lstrip("0")[:9] or 0)  # of more digits it is hours in any case
    at = moment(retry_after)
    return None if at is None else max(0.0, at - server_now)

"""What a source says of one of its items, in the words that all sources have for it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "ingested",
    "quarantined",
    "pending",
    "late",
    "closed",
    "done",
    "missing",
    "ignored",
    "unmatched",
]
Behind = Literal["in_flight", "retry", "late_queue", "min_age", "apart", "poll"]


@dataclass(frozen=True, slots=True)
class Compared:
    """What the file was compared with: its partition's marks, the floor, the whole source's state.

    ``scan_start`` is the name that listings of the partition start after (``before``);
    ``watermark`` is the one shown, which may be ahead of it by the grace period.
    """

    state: str
    depth: int | None
    watermark: str | None
    scan_start: str | None
    floor: str | None
    source_watermark: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a pending file is behind.

    ``batch`` and ``phase`` if it is in one, ``tries`` of ``max_tries`` if it
    failed before, ``until_ts`` if it is too young.
    """

    behind: Behind
    reason: str
    batch: str | None = None
    phase: str | None = None
    attempt: int | None = None
    started_ts: float | None = None
    tries: int | None = None
    max_tries: int | None = None
    until_ts: float | None = None


@dataclass(frozen=True, slots=True)
class Lateness:
    """What ``late_files`` says of a late file, and what that means."""

    late_files: str
    reason: str


def moment(seconds: float) -> str:
    """Epoch seconds as people read them."""
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"

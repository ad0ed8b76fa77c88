"""Batches that are offered to the running query, one at a time, as files in its directory.

The query's source reads the newest number and the batch of a number. Both follow from our
checkpoint, so a restarted query reads nothing that was not offered to it again.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from blizzard_py.job import JobFile, Place
from blizzard_py.kernels.lateness import Limits, Rule

_LATEST = "latest"
_SETTLED = "settled"
# The interval of looking for a new batch, and the longest wait.
_LOOK_SECS = 0.005
_HELD_SECS = 0.2
# After a batch these decide whether an empty micro-batch follows and notify waiting threads.
_PROMPT_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class SourceShare:
    """One source's part of a batch: staged files by task, and the rule for its rows.

    ``tick_us`` is the time of a row that only moves the watermark, if there is one. ``lacks`` are
    columns that only other sources have.
    """

    source: str
    tasks: tuple[tuple[JobFile, ...], ...]
    rule: Rule
    tick_us: int | None = None
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """One batch's accepted rows: their columns, their limits, and each source's part.

    ``sink`` is their location without its options: tasks get these when they begin.
    """

    sink: Place
    schema: pa.Schema
    limits: Limits
    shares: tuple[SourceShare, ...]


def publish_number(folder: Path, number: int, offer: Offer | None) -> None:
    """Make ``number`` the newest one; without an offer its batch is already finished."""
    if offer is not None:
        _replace(folder / f"{number}.offer", pickle.dumps(offer))
        (folder / f"{number - 1}.offer").unlink(missing_ok=True)
    _replace(folder / _LATEST, str(number).encode())


def begin_after(folder: Path, number: int) -> None:
    """Make a new query begin after ``number``: it and all before are finished."""
    _replace(folder / _SETTLED, str(number).encode())
    publish_number(folder, number, None)


def starting_number(folder: Path) -> int:
    """Return the number of the batch that was finished when the query was started."""
    return int((folder / _SETTLED).read_bytes())


def newest_number(folder: Path) -> int:
    """Return the newest number."""
    return int((folder / _LATEST).read_bytes())


class NewestNumber:
    """The newest number, for a query that asks again and again.

    Spark pauses between two questions, and a batch that is offered meanwhile waits. So after a few
    equal answers a question is held back until a batch is offered. It is not held for long, since a
    stop of the query waits for the answer.
    """

    def __init__(self, folder: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._pause = pause
        self._newest = -1
        self._times = 0

    def ask(self) -> int:
        """Return the newest number now."""
        found = newest_number(self._folder)
        looks = round(_HELD_SECS / _LOOK_SECS) if self._times >= _PROMPT_ANSWERS else 0
        while found == self._newest and looks:
            self._pause(_LOOK_SECS)
            looks -= 1
            found = newest_number(self._folder)
        self._times = self._times + 1 if found == self._newest else 1
        self._newest = found
        return found


def read_offer(folder: Path, number: int) -> Offer:
    """Return the batch of a number."""
    found: Offer = pickle.loads((folder / f"{number}.offer").read_bytes())  # noqa: S301  # our own
    return found


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    os.replace(temporary, path)  # noqa: PTH105  # Path.replace is the same

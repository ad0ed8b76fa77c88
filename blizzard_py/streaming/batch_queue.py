"""Offers to the running query: a batch at a time, as files in its scratch directory.

The query's source asks for the newest number and for what a number means; both follow from our
checkpoint, so a query that is started again asks for nothing that was not offered to it anew.
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
# So often it is looked whether something was offered, and at most so long.
_LOOK_SECS = 0.005
_HELD_SECS = 0.2
# What Spark asks after a batch decides whether an empty micro-batch follows and who waits is told.
_PROMPT_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class SourceShare:
    """One source's share of a batch: staged files by task, and the rule for their rows.

    ``tick_us`` is the time of a row that moves the watermark and is no row, if there is one.
    ``lacks`` are columns that only other sources have.
    """

    source: str
    tasks: tuple[tuple[JobFile, ...], ...]
    rule: Rule
    tick_us: int | None = None
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """One batch's accepted rows: what is read of them, by what they are judged, each source's.

    ``sink`` is where they are, without its options: tasks are handed these as they begin.
    """

    sink: Place
    schema: pa.Schema
    limits: Limits
    shares: tuple[SourceShare, ...]


def publish_number(folder: Path, number: int, offer: Offer | None) -> None:
    """From now on ``number`` is the newest; without an offer it was settled before."""
    if offer is not None:
        _replace(folder / f"{number}.offer", pickle.dumps(offer))
        (folder / f"{number - 1}.offer").unlink(missing_ok=True)
    _replace(folder / _LATEST, str(number).encode())


def begin_after(folder: Path, number: int) -> None:
    """Return the offset after which a new query begins: ``number`` and all before was settled."""
    _replace(folder / _SETTLED, str(number).encode())
    publish_number(folder, number, None)


def starting_number(folder: Path) -> int:
    """The number that was settled when the query was started."""
    return int((folder / _SETTLED).read_bytes())


def newest_number(folder: Path) -> int:
    """The newest number."""
    return int((folder / _LATEST).read_bytes())


class NewestNumber:
    """The newest number, as a query is told it that asks again and again.

    Between two questions Spark pauses, and what is offered meanwhile waits. So a question is
    held back once the same answer was given a few times: until something is offered, or not for
    long, since whoever stops the query waits for the answer.
    """

    def __init__(self, folder: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._pause = pause
        self._told = -1
        self._times = 0

    def ask(self) -> int:
        """The newest number by now."""
        found = newest_number(self._folder)
        looks = round(_HELD_SECS / _LOOK_SECS) if self._times >= _PROMPT_ANSWERS else 0
        while found == self._told and looks:
            self._pause(_LOOK_SECS)
            looks -= 1
            found = newest_number(self._folder)
        self._times = self._times + 1 if found == self._told else 1
        self._told = found
        return found


def read_offer(folder: Path, number: int) -> Offer:
    """Return what a number means."""
    found: Offer = pickle.loads((folder / f"{number}.offer").read_bytes())  # noqa: S301  # our own
    return found


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    os.replace(temporary, path)  # noqa: PTH105  # Path.replace is the same

"""Cost of a commit that replaces, beside one that appends as many files.

Two tables of the same many files, of which only the log has most. In each round a Penguin
appends so many files to one, and another applies a group of as many to the other, which takes
the place of the group before it: so many files out, so many in. They take turns.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from uuid_utils import uuid7

from benchmarks.penguin_table import THREADS, penguin, sample_stats
from blizzard_core.handover.groups import Group, GroupFile, encode_group, group_path
from penguin_py.pipeline import TablePipeline
from tests.support.table_harness import parquet

SOURCE = "bench"
# A commit that replaces may take so many times as long as one that appends as many files.
GOAL = 1.5


@dataclass(frozen=True, slots=True)
class Pairs:
    """Seconds of each round, of the clock and of the processor: (replacing, appending)."""

    files: int
    secs: Sequence[tuple[float, float]]
    cpu: Sequence[tuple[float, float]]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(ours / theirs for ours, theirs in self.secs)

    @property
    def cpu_ratio(self) -> float:
        """The same of the processor."""
        return statistics.median(ours / theirs for ours, theirs in self.cpu)


def rows(slice_: str) -> pa.Table:
    """Return a hundred rows of one slice of a unit."""
    moment = pa.array([1_700_000_000_000_000] * 100, pa.timestamp("us", tz="UTC"))
    names = {"id": list(range(100)), "name": ["x" * 10] * 100, "moment": moment}
    return pa.table({**names, "_unit": [slice_] * 100})


def make_table(root: Path, files: int) -> None:
    """Make a table whose log has so many files of other units, in a checkpoint."""
    data = parquet(rows(f"{SOURCE}/0/000000000"))
    schema, stats = sample_stats(data)
    root.mkdir()
    adds = [
        AddAction(
            f"{number:09d}.parquet",
            len(data),
            {},
            0,
            data_change=True,
            stats=stats.replace(f"{SOURCE}/0/000000000", f"{SOURCE}/0/{number:09d}"),
        )
        for number in range(files)
    ]
    create_table_with_add_actions(str(root), Schema.from_arrow(schema), adds)
    DeltaTable(root).create_checkpoint()


class Arriving(Protocol):
    """A table to which files come."""

    def arrive(self, count: int) -> None:
        """So many files come."""


class Appending:
    """A table to which files come by listing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._round = 0

    def arrive(self, count: int) -> None:
        """Put so many more files."""
        self._round += 1
        for number in range(count):
            data = parquet(rows(f"{SOURCE}/2/{number:06d}"), f"b/s/{self._round}/1/{number}")
            (self._root / f"{uuid7()}.parquet").write_bytes(data)


class Replacing:
    """A table to which files come by groups, each in the place of the one before."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seq = 0

    def arrive(self, count: int) -> None:
        """Publish another reading of the unit: so many files, and the manifest."""
        self._seq += 1
        files = []
        for number in range(count):
            output_id = f"b/s/{self._seq}/1/{number}"
            data = parquet(rows(f"{SOURCE}/1/{number:06d}"), output_id)
            name = f"unit-{uuid7()}.parquet"
            (self._root / name).write_bytes(data)
            files.append(GroupFile(name, len(data), 100, output_id))
        replace = ((f"{SOURCE}/1/", f"{SOURCE}/10"),)
        group = Group(SOURCE, self._seq, 1, f"batch-{self._seq}", tuple(files), replace)
        path = self._root / group_path(SOURCE, self._seq)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_group(group))


def pairs(folder: Path, files: int, counts: Sequence[int], rounds: int) -> list[Pairs]:
    """For each count, rounds in which both commit so many files."""
    found = []
    for count in counts:
        with ThreadPoolExecutor(THREADS) as pool:
            places = [folder / f"{count}-{name}" for name in ("replacing", "appending")]
            for place in places:
                make_table(place, files)
            sides: tuple[Arriving, ...] = (Replacing(places[0]), Appending(places[1]))
            workers = [penguin(str(place), pool)[0] for place in places]
            for one, worker in zip(sides, workers, strict=True):
                one.arrive(count)  # what is replaced first; and the start is no part of it
                while worker.cycle(threading.Event()):
                    pass
            secs, cpu = [], []
            for round_ in range(rounds):
                order = (0, 1) if round_ % 2 else (1, 0)
                taken = {}
                for side in order:
                    sides[side].arrive(count)
                    taken[side] = committed(workers[side])
                secs.append((taken[0][0], taken[1][0]))
                cpu.append((taken[0][1], taken[1][1]))
            check(places, files, count, rounds)
        found.append(Pairs(count, secs, cpu))
    return found


def committed(worker: TablePipeline) -> tuple[float, float]:
    """Seconds until what has arrived is in the log, and that was read."""
    began, busy = time.perf_counter(), time.process_time()
    assert worker.cycle(threading.Event())
    worker.cycle(threading.Event())  # reads its own commit, which the handle does not know yet
    return time.perf_counter() - began, time.process_time() - busy


def check(places: Sequence[Path], files: int, count: int, rounds: int) -> None:
    """Both did what they were measured by."""
    replaced, appended = (DeltaTable(place) for place in places)
    assert len(replaced.file_uris()) == files + count
    assert len(appended.file_uris()) == files + count * (rounds + 1)
    assert replaced.version() == appended.version() == rounds + 1

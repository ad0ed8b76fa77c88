"""Cost of rewriting the remaining rows of mixed files, beside copying the files.

A mixed file holds rows of many units, as a compaction leaves it; one of the units goes. Copying
is the same with pyarrow alone: row group by row group, the same codec, durable at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.units_commits import Pairs
from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_core.storage.opening import open_storage
from penguin_py.groups.rows import count_replaced, rewrite
from penguin_py.planning.replacement import ranges_of

UNITS = 20
_GROUP_ROWS = 250_000
# Rewriting may take so many times as long as copying.
GOAL = 1.2

_WANTED = {UNIT_COLUMN: ranges_of([("bench/07/", "bench/070")])}


def make_file(path: Path, count: int, seed: int) -> None:
    """Return so many rows of six columns, of `UNITS` units one after the other."""
    chance = np.random.default_rng(seed)
    units = pa.array([f"bench/{number:02d}/2020-01-01T00:00:00.000Z" for number in range(UNITS)])
    table = pa.table(
        {
            "id": pa.array(np.arange(count)),
            "score": pa.array(chance.integers(0, 11, count)),
            "share": pa.array(chance.random(count)),
            "at": pa.array(chance.integers(0, 1 << 50, count), pa.timestamp("us", tz="UTC")),
            "text": pa.array([f"answer {n % 9973} of many" for n in range(count)]),
            UNIT_COLUMN: units.take(pa.array(np.arange(count) * UNITS // count)),
        }
    )
    pq.write_table(table, path, compression="snappy", row_group_size=_GROUP_ROWS)


def pairs(folder: Path, count: int, rounds: int) -> Pairs:
    """Measure both ways in turns, once a round, on a file of so many rows."""
    secs, cpu = [], []
    source = folder / "mixed.parquet"
    make_file(source, count, 15)
    both: Sequence[Callable[[Path, Path], None]] = (rewritten, copied)
    for round_ in range(rounds):
        taken = {}
        for side in (0, 1) if round_ % 2 else (1, 0):
            target = folder / f"{round_}-{side}.parquet"
            began, busy = time.perf_counter(), time.process_time()
            both[side](source, target)
            taken[side] = (time.perf_counter() - began, time.process_time() - busy)
            left = pq.read_metadata(target).num_rows
            assert left == (count if side else count - count // UNITS)
            target.unlink()
        secs.append((taken[0][0], taken[1][0]))
        cpu.append((taken[0][1], taken[1][1]))
    return Pairs(1, secs, cpu)


def rewritten(source: Path, target: Path) -> None:
    """Rewrite as Penguin does: the one column first, then the remaining rows."""
    storage = open_storage(str(source.parent), {})
    size = source.stat().st_size
    looked = count_replaced(storage, source.name, size, _WANTED)
    assert 0 < looked.leaving < looked.rows
    rewrite(storage, source.name, size, target.name, _WANTED)


def copied(source: Path, target: Path) -> None:
    """Copy all rows with pyarrow."""
    with pq.ParquetFile(source) as file, target.open("wb") as sink:
        with pq.ParquetWriter(sink, file.schema_arrow, compression="snappy") as writer:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number)
                writer.write_table(rows, row_group_size=rows.num_rows)
        sink.flush()
        os.fsync(sink.fileno())

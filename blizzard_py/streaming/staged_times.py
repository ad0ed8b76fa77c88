"""The event times of a batch's staged Parquet files, read in this process.

Only that column is read, from files that were just written: eight bytes a row, or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_core.threads import ThreadPool
from blizzard_py.job import StagedOutput
from blizzard_py.kernels.lateness import Limits, Micros, Rule, split, times_of
from blizzard_py.state.event_times import BEHIND_SECS, EventTimes, merge_times

_MILLI, _MICRO = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class TimeTally:
    """Counts of late and early rows, and the times of the others.

    ``newest_us`` is for rows that are neither late nor ahead, ``times`` for rows that are not
    ahead.
    """

    late: int = 0
    ahead: int = 0
    partly: int = 0
    newest_us: int | None = None
    times: EventTimes | None = None


def tally(
    storage: Storage,
    outputs: Sequence[StagedOutput],
    rule: Rule,
    limits: Limits,
    newest_ms: int | None,
    width: int,
) -> TimeTally:
    """Return the counts and times of staged rows; rows without a time do not count.

    ``newest_ms`` is the newest time of the batches before, if any. ``width`` files are read in
    parallel. Raises `StorageError`, and `LookupError` for a file without the column.
    """
    with ThreadPool(width) as pool:
        files = list(pool.map(partial(_of_file, storage, rule, limits, newest_ms), outputs))
    found = [each for some in files for each in some]
    newest = [each.newest_us for each in found if each.newest_us is not None]
    return TimeTally(
        sum(each.late for each in found),
        sum(each.ahead for each in found),
        sum(each.partly for each in found),
        max(newest, default=None),
        merge_times(each.times for each in found),
    )


def _of_file(
    storage: Storage, rule: Rule, limits: Limits, newest_ms: int | None, output: StagedOutput
) -> list[TimeTally]:
    """Return the tally of each row group."""
    place = RangeFile(partial(storage.read_range, output.staged), output.size)
    with pq.ParquetFile(pa.PythonFile(place, mode="r")) as file:
        if rule.column not in file.schema_arrow.names:
            raise LookupError(rule.column)
        groups = (
            file.read_row_group(number, columns=[rule.column]).column(rule.column)
            for number in range(file.num_row_groups)
        )
        return [_of_times(rule, limits, newest_ms, times_of(each.drop_null())) for each in groups]


def _of_times(rule: Rule, limits: Limits, newest_ms: int | None, times: Micros) -> TimeTally:
    found = split(rule, limits, times)
    on_time = times[found.on_time]
    return TimeTally(
        int(np.count_nonzero(found.late)),
        int(np.count_nonzero(found.ahead)),
        found.partly,
        int(on_time.max()) if on_time.size else None,
        _statistics(times[~found.ahead], newest_ms),
    )


def _statistics(times: Micros, newest_ms: int | None) -> EventTimes | None:
    if not times.size:
        return None
    edges = np.array(BEHIND_SECS, np.int64) * _MICRO
    behind = np.zeros_like(times) if newest_ms is None else newest_ms * _MILLI - times
    buckets = np.bincount(np.searchsorted(edges, behind, side="left"), minlength=edges.size + 1)
    return EventTimes(
        times.size,
        int(times.min()) // _MILLI,
        int(times.max()) // _MILLI,
        round(float(times.mean()) / _MILLI, 3),
        tuple(buckets.tolist()),
    )

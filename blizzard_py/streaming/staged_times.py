"""The event times of a batch's staged Parquet files: of their footers, and of rows where needed.

A footer tells the oldest and the newest time of each row group. Only a group in which rows may be
late or ahead is read, and of it the one column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.job import StagedOutput
from blizzard_py.kernels.lateness import Limits, Rule, may_split, split, times_of

_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows are late and ahead, and the newest time of those that are not ahead."""

    late: int = 0
    ahead: int = 0
    newest_us: int | None = None


def bounds(
    storage: Storage, outputs: Sequence[StagedOutput], column: str
) -> tuple[int, int] | None:
    """The oldest and newest time in staged files, by their statistics; None if they do not tell."""
    found: list[int] = []
    for output in outputs:
        for span in _spans(_footer(storage, output), column):
            if span is None:
                return None
            found += span
    return (min(found), max(found)) if found else None


def tally(
    storage: Storage, outputs: Sequence[StagedOutput], rule: Rule, limits: Limits, width: int
) -> Tally:
    """What the rows of staged files are by a rule; those without a time are nothing.

    ``width`` files are looked at at once. Raises `StorageError`, and `LookupError` for a file
    without the column.
    """
    with ThreadPoolExecutor(width) as pool:
        found = list(pool.map(partial(_of_file, storage, rule, limits), outputs))
    newest = [each.newest_us for each in found if each.newest_us is not None]
    return Tally(
        sum(each.late for each in found),
        sum(each.ahead for each in found),
        max(newest, default=None),
    )


def _footer(storage: Storage, output: StagedOutput) -> pq.FileMetaData:
    """What a staged file says of itself, for one request or two."""
    tail = storage.read_range(output.staged, max(0, output.size - _TAIL_BYTES), output.size)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = storage.read_range(output.staged, output.size - length, output.size)
    # A file that consists of its footer is one whose footer can be read.
    return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))


def _spans(metadata: pq.FileMetaData, column: str) -> Iterator[tuple[int, int] | None]:
    """The oldest and newest time of each row group, None where it does not tell."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(place) for place in range(group.num_columns))
        found = [chunk for chunk in chunks if chunk.path_in_schema == column]
        if not found:
            raise LookupError(column)
        statistics = found[0].statistics
        # A field inside of a struct has the path that a column with a dot in its name has.
        told = len(found) == 1 and statistics is not None and statistics.has_min_max
        yield (statistics.min_raw, statistics.max_raw) if told else None


def _of_file(storage: Storage, rule: Rule, limits: Limits, output: StagedOutput) -> Tally:
    metadata = _footer(storage, output)
    late = ahead = 0
    newest: list[int] = []
    file: pq.ParquetFile | None = None
    for number, span in enumerate(_spans(metadata, rule.column)):
        if span is not None and not may_split(rule, limits, *span):
            newest.append(span[1])
            continue
        if file is None:
            place = RangeFile(storage, output.staged, output.size)
            file = pq.ParquetFile(pa.PythonFile(place, mode="r"), metadata=metadata)
        column = file.read_row_group(number, columns=[rule.column]).column(rule.column)
        times = times_of(column.drop_null())
        found = split(rule, limits, times)
        late += int(np.count_nonzero(found.late))
        ahead += int(np.count_nonzero(found.ahead))
        if (in_time := times[times <= limits.ahead_us]).size:
            newest.append(int(in_time.max()))
    return Tally(late, ahead, max(newest, default=None))

"""Bounds of files and of row groups: no key is ever left out."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penguin_py.keyed.pruning import KeyRanges, groups_that_may_meet
from tests.chaos.keyed.memory import bounds_of
from tests.chaos.keyed.model import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_or_group_with_a_key_is_left_out(kind: str) -> None:
    chance = random.Random(kind)
    arrow, make = KINDS[kind]
    for _ in range(40):
        numbers = [chance.randrange(30) for _ in range(6)]
        file = pa.table({"k": pa.array([*map(make, numbers), None], arrow)})
        wanted = chance.choice(numbers)
        ranges = KeyRanges(pa.table({"k": pa.array([make(wanted)], arrow)}), ("k",))
        assert ranges.may_meet(bounds_of(file, ("k",)))
        sink = io.BytesIO()
        pq.write_table(file, sink, row_group_size=2)
        with pq.ParquetFile(sink) as written:
            metadata, schema = written.metadata, written.schema_arrow
        found = groups_that_may_meet(metadata, schema, ranges, ("k",))
        assert {at // 2 for at, number in enumerate(numbers) if number == wanted} <= set(found)


@pytest.mark.parametrize("kind", ["int64", "text", "day", "moment"])
def test_groups_without_keys_are_left_out(kind: str) -> None:
    arrow, make = KINDS[kind]
    file = pa.table({"k": pa.array([make(n) for n in range(6)], arrow)})
    sink = io.BytesIO()
    pq.write_table(file, sink, row_group_size=2)
    ranges = KeyRanges(pa.table({"k": pa.array([make(2)], arrow)}), ("k",))
    with pq.ParquetFile(sink) as written:
        metadata, schema = written.metadata, written.schema_arrow
    assert groups_that_may_meet(metadata, schema, ranges, ("k",)) == [1]


def test_a_file_must_meet_every_column_of_the_key() -> None:
    ranges = KeyRanges(pa.table({"a": [1, 9], "b": ["x", "y"]}), ("a", "b"))
    assert ranges.may_meet({"a": (2, 9), "b": (b"y", b"z")})
    assert not ranges.may_meet({"a": (2, 8), "b": (b"y", b"z")})
    assert not ranges.may_meet({"a": (2, 9), "b": (b"z", b"z")})
    assert ranges.may_meet({"b": (b"x", None)})


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_other_units_are_compared_in_microseconds(unit: str) -> None:
    file = pa.table({"k": pa.array([1_700_000_000], pa.timestamp("s")).cast(pa.timestamp(unit))})
    sink = io.BytesIO()
    pq.write_table(file, sink, coerce_timestamps=None)
    with pq.ParquetFile(sink) as written:
        metadata, schema = written.metadata, written.schema_arrow
    for moment, groups in ((1_700_000_000, [0]), (1_700_000_001, [])):
        wanted = pa.array([moment], pa.timestamp("s")).cast(pa.timestamp("us"))
        ranges = KeyRanges(pa.table({"k": wanted}), ("k",))
        assert groups_that_may_meet(metadata, schema, ranges, ("k",)) == groups

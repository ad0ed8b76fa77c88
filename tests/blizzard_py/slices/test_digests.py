"""Digests of rows: one for each content, the same for ever."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import SourceError, WatermarkError
from blizzard_py.slices.digests import at_bound, digests


def _one(**columns: Any) -> bytes:
    batch = pa.record_batch({name: pa.array([value]) for name, value in columns.items()})
    return bytes(digests(batch)[0].as_py())


def _of(value: Any, kind: pa.DataType) -> bytes:
    return bytes(digests(pa.record_batch({"a": pa.array([value], kind)}))[0].as_py())


GOLDEN = pa.record_batch(
    {
        "id": pa.array([1, None], pa.int64()),
        "name": pa.array(["Zoë", None]),
        "at": pa.array([datetime(2026, 5, 4, 11, 59, 58, 120000, tzinfo=UTC), None]),
        "x": pa.array([1.5, None]),
        "n": pa.array([Decimal("1.10"), None]),
        "d": pa.array([date(2026, 5, 4), None]),
        "b": pa.array([True, None]),
        "l": pa.array([[1, 2], None]),
    }
)


def test_digests_are_the_same_for_ever() -> None:
    """Checkpoints hold them: other values here are a change of format."""
    assert [mark.hex() for mark in digests(GOLDEN).to_pylist()] == [GOLDEN_FIRST, GOLDEN_NULLS]


def test_the_bytes_are_those_of_the_format() -> None:
    batch = pa.record_batch({"name": ["Zoë"], "id": pa.array([7], pa.int32())})
    row = b"\1" + (7).to_bytes(8, "little") + b"\1" + (4).to_bytes(8, "little") + "Zoë".encode()
    assert digests(batch)[0].as_py() == blake2b(row, digest_size=16).digest()


def test_another_process_makes_the_same_digests() -> None:
    code = (
        "from tests.blizzard_py.slices.test_digests import GOLDEN\n"
        "from blizzard_py.slices.digests import digests\n"
        "print([mark.hex() for mark in digests(GOLDEN).to_pylist()])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str([GOLDEN_FIRST, GOLDEN_NULLS])


def test_digests_separate_null_empty_zero_and_column_boundaries() -> None:
    assert _of(None, pa.string()) != _of("", pa.string())
    assert _of(None, pa.int64()) != _of(0, pa.int64())
    assert _one(a="a", b="bc") != _one(a="ab", b="c")
    assert _one(a="", b="x") != _one(a="x", b="")
    assert _one(a=None, b="x") != _one(a="x", b=None)
    assert _one(a=1, b=2) != _one(a=2, b=1)


def test_a_value_has_one_digest_whatever_the_width_of_its_type() -> None:
    moment = datetime(2026, 5, 4, 11, tzinfo=UTC)
    same: list[tuple[Any, list[pa.DataType]]] = [
        (7, [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]),
        (0.5, [pa.float32(), pa.float64()]),
        (
            "x",
            [
                pa.string(),
                pa.large_string(),
                pa.string_view(),
                pa.dictionary(pa.int8(), pa.string()),
            ],
        ),
        (moment, [pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")]),
        (Decimal("1.50"), [pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal256(60, 2)]),
        (date(2026, 5, 4), [pa.date32(), pa.date64()]),
        (time(11, 30), [pa.time32("s"), pa.time64("us"), pa.time64("ns")]),
    ]
    for value, kinds in same:
        assert len({_of(value, kind) for kind in kinds}) == 1, value
    assert _of(0.0, pa.float64()) == _of(-0.0, pa.float64())
    assert _of(Decimal("1.5"), pa.decimal128(5, 1)) != _of(Decimal("15.0"), pa.decimal128(5, 1))
    nanos = pa.timestamp("ns")
    assert _of(1, nanos) != _of(2, nanos) != _of(1001, nanos)


_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(max_size=3),
        st.none() | st.datetimes(),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.lists(st.integers(0, 2), max_size=2),
    ),
    min_size=1,
    max_size=20,
)
_KINDS = [pa.int64(), pa.string(), pa.timestamp("us"), pa.float64(), pa.list_(pa.int64())]


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(values, kind) for values, kind in zip(columns, _KINDS, strict=True)],
        names=["a", "b", "c", "d", "e"],
    )


@given(_ROWS, st.integers(0, 19))
def test_digests_match_exactly_for_equal_rows_in_any_batching(
    rows: list[tuple[Any, ...]], start: int
) -> None:
    batch = _batch(rows)
    marks = digests(batch).to_pylist()
    keys = [
        repr(tuple(0.0 if value == 0.0 and i == 3 else value for i, value in enumerate(row)))
        for row in rows
    ]
    for i, left in enumerate(keys):
        for j, right in enumerate(keys):
            assert (marks[i] == marks[j]) == (left == right)
    assert digests(batch.slice(start)).to_pylist() == marks[start:]
    reordered = batch.select(["e", "c", "a", "b", "d"])
    assert digests(reordered).to_pylist() == marks


def test_digests_use_only_the_requested_columns() -> None:
    batch = pa.record_batch({"id": [1, 1], "x": ["a", "b"]})
    first, second = digests(batch, ["id"]).to_pylist()
    assert first == second
    assert len(first) == 16
    with pytest.raises(SourceError, match="key"):
        digests(batch, ["key"])
    assert len(digests(batch.slice(0, 0))) == 0


@pytest.mark.parametrize(
    "column",
    [
        pa.array([timedelta(days=1), None]),
        pa.array([{"a": 1}, None]),
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([b"12", None], pa.binary(2)),
        pa.array([None, None], pa.null()),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
        pa.array([2**64 - 1, None], pa.uint64()),
        pa.array([float("nan"), None]),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_has_digests(column: pa.Array) -> None:
    batch = pa.record_batch([column], names=["a"])
    first, second = digests(batch).to_pylist()
    assert (first == second) == (column.null_count == 2)
    assert digests(batch).to_pylist() == [first, second]


TEXTS = pa.array([b"\xff\xfe", b"\xff\xfd"])


@pytest.mark.parametrize(
    "inner",
    [
        pa.array([10**8, 10**8 + 1], pa.int32()).cast(pa.date32()),
        pa.array([1, 2], pa.int64()).cast(pa.timestamp("us", "Nowhere/Land")),
        pa.array([2**62, 2**62 + 1], pa.int64()).cast(pa.duration("s")),
        pa.Array.from_buffers(pa.string(), 2, TEXTS.buffers()),
    ],
    ids=lambda column: str(column.type),
)
def test_nested_values_unknown_to_python_have_digests(inner: pa.Array) -> None:
    for column in (
        pa.StructArray.from_arrays([inner], ["x"]),
        pa.ListArray.from_arrays([0, 1, 2], inner),
        pa.ListArray.from_arrays([0, 1, 2], inner.dictionary_encode()),
        pa.MapArray.from_arrays([0, 1, 2], pa.array([1, 1]), inner),
    ):
        first, second = digests(pa.record_batch([column], names=["a"])).to_pylist()
        assert first != second
        assert digests(pa.record_batch([column[1:]], names=["a"])).to_pylist() == [second]


AT = datetime(2026, 5, 4, tzinfo=UTC)


def _events(*rows: tuple[int, datetime | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "at": pa.array([row[1] for row in rows], pa.timestamp("us", "UTC")),
        }
    )


def test_a_bound_that_cannot_be_compared_is_an_error() -> None:
    batch = _events((1, AT))
    assert at_bound(batch, {"id": 1}).to_pylist() == [True]
    assert at_bound(batch, {"id": None, "at": None}).to_pylist() == [False]
    for wrong in ({"id": "x"}, {"at": "x"}):
        with pytest.raises(WatermarkError):
            at_bound(batch, wrong)


def test_unsigned_bound_is_compared_only_with_unsigned_column() -> None:
    most = 2**64 - 1
    batch = pa.RecordBatch.from_pydict({"id": pa.array([most, 1], pa.uint64())})
    assert at_bound(batch, {"id": most}).to_pylist() == [True, False]
    signed = pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int64())})
    with pytest.raises(WatermarkError):
        at_bound(signed, {"id": most})


GOLDEN_FIRST = "0ac9bed72135ff88f5833d547bfc44e6"
GOLDEN_NULLS = "16fe318243f4adbacc2da6044f3f159a"

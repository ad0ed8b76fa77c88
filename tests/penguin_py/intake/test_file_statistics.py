"""Statistics: certain, typed by the table, and what a Delta reader understands."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from penguin_py.intake.file_statistics import (
    HIGHEST_TEXT,
    INDEXED_COLUMNS,
    TEXT_CHARACTERS,
    file_statistics,
    indexed_columns,
)
from tests.support.table_harness import parquet


def stats(data: pa.Table, table: pa.Schema | None = None, **options: Any) -> dict[str, Any]:
    metadata = pq.read_metadata(io.BytesIO(parquet(data, **options)))
    file = metadata.schema.to_arrow_schema()
    return json.loads(file_statistics(metadata, file, table or data.schema))


def column(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


def test_bounds_and_null_counts_by_type() -> None:
    moment = dt.datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)
    found = stats(
        pa.table(
            {
                "n": pa.array([3, None, -1], pa.int64()),
                "s": ["b", "a", None],
                "d": pa.array([dt.date(2024, 2, 1), dt.date(1969, 12, 31), None]),
                "t": pa.array([moment, moment, moment], pa.timestamp("us", tz="UTC")),
                "z": pa.array([moment.replace(tzinfo=None)] * 3, pa.timestamp("us")),
                "f": [1.5, 0.0, None],
                "b": [True, False, None],
                "l": [[1], [2], None],
            }
        ).replace_schema_metadata({NAN_COLUMNS_KEY: ""})
    )
    assert found == {
        "numRecords": 3,
        "minValues": {
            "n": -1,
            "s": "a",
            "d": "1969-12-31",
            "t": "2024-01-01T00:00:00.123Z",
            "z": "2024-01-01T00:00:00.123",
            "f": 0.0,
            "b": False,
        },
        "maxValues": {
            "n": 3,
            "s": "b",
            "d": "2024-02-01",
            "t": "2024-01-01T00:00:00.124Z",
            "z": "2024-01-01T00:00:00.124",
            "f": 1.5,
            "b": True,
        },
        "nullCount": {"n": 1, "s": 1, "d": 1, "t": 0, "z": 0, "f": 1, "b": 1},
    }


def test_types_are_the_tables_and_not_the_files() -> None:
    narrow = column([1, 2], pa.int32())
    assert stats(narrow, pa.schema([("c", pa.int64())]))["maxValues"] == {"c": 2}
    wide = stats(column([1, 1 << 40], pa.int64()), pa.schema([("c", pa.int32())]))
    assert wide == {"numRecords": 2, "nullCount": {"c": 0}}
    other = pa.schema([("c", pa.string())])
    assert stats(narrow, other) == {"numRecords": 2, "nullCount": {}}
    zoned = column([dt.datetime(2024, 1, 1)], pa.timestamp("us"))  # noqa: DTZ001 - no zone is the point
    assert not stats(zoned, pa.schema([("c", pa.timestamp("us", tz="UTC"))]))["nullCount"]


def test_a_column_without_statistics_in_one_row_group_has_none() -> None:
    data = column([1, 2, 3, 4], pa.int64())
    assert stats(data, row_group_size=2)["maxValues"] == {"c": 4}
    assert not stats(data, row_group_size=2, write_statistics=False)["nullCount"]


def test_all_null_groups_have_no_bounds_and_need_none() -> None:
    assert stats(column([None, None, 7, 8], pa.int64()), row_group_size=2) == {
        "numRecords": 4,
        "minValues": {"c": 7},
        "maxValues": {"c": 8},
        "nullCount": {"c": 2},
    }
    found = stats(column([None, None], pa.int64()))
    assert (found["minValues"], found["nullCount"]) == ({}, {"c": 2})


@pytest.mark.promise("G-175")
def test_a_file_has_bounds_of_every_column_or_of_none() -> None:
    """deltalake's dataset takes one that is left out for null and drops the file."""
    data = pa.table({"whole": [1, 2], "late": pa.array([10**9, 0], pa.int32()).cast(pa.date32())})
    assert stats(data) == {"numRecords": 2, "nullCount": {"whole": 0, "late": 0}}
    behind = pa.table({**{f"c{n}": [1] for n in range(INDEXED_COLUMNS)}, "f": [0.5]})
    assert len(stats(behind)["minValues"]) == INDEXED_COLUMNS


def test_a_column_that_the_file_lacks_counts_as_null() -> None:
    inner = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int64()))])
    table = pa.schema([("c", pa.int64()), ("f", pa.float64()), ("s", inner)])
    assert stats(column([1, 2], pa.int64()), table) == {
        "numRecords": 2,
        "minValues": {"c": 1, "s": {}},
        "maxValues": {"c": 2, "s": {}},
        "nullCount": {"c": 0, "f": 2, "s": {"x": 2}},
    }


def test_text_of_any_length_has_bounds() -> None:
    found = stats(column(["a" * 5000, "b"], pa.string()))
    assert (found["minValues"], found["maxValues"]) == ({"c": ""}, {"c": HIGHEST_TEXT})
    assert found["nullCount"] == {"c": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id, `a,b`", {("id",), ("a,b",)}),
        ("s", {("s", "x"), ("s", "y")}),
        ("S.X,`i``d`", {("s", "x"), ("i`d",)}),
        ("", set()),
        (",.,", set()),
    ],
)
def test_columns_that_a_property_lists_are_indexed(text: str, expected: set[Any]) -> None:
    names = [("id",), ("a,b",), ("s", "x"), ("s", "y"), ("i`d",)]
    assert indexed_columns(names, {"delta.dataSkippingStatsColumns": text}) == expected


@pytest.mark.parametrize(("text", "count"), [("-1", 40), ("5", 5), ("0", 0), ("many", 32)])
def test_as_many_columns_as_a_property_says_are_indexed(text: str, count: int) -> None:
    names = [(f"c{number}",) for number in range(40)]
    found = indexed_columns(names, {"delta.dataSkippingNumIndexedCols": text})
    assert found == set(names[:count])


def test_a_dotted_name_is_not_a_nested_field() -> None:
    data = pa.table({"a": [{"b": 1}], "a.b": [100], "l": [[1, 2]], "c": [5]})
    assert stats(data)["maxValues"] == {"a": {"b": 1}, "a.b": 100, "c": 5}


def test_struct_fields_have_their_own_bounds_and_null_counts() -> None:
    kind = pa.struct(
        [("x", pa.int64()), ("in", pa.struct([("y", pa.string())])), ("l", pa.list_(pa.int64()))]
    )
    data = column(
        [{"x": 3, "in": {"y": "a"}, "l": [1]}, None, {"x": None, "in": None, "l": None}], kind
    )
    found = stats(data)
    assert found["minValues"] == {"c": {"x": 3, "in": {"y": "a"}}}
    assert found["maxValues"] == {"c": {"x": 3, "in": {"y": "a"}}}
    # Null where the struct around it is, as readers count.
    assert found["nullCount"] == {"c": {"x": 2, "in": {"y": 2}}}


def test_only_the_first_leaves_are_indexed() -> None:
    data = pa.table({"s": [{f"f{n}": n for n in range(40)}], "after": [1]})
    found = stats(data)
    assert len(found["minValues"]["s"]) == INDEXED_COLUMNS
    assert "after" not in found["minValues"]


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal128(18, 4), pa.decimal128(38, 10)])
@pytest.mark.parametrize("as_integer", [True, False])
def test_decimal_bounds_whatever_they_are_stored_as(kind: pa.DataType, as_integer: bool) -> None:
    values = [Decimal("-1.5"), Decimal("20.25"), None, Decimal("-300.75")]
    options: dict[str, Any] = {"store_decimal_as_integer": as_integer, "row_group_size": 2}
    metadata = pq.read_metadata(io.BytesIO(parquet(column(values, kind), **options)))
    raw = file_statistics(metadata, metadata.schema.to_arrow_schema(), pa.schema([("c", kind)]))
    found = json.loads(raw, parse_float=Decimal)
    assert found["minValues"] == {"c": Decimal("-300.75")}
    assert found["maxValues"] == {"c": Decimal("20.25")}
    assert found["nullCount"] == {"c": 1}


@pytest.mark.promise("G-175")
@given(st.lists(st.decimals(-(10**19), 10**19, places=4), min_size=1, max_size=10))
def test_decimal_bounds_hold_for_every_value(values: list[Decimal]) -> None:
    kind = pa.decimal128(25, 4)
    metadata = pq.read_metadata(io.BytesIO(parquet(column(list(values), kind))))
    raw = file_statistics(metadata, metadata.schema.to_arrow_schema(), pa.schema([("c", kind)]))
    # Readers that go through floating point see what a float prints.
    for number in (Decimal, lambda text: Decimal(str(float(text)))):
        found = json.loads(raw, parse_float=number, parse_int=number)
        assert found["minValues"]["c"] <= min(values)
        assert found["maxValues"]["c"] >= max(values)


def test_a_decimal_bound_stays_within_its_type() -> None:
    top = Decimal(10) ** 20 - 1
    found = stats(column([top, Decimal(1)], pa.decimal128(20, 0)))
    assert found["minValues"] == {"c": 1}
    assert found["maxValues"] == {"c": int(top)}


def test_int96_timestamps_have_none() -> None:
    data = column([dt.datetime(2024, 1, 1)], pa.timestamp("ns"))  # noqa: DTZ001 - int96 has no zone
    found = stats(
        data, pa.schema([("c", pa.timestamp("us"))]), use_deprecated_int96_timestamps=True
    )
    assert "maxValues" not in found


def test_moments_at_the_end_of_time_are_not_rounded() -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    found = stats(column([last, last.replace(year=1)], pa.timestamp("us", tz="UTC")))
    assert found["minValues"] == {"c": "0001-12-31T23:59:59.999Z"}
    assert found["maxValues"] == {"c": "9999-12-31T23:59:59.999999Z"}


def test_upper_bound_is_untruncated_when_it_cannot_be_raised() -> None:
    top = "\U0010ffff" * 40
    found = stats(column([top], pa.string()))
    assert found["minValues"] == {"c": top[:TEXT_CHARACTERS]}
    assert found["maxValues"] == {"c": top}


@pytest.mark.promise("G-175")
@given(st.lists(st.one_of(st.none(), st.text(max_size=80)), min_size=1, max_size=20))
def test_text_bounds_hold_for_every_value(values: list[str | None]) -> None:
    found = stats(column(values, pa.string()), row_group_size=3)
    for value in values:
        if value is not None:
            key = value.encode()
            assert found["minValues"]["c"].encode() <= key <= found["maxValues"]["c"].encode()
    assert found["nullCount"]["c"] == values.count(None)


@pytest.mark.promise("G-175")
@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_timestamp_bounds_hold_for_every_value(values: list[int], unit: str) -> None:
    scale = {"s": 10**7, "ms": 10**4, "us": 10, "ns": 1}[unit]
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    raw = [value // scale for value in values]
    data = column(raw, pa.timestamp(unit, tz="UTC"))
    found = stats(data, pa.schema([("c", pa.timestamp("us", tz="UTC"))]))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    for name, sign in (("minValues", 1), ("maxValues", -1)):
        if "c" in found.get(name, {}):
            bound = (dt.datetime.fromisoformat(found[name]["c"]) - epoch) // dt.timedelta(
                milliseconds=1
            )
            assert all(sign * bound * ticks <= sign * value * 1000 for value in raw)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_statistics_are_exact_at_limits_of_each_width(bits: int) -> None:
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    found = stats(column([low, high], kind))
    assert (found["minValues"]["c"], found["maxValues"]["c"]) == (low, high)

"""Rows as drivers give them: each value is what is declared, to the last digit, or a bad record."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import SourceError
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.scalars import cast_scalar
from blizzard_py.job import FieldSpec

UTC = dt.UTC
EARLY, LATE = -(2**63) + 1, 2**63 - 1  # what drivers make of infinities


def spec(kind: Any, **more: Any) -> FieldSpec:
    return FieldSpec("v", kind, nullable=more.pop("nullable", True), **more)


def moments(*seconds: int) -> pa.Array:
    """Times without a zone."""
    return pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp("us"))


INT = FieldSpec("element", "int64", nullable=True)
REQUIRED_INT = FieldSpec("element", "int64", nullable=False)
INTS = FieldSpec("element", "list", nullable=True, children=(INT,))
STRUCT = (FieldSpec("a", "int64", nullable=True),)
DEC = spec("decimal", precision=10, scale=2)


def conformed(field: FieldSpec, array: pa.Array) -> tuple[list[Any], dict[int, str]]:
    batch = pa.RecordBatch.from_arrays([array], ["v"])
    found = Conformer([field]).conform(batch)
    assert found.table.schema == Conformer([field]).table
    assert len(found.rows_at) == found.table.num_rows
    assert not set(found.rows_at.tolist()) & set(found.bad)
    return found.table.column("v").to_pylist(), dict(found.bad)


GOOD = [
    (DEC, pa.array(["1.23", "1E3", "1.200"]), [Decimal("1.23"), Decimal(1000), Decimal("1.2")]),
    (DEC, pa.array([3, 2**26], pa.int64()), [Decimal(3), Decimal(2**26)]),
    (DEC, pa.array([0.1, 1e7]), [Decimal("0.10"), Decimal(10000000)]),
    (DEC, pa.array([Decimal("1.5")], pa.decimal128(38, 10)), [Decimal("1.50")]),
    (spec("int64"), pa.array([1.0]), [1]),
    (spec("int64"), pa.array(["12"]), [12]),
    (spec("int32"), pa.array([Decimal("7.00")]), [7]),
    (spec("float64"), pa.array(["Infinity", "1.5"]), [float("inf"), 1.5]),
    (spec("boolean"), pa.array([0, 1], pa.int8()), [False, True]),
    (spec("string"), pa.array([1, 2]), ["1", "2"]),
    (spec("string"), pa.array(["a"]).dictionary_encode(), ["a"]),
    (spec("string"), pa.array(["a"], pa.large_string()), ["a"]),
    (spec("string"), pa.array([[1, 2]]), ["[1,2]"]),
    (spec("timestamp"), pa.array([0], pa.timestamp("s")), [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    (
        spec("timestamp"),
        pa.array(["2024-01-01 02:00:00+02", "2024-01-01 00:00:00", "2024-01-01"]),
        [dt.datetime(2024, 1, 1, tzinfo=UTC)] * 3,
    ),
    (spec("timestamp"), pa.array([dt.date(2024, 1, 1)]), [dt.datetime(2024, 1, 1, tzinfo=UTC)]),
    (
        spec("timestamp", unit="ms"),
        pa.array([1500]),
        [dt.datetime.fromtimestamp(1.5, UTC)],
    ),
    (spec("date"), moments(1_704_067_200), [dt.date(2024, 1, 1)]),
    (spec("date"), pa.array(["2024-01-01"]), [dt.date(2024, 1, 1)]),
    (spec("binary"), pa.array(["a"]), [b"a"]),
    (spec("json"), pa.array(['{"a":\n 1.10}']), ['{"a":1.10}']),
    (spec("json"), pa.array([{"a": 1}]), ['{"a":1}']),
    (
        spec(
            "list",
            children=(INTS,),
        ),
        pa.array(["[[1, 2], [3]]"]),
        [[[1, 2], [3]]],
    ),
    (
        spec("list", children=(INT,)),
        pa.array([[1], None, []]),
        [[1], None, []],
    ),
    (
        spec("struct", children=(FieldSpec("a", "decimal", nullable=True, precision=5, scale=1),)),
        pa.array([{"a": "1.5", "b": 1}, None]),
        [{"a": Decimal("1.5")}, None],
    ),
    (
        spec("map", children=(FieldSpec("value", "int64", nullable=True),)),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        [[("a", 1)], None],
    ),
    (DEC, pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(("field", "array", "expected"), GOOD, ids=str)
def test_conform_preserves_fitting_values(
    field: FieldSpec, array: pa.Array, expected: list[Any]
) -> None:
    assert conformed(field, array) == (expected, {})


BAD = [
    (DEC, pa.array(["1.234", "NaN", "Infinity", "", "12345678901"])),
    (DEC, pa.array([2**40])),
    (DEC, pa.array([0.125, float("nan")])),
    (DEC, pa.array([Decimal("1.256")], pa.decimal128(20, 3))),
    (spec("int64"), pa.array([1.5])),
    (spec("int64"), pa.array([2**63], pa.uint64())),
    (spec("int32"), pa.array([2**31])),
    (spec("int64"), pa.array(["1x", " 1"])),
    (spec("float64"), pa.array(["1e400"])),
    (spec("float32"), pa.array([1e300])),
    (spec("float64"), pa.array([2**53 + 1])),
    (spec("int64"), pa.array(["0x1F", "0X1f", "-0x1"])),
    (spec("int32"), pa.array(["0x1F"])),
    (spec("boolean"), pa.array([2])),
    (spec("boolean"), pa.array(["yes"])),
    (spec("timestamp"), pa.array([EARLY, LATE], pa.timestamp("us"))),
    (spec("timestamp"), pa.array([LATE], pa.timestamp("s"))),
    (spec("timestamp"), pa.array([1001], pa.timestamp("ns"))),
    (spec("timestamp"), pa.array(["infinity", "0044-03-15 BC"])),
    (spec("string"), pa.array([EARLY], pa.timestamp("us"))),
    (spec("string"), pa.array([b"\xff"])),
    (spec("date"), moments(1_704_085_200)),
    (spec("date"), moments(-68_400)),
    (spec("date"), pa.array([2**31 - 1, -(2**31) + 1], pa.int32()).cast(pa.date32())),
    (spec("json"), pa.array(["{", "1 2", "NaN"])),
    (spec("json"), pa.array([[float("nan")]])),
    (
        spec("list", children=(REQUIRED_INT,)),
        pa.array([[None]], pa.list_(pa.int64())),
    ),
    (spec("int64", nullable=False), pa.array([None], pa.int64())),
]


@pytest.mark.parametrize(("field", "array"), BAD, ids=str)
def test_unfitting_values_become_bad_rows(field: FieldSpec, array: pa.Array) -> None:
    values, bad = conformed(field, array)
    assert values == []
    assert sorted(bad) == list(range(len(array)))
    assert all(reason.startswith("column 'v': ") and len(reason) <= 200 for reason in bad.values())


def test_a_bad_row_costs_its_neighbours_nothing() -> None:
    texts = [str(n) if n % 97 else "odd" for n in range(1, 1000)]
    values, bad = conformed(DEC, pa.array(texts))
    assert len(bad) == 10
    assert values == [Decimal(n) for n in range(1, 1000) if n % 97]


@pytest.mark.parametrize(
    ("field", "array"),
    [
        (DEC, pa.array([b"a"])),
        (spec("timestamp"), pa.array([1])),
        (spec("int64"), moments(1_704_067_200)),
        (spec("struct", children=STRUCT), pa.array([1])),
        (spec("struct", children=STRUCT), pa.array([{"b": 1}])),
    ],
    ids=str,
)
def test_a_type_that_never_fits_is_no_matter_of_rows(field: FieldSpec, array: pa.Array) -> None:
    with pytest.raises(SourceError, match=r"schema\.fields"):
        conformed(field, array)


def test_a_bad_row_is_searched_for_in_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of many columns it took a second for a few hundred rows."""
    calls = 0

    def counted(*arguments: Any) -> pa.Array:
        nonlocal calls
        calls += 1
        return cast_scalar(*arguments)

    monkeypatch.setattr("blizzard_py.formats.conform.cast_scalar", counted)
    columns, rows = 40, 128
    texts = pa.array(["1.5" if row % 8 == 7 else "1.234" for row in range(rows)])
    last = pa.array(["x" if row == 7 else "1.234" if row == 0 else "1.5" for row in range(rows)])
    names = [f"c{number}" for number in range(columns)]
    batch = pa.RecordBatch.from_arrays([texts] * (columns - 1) + [last], names)
    fields = [FieldSpec(name, "decimal", nullable=True, precision=9, scale=2) for name in names]
    found = Conformer(fields).conform(batch)
    assert found.rows_at.tolist() == list(range(15, rows, 8))
    assert {reason[:13] for row, reason in found.bad.items() if row != 7} == {"column 'c0': "}
    assert found.bad[7].startswith("column 'c39'")
    assert found.table.column("c39").to_pylist() == [Decimal("1.50")] * 15
    assert columns < calls < 3 * rows + 3 * columns


def test_missing_column_error_names_the_existing_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [2]})
    with pytest.raises(SourceError, match=r"column 'v' no longer exists \(existing: a, b\)"):
        Conformer([DEC]).conform(batch)


def test_a_row_as_text_is_what_a_line_would_be() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([Decimal("1.50")]),
            pa.array([EARLY], pa.timestamp("us")),
            pa.array([0], pa.timestamp("us")),
            pa.array([float("nan")]),
            pa.array([b"\xff"]),
            pa.array(["é\n"]),
            pa.array([None], pa.int64()),
        ],
        ["d", "far", "t", "f", "b", "s", "n"],
    )
    text = Conformer([]).text_of(batch, 0)
    assert b"\n" not in text
    assert '"d": 1.50, "far": "<value out of range' in text.decode()
    assert '"t": "1970-01-01T00:00:00.000000Z", "f": NaN, "b": "/w=="' in text.decode()
    assert text.decode().endswith('"s": "é\\n", "n": null}')


def unchecked(*texts: bytes) -> pa.Array:
    """Text as a Parquet file has it: nobody has looked whether it is UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts).buffers())


FAR = pa.array([10**8], pa.int32()).cast(pa.date32())
LONG = pa.array([2**62], pa.int64()).cast(pa.duration("s"))
ELSEWHERE = pa.array([1], pa.int64()).cast(pa.timestamp("us", "Nowhere/Land"))
# What Arrow holds and Python, JSON or both do not.
UNKNOWN = [
    FAR,
    LONG,
    ELSEWHERE,
    unchecked(b"\xff\xfe"),
    pa.array([2**62], pa.int64()).cast(pa.timestamp("s", "UTC")),
    pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    pa.array([[(dt.date(2024, 1, 1), 1)]], pa.map_(pa.date32(), pa.int64())),
    pa.array([[float("nan")]]),
]
UNKNOWN += [pa.StructArray.from_arrays([each], ["x"]) for each in UNKNOWN]


@pytest.mark.parametrize("array", UNKNOWN, ids=lambda array: str(array.type))
def test_unconvertible_value_makes_only_its_row_bad(array: pa.Array) -> None:
    rows = pa.concat_arrays([array, pa.nulls(1, array.type)])
    for kind in ("json", "int32"):
        try:
            found, bad = conformed(spec(kind), rows)
        except SourceError:  # no row ever fits
            continue
        assert found == [None]
        assert set(bad) == {0}
    text = Conformer([]).text_of(pa.RecordBatch.from_arrays([array], ["v"]), 0)
    assert len(json.loads(text)["v"]) > 0


def test_text_that_is_no_utf8_is_a_bad_record() -> None:
    """No reader of the table could read the file that it stands in."""
    rows = unchecked(b"a", b"\xff\xfe", "é".encode())
    found, bad = conformed(spec("string"), rows)
    assert (found, list(bad)) == (["a", "é"], [1])
    text = Conformer([]).text_of(pa.RecordBatch.from_arrays([rows], ["v"]), 1)
    assert text == b'{"v": "\\udcff\\udcfe"}'
    keys = pa.MapArray.from_arrays([0, 1, 2, 3], rows, pa.array([1, 2, 3]))
    found, bad = conformed(spec("map", children=(INT,)), keys)
    assert (found, list(bad)) == ([[("a", 1)], [("é", 3)]], [1])


def test_values_of_other_writers_keep_what_they_are() -> None:
    one = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert conformed(spec("string"), pa.array([one.bytes, None], pa.uuid())) == (
        [str(one), None],
        {},
    )
    assert conformed(spec("binary"), pa.array([one.bytes], pa.uuid())) == ([one.bytes], {})
    nanoseconds = pa.array([[1]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns", "UTC")))
    assert conformed(spec("json"), nanoseconds) == (['["1970-01-01T00:00:00.000000001Z"]'], {})


ENTRY = FieldSpec("value", "int64", nullable=True)
PRAGUE = pa.timestamp("ms", "Europe/Prague")
REPLAYED = [
    (spec("json"), pa.array(['{"a": 1.10, "a": 2}', '"x"', "[null]"])),
    (spec("json"), pa.array([{"a": 1}])),
    (spec("list", children=(INT,)), pa.array(["[1, 2]", "[]"])),
    (spec("list", children=(INT,)), pa.array([[1, None], []])),
    (spec("struct", children=STRUCT), pa.array(['{"a": 7}'])),
    (spec("map", children=(ENTRY,)), pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))),
    (spec("map", children=(ENTRY,)), pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))),
    (spec("string"), pa.array([1, None, 2**63 - 1])),
    (spec("string"), pa.array([0.1, float("nan"), 1e22])),
    (spec("string"), pa.array([True, False])),
    (spec("string"), pa.array([Decimal("1.10")])),
    (spec("string"), pa.array([[1, 2]])),
    (spec("string"), pa.array([b"0123456789abcdef"], pa.uuid())),
    (spec("string"), pa.array(['\u2028\x00"\\', ""])),
    (spec("float64"), pa.array([float("nan"), float("-inf"), -0.0, 5e-324])),
    (spec("float64"), pa.array(["1.50", "nan", "-Infinity", "1e3"])),
    (spec("float64"), pa.array([Decimal("1.50")])),
    (spec("int64"), pa.array(["5", "-0", "007"])),
    (spec("int64"), pa.array([1.0, -2.0])),
    (spec("int32"), pa.array([Decimal("7.00")])),
    (spec("boolean"), pa.array(["true", "0"])),
    (spec("boolean"), pa.array([0, 1])),
    (spec("date"), moments(1_704_067_200)),
    (spec("date"), pa.array(["2024-01-01"])),
    (spec("binary"), pa.array(["abcd", "é"])),
    (spec("string"), pa.array(["007", "true"])),
    (spec("float32"), pa.array([0.1, 3.4028234663852886e38], pa.float32())),
    (spec("binary"), pa.array([b"\xff\x00", b""])),
    (spec("timestamp"), pa.array([-5364662400000, 1730000000000], pa.int64()).cast(PRAGUE)),
    (spec("timestamp"), moments(0, -62_135_596_800)),
]


@pytest.mark.parametrize(
    ("field", "array"), REPLAYED, ids=lambda one: str(getattr(one, "type", one))
)
def test_a_letter_becomes_the_row_that_it_was(field: FieldSpec, array: pa.Array) -> None:
    fields = (FieldSpec("n", "int64", nullable=True), field)
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(array))), array], ["n", "v"])
    conformer = Conformer(fields)
    lines = b"".join(conformer.text_of(batch, row) + b"\n" for row in range(len(array)))
    replayed = LineParser(RecordSchema(fields), tolerant=True).parse(lines)
    assert replayed.bad == ()
    expected = conformer.conform(batch).table.to_pylist()
    found = replayed.table.to_pylist()
    if field.type == "json":
        for row in (*expected, *found):
            row["v"] = row["v"].replace(" ", "")
    assert str(found) == str(expected)

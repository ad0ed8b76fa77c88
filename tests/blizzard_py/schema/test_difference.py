"""Columns held against what records have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.job import FieldSpec
from blizzard_py.schema.difference import difference
from blizzard_py.schema.file_types import named_columns
from blizzard_py.schema.inference import Inference, Rules
from tests.support.schema_columns import column


def found(columns: list[FieldSpec], *lines: str) -> tuple[list[str], list[str], list[str]]:
    inference = Inference(Rules(timestamps=True))
    for line in lines:
        inference.add(line.encode(), "x")
    result = inference.result()
    told = difference(columns, result.fields, result.nulls)
    return list(told.new), told.missing, [each.name for each in told.changed]


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        ("string", ['"x"', '"2024-01-01T00:00:00Z"'], ["1", "{}", "[1]"]),
        ("int32", ["1"], ["1.5", '"1"', "18446744073709551616"]),
        ("int64", ["1"], ["1.5", "true"]),
        ("float32", ["1", "1.5"], ['"1.5"']),
        ("float64", ["1", "1.5"], ["[1.5]"]),
        ("boolean", ["true"], ["1"]),
        ("timestamp", ['"2024-01-01T00:00:00Z"', '"2024-01-01"'], ["17"]),
        ("date", ['"2024-01-01"'], ["17"]),
        ("binary", ['"AA=="'], ["17"]),
        ("decimal(5,2)", ["1", "1.5", '"1.5"'], ["true"]),
        ("json", ["1", "{}", '"x"'], []),
    ],
)
def test_a_column_has_changed_if_values_of_the_kind_do_not_fit(
    kind: str, fits: list[str], others: list[str]
) -> None:
    columns = [column("c", kind)]
    for value in [*fits, "null"]:
        assert found(columns, f'{{"c":{value}}}') == ([], [], []), value
    for value in others:
        assert found(columns, f'{{"c":{value}}}') == ([], [], ["c"]), value


@pytest.mark.parametrize(
    "options", [{"kind": "timestamp", "unit": "ms"}, {"kind": "string", "coerce": True}]
)
def test_units_and_coercion_count(options: dict[str, Any]) -> None:
    kind = options.pop("kind")
    assert found([column("c", kind, **options)], '{"c":1706450500000}') == ([], [], [])


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        ("string", [pa.int32(), pa.date32(), pa.large_string()], [pa.binary()]),
        ("int64", [pa.int32(), pa.uint8(), pa.int64()], [pa.float32(), pa.date32()]),
        ("float64", [pa.float32(), pa.int32()], [pa.date32()]),
        ("timestamp", [pa.date32(), pa.timestamp("ns")], [pa.int32()]),
        ("date", [pa.date32()], [pa.timestamp("ms")]),
        ("binary", [pa.binary(), pa.binary(3)], [pa.int32()]),
        ("decimal(9,2)", [pa.decimal128(5, 2), pa.int32(), pa.float32()], [pa.date32()]),
    ],
)
def test_types_that_files_name_are_compared(
    kind: str, fits: list[pa.DataType], others: list[pa.DataType]
) -> None:
    def changes(named: pa.DataType) -> int:
        inference = Inference(Rules())
        inference.add_columns(named_columns({"c": named}), "x")
        return len(difference([column("c", kind)], inference.result().fields, ()).changed)

    assert [changes(named) for named in fits] == [0] * len(fits)
    assert [changes(named) for named in others] == [1] * len(others)


def test_maps_of_files_are_compared_by_their_values() -> None:
    inference = Inference(Rules())
    inference.add_columns(named_columns({"c": pa.map_(pa.string(), pa.date32())}), "x")
    [named] = inference.result().fields
    for values, paths in (("date", []), ("int64", ["c.value"])):
        found = difference([column("c", "map", values=values)], [named], ())
        assert [each.name for each in found.changed] == paths


def test_values_of_several_kinds_are_a_change_where_not_all_fit() -> None:
    assert found([column("c", "string")], '{"c":"x"}', '{"c":1}') == ([], [], ["c"])


def test_nested_differences_are_named_by_path() -> None:
    inner = [{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}]
    columns = [
        column("s", "struct", fields=inner),
        column("l", "list", items={"type": "struct", "fields": inner}),
        column("m", "map", values="int64"),
        column("gone", "string"),
    ]
    record = '{"s":{"a":1.5,"c":1},"l":[{"a":1,"b":2,"d":null}],"m":{"k":"x"},"new":1}'
    assert found(columns, record) == (
        ["new", "s.c", "l[].d"],
        ["gone", "s.b"],
        ["s.a", "l[].b", "m.k"],
    )

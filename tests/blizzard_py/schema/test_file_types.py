"""Columns of the types that files name, and their union."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import SchemaConflict
from blizzard_core.limits import INFERRED_LEVELS, INFERRED_VALUES, STRUCT_FIELDS
from blizzard_py.job import FieldSpec
from blizzard_py.schema.field_specs import field_document
from blizzard_py.schema.file_types import named_columns, united
from blizzard_py.schema.inference import Inference, Rules


def column(kind: pa.DataType) -> FieldSpec:
    return named_columns({"c": kind})["c"]


def shown(spec: FieldSpec | None) -> Any:
    if spec is None:
        return None
    document = field_document(spec)
    del document["name"]
    return document["type"] if len(document) == 1 else document


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int16(), "int32"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.decimal128(12, 3), "decimal(12,3)"),
        (pa.decimal256(60, 3), "string"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.date64(), "date"),
        (pa.float16(), "float32"),
        (pa.binary(3), "binary"),
        (pa.binary_view(), "binary"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), {"type": "list", "items": "int32"}),
        (pa.map_(pa.string(), pa.date32()), {"type": "map", "values": "date"}),
        (
            pa.struct([pa.field("a", pa.int64(), nullable=False)]),
            {"type": "struct", "fields": [{"name": "a", "type": "int64"}]},
        ),
        (pa.struct([]), "json"),
        (pa.struct({"a b": pa.int64()}), "json"),
        (pa.struct({"a": pa.int64(), "A": pa.int64()}), "json"),
        (pa.struct({f"f{n}": pa.int64() for n in range(STRUCT_FIELDS + 1)}), "json"),
        (
            pa.struct({"in": pa.struct({"a b": pa.int64()})}),
            {"type": "struct", "fields": [{"name": "in", "type": "json"}]},
        ),
    ],
    ids=str,
)
def test_a_column_has_the_type_that_a_file_names(kind: pa.DataType, expected: Any) -> None:
    assert shown(column(kind)) == expected


def test_columns_of_hostile_schemas_are_json() -> None:
    deep = pa.int64()
    for _ in range(2 * INFERRED_LEVELS):
        deep = pa.list_(deep)
    text = str(shown(column(deep)))
    assert (text.count("list"), text.count("json")) == (INFERRED_LEVELS, 1)
    many = pa.struct({f"f{n}": pa.int64() for n in range(100)})
    wide = pa.struct({f"g{n}": many for n in range(INFERRED_VALUES // 100 + 1)})
    assert shown(column(wide)) == "json"


def test_null_fits_any_type_and_values_tell_what_has_none() -> None:
    empty = pa.list_(pa.null())
    assert named_columns({"n": pa.null(), "v": None, "l": empty}) == {"v": None}


LIST, OTHER = (
    pa.list_(pa.field(name, kind)) for name, kind in (("a", pa.int32()), ("b", pa.int64()))
)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int32(), pa.int64(), "int64"),
        (pa.float32(), pa.float64(), "float64"),
        (pa.date32(), pa.timestamp("ms"), "timestamp"),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), "decimal(12,4)"),
        (pa.decimal128(10, 2), pa.int32(), "decimal(12,2)"),
        (pa.decimal128(38, 2), pa.decimal128(38, 4), None),
        (pa.decimal128(38, 2), pa.float64(), None),
        (pa.int64(), pa.float64(), None),
        (pa.int64(), pa.string(), None),
        (pa.string(), pa.binary(), None),
        (pa.timestamp("us"), pa.string(), None),
        (LIST, OTHER, {"type": "list", "items": "int64"}),
        (LIST, pa.int32(), None),
        (LIST, pa.list_(pa.string()), None),
        (
            pa.struct({"a": pa.int32(), "b": pa.string()}),
            pa.struct({"b": pa.string(), "a": pa.int64()}),
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}],
            },
        ),
        (pa.struct({"a": pa.int32()}), pa.struct({"a": pa.string()}), None),
        (pa.struct({"a": pa.int32()}), pa.struct({"A": pa.int32()}), "json"),
    ],
    ids=str,
)
def test_two_types_are_united_where_no_value_is_lost(
    left: pa.DataType, right: pa.DataType, expected: Any
) -> None:
    one, other = column(left), column(right)
    assert shown(united(one, other)) == expected
    assert united(one, one) == one
    back = united(other, one)
    assert (back is None) == (expected is None)
    if back is not None and not back.children:
        assert shown(back) == expected


def test_a_struct_of_two_files_has_the_fields_of_both() -> None:
    found = united(column(pa.struct({"a": pa.int32()})), column(pa.struct({"b": pa.string()})))
    assert [(child.name, child.type) for child in found.children] == [
        ("a", "int32"),
        ("b", "string"),
    ]


def test_the_order_of_three_files_decides_nothing() -> None:
    kinds = [pa.int32(), pa.int64(), pa.decimal128(9, 2)]
    for first, second, third in permutations(map(column, kinds)):
        both = united(first, second)
        assert shown(united(both, third)) == "decimal(21,2)"


def test_inference_takes_named_types_before_values() -> None:
    inference = Inference(Rules())
    inference.add_columns(named_columns({"a": pa.int32(), "n": pa.null(), "v": None}), "1")
    inference.add_columns(named_columns({"a": pa.int64(), "n": pa.date32(), "v": pa.int32()}), "2")
    inference.add(b'{"a": 1.5, "v": "x"}', "2, line 1")
    assert [(s.name, s.type) for s in inference.result().fields] == [
        ("a", "int64"),
        ("v", "string"),
        ("n", "date"),
    ]


@pytest.mark.parametrize(("value", "kind"), [("1", "int64"), ("null", "int32"), ('"x"', "string")])
def test_untyped_values_are_united_with_named_types(value: str, kind: str) -> None:
    inference = Inference(Rules())
    inference.add_columns({"a": None}, "1")
    inference.add_columns(named_columns({"a": pa.int32()}), "2")
    inference.add(f'{{"a": {value}}}'.encode(), "1, line 1")
    assert [spec.type for spec in inference.result().fields] == [kind]


def test_types_without_a_union_are_a_conflict() -> None:
    found = []
    for coerces in (True, False):
        inference = Inference(Rules(coerce_conflicts=coerces))
        inference.add_columns(named_columns({"a": pa.decimal128(5, 2)}), "1.parquet")
        inference.add_columns(named_columns({"a": pa.string()}), "2.parquet")
        found.append(inference)
    [spec] = found[0].result().fields
    assert (spec.type, spec.coerce) == ("string", True)
    with pytest.raises(SchemaConflict, match=r"decimal\(5,2\) \(1.parquet\), string \(2.parquet\)"):
        found[1].result()

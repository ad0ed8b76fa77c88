"""The three forms of a schema fit each other: settings, what is read, what is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.settings.schema import FieldSettings
from blizzard_py.schema.field_specs import field_document, field_spec
from blizzard_py.schema.types import arrow_type, is_extracted, read_schema, table_schema
from tests.support.schema_columns import column

UTC = pa.timestamp("us", tz="UTC")


WRITTEN: list[tuple[dict[str, Any], pa.DataType]] = [
    ({"type": "string"}, pa.string()),
    ({"type": "string", "coerce": True}, pa.string()),
    ({"type": "int32"}, pa.int32()),
    ({"type": "int64", "nullable": False}, pa.int64()),
    ({"type": "float32"}, pa.float32()),
    ({"type": "float64"}, pa.float64()),
    ({"type": "boolean"}, pa.bool_()),
    ({"type": "timestamp"}, UTC),
    ({"type": "timestamp", "unit": "s"}, UTC),
    ({"type": "timestamp", "unit": "ms"}, UTC),
    ({"type": "timestamp", "unit": "us"}, UTC),
    ({"type": "date"}, pa.date32()),
    ({"type": "json"}, pa.string()),
    ({"type": "binary"}, pa.binary()),
    ({"type": "decimal(12,2)"}, pa.decimal128(12, 2)),
    (
        {
            "type": "struct",
            "fields": [
                {"name": "a", "type": "int32", "nullable": False},
                {"name": "b", "type": "list", "items": "date"},
            ],
        },
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("element", pa.date32())))]),
    ),
    (
        {"type": "list", "items": {"type": "binary", "nullable": False}},
        pa.list_(pa.field("element", pa.binary())),
    ),
    (
        {"type": "map", "values": {"type": "list", "items": "json"}},
        pa.map_(pa.string(), pa.list_(pa.field("element", pa.string()))),
    ),
]


@pytest.mark.parametrize(("settings", "written"), WRITTEN, ids=lambda v: str(v)[:40])
def test_every_type_is_written_as_documented_and_can_be_shown(
    settings: dict[str, Any], written: pa.DataType
) -> None:
    spec = field_spec(FieldSettings.model_validate({"name": "x", **settings}))
    assert arrow_type(spec) == written
    assert field_document(spec) == {"name": "x", **settings}
    assert (len(read_schema([spec])) == 0) == is_extracted(spec)


def test_a_decimal_without_a_scale_has_none() -> None:
    assert field_document(column("x", "decimal( 20 )")) == {"name": "x", "type": "decimal(20,0)"}


def test_columns_keep_order_and_nested_fields_are_never_required() -> None:
    inner = [{"name": "n", "type": "date", "nullable": False}]
    fields = [
        column("b", "date", nullable=False),
        column("j", "json", nullable=False),
        column("s", "struct", fields=inner, nullable=False),
        column("c", "int32"),
    ]
    assert table_schema(fields) == pa.schema(
        [
            pa.field("b", pa.date32(), nullable=False),
            pa.field("j", pa.string(), nullable=False),
            pa.field("s", pa.struct([pa.field("n", pa.date32())]), nullable=False),
            pa.field("c", pa.int32()),
        ]
    )
    assert table_schema(fields, rescued=True).names == ["b", "j", "s", "c", "_rescued"]
    assert read_schema(fields) == pa.schema(
        [
            pa.field("b", pa.string(), nullable=False),
            pa.field("s", pa.struct([pa.field("n", pa.string())]), nullable=False),
            pa.field("c", pa.int32()),
        ]
    )

"""A row that says nothing can be made for every type that a schema has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from blizzard_core.settings.schema import FieldSettings
from blizzard_py.schema.field_specs import field_spec
from blizzard_py.schema.types import arrow_type
from blizzard_py.streaming.source import blank

TYPES = [
    {"type": name}
    for name in ("boolean", "int32", "int64", "float32", "float64", "string", "date", "timestamp")
] + [
    {"type": "binary"},
    {"type": "json"},
    {"type": "decimal(9,2)"},
    {"type": "map", "values": "string"},
    {"type": "list", "items": "int64"},
    {"type": "struct", "fields": [{"name": "a", "type": "string", "nullable": False}]},
]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind["type"])
def test_each_type_has_a_nothing(kind: dict[str, object]) -> None:
    spec = field_spec(FieldSettings.model_validate({"name": "x", **kind}))
    schema = pa.schema(
        [
            pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("x", arrow_type(spec), nullable=False),
            pa.field("y", arrow_type(spec)),
        ]
    )
    made = blank(schema, {"ts": 1_000_000})
    made.validate(full=True)
    [row] = made.to_pylist()
    assert row["ts"].timestamp() == 1
    assert row["x"] is not None
    assert row["y"] is None

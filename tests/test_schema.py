from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pytest

from blizzard_py.core.config import FieldType
from blizzard_py.schema import arrow_type, read_schema, table_schema
from blizzard_py.settings import FieldSpec


@pytest.mark.parametrize("kind", get_args(FieldType))
def test_every_declared_type_is_parsed_and_written(kind: FieldType) -> None:
    spec = FieldSpec("x", kind, nullable=True)
    read, written = read_schema([spec]), table_schema([spec])
    assert written.field("x").type == arrow_type(kind)
    assert read.empty_table().cast(written).schema == written


def test_columns_keep_their_order_and_nullability() -> None:
    fields = [
        FieldSpec("b", "date", nullable=False),
        FieldSpec("a", "timestamp", nullable=True),
        FieldSpec("c", "int32", nullable=False),
    ]
    assert table_schema(fields) == pa.schema(
        [
            pa.field("b", pa.date32(), nullable=False),
            pa.field("a", pa.timestamp("us", tz="UTC")),
            pa.field("c", pa.int32(), nullable=False),
        ]
    )
    assert read_schema(fields) == pa.schema(
        [
            pa.field("b", pa.string(), nullable=False),
            pa.field("a", pa.timestamp("us", tz="UTC")),
            pa.field("c", pa.int32(), nullable=False),
        ]
    )

"""A row that says nothing: null where a column may be, and else the smallest thing of its type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

_NOTHING: Mapping[int, Any] = {
    pa.lib.Type_BOOL: False,
    pa.lib.Type_STRING: "",
    pa.lib.Type_BINARY: b"",
    pa.lib.Type_DECIMAL128: Decimal(0),
    pa.lib.Type_DATE32: dt.date(1970, 1, 1),
    pa.lib.Type_LIST: [],
    pa.lib.Type_MAP: [],
}


def blank(schema: pa.Schema, given: Mapping[str, Any]) -> pa.RecordBatch:
    """One row of the schema, with the values ``given`` for some of its columns."""
    arrays = [
        pa.array([given[field.name] if field.name in given else _nothing(field)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(field: pa.Field) -> Any:
    if field.nullable:
        return None
    if pa.types.is_struct(field.type):
        return {child.name: _nothing(child) for child in field.type}
    # The rest are numbers and times.
    return _NOTHING.get(field.type.id, 0)

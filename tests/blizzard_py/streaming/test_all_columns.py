"""Rows of a source that lacks columns of the others."""

from __future__ import annotations

import pyarrow as pa

from blizzard_py.streaming.source import with_all_columns


def test_missing_columns_are_null_in_the_schemas_order() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.string())])
    rows = pa.RecordBatch.from_pydict({"c": ["x", None], "a": [1, 2]})
    found = with_all_columns(rows, schema)
    assert found.schema == schema
    assert found.to_pydict() == {"a": [1, 2], "b": [None, None], "c": ["x", None]}

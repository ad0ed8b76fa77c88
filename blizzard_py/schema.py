"""The declared schema as Arrow schemas: what is parsed, and what is written.

They differ where the JSON reader is stricter than the format: it takes dates
for an error in a date column, so a date is read as a string and cast after.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from blizzard_py.core.config import FieldType
from blizzard_py.settings import FieldSpec

_TYPES: dict[FieldType, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


def arrow_type(name: FieldType) -> pa.DataType:
    """The Arrow type a declared type is written as.

    Timestamps are microseconds in UTC, which is what Delta stores; dates are
    days since the epoch.
    """
    return _TYPES[name]


def table_schema(fields: Iterable[FieldSpec]) -> pa.Schema:
    """The schema of the Parquet files, columns in declared order."""
    return pa.schema(
        [pa.field(spec.name, arrow_type(spec.type), nullable=spec.nullable) for spec in fields]
    )


def read_schema(fields: Iterable[FieldSpec]) -> pa.Schema:
    """The ``explicit_schema`` for ``pyarrow.json``; casting it gives `table_schema`.

    A null or missing value of a field that is not nullable is an error of the
    reader itself.
    """
    return pa.schema(
        [
            pa.field(
                spec.name,
                pa.string() if spec.type == "date" else arrow_type(spec.type),
                nullable=spec.nullable,
            )
            for spec in fields
        ]
    )


class RecordSchema:
    """What a line must be: how it is read, and how what was read becomes rows."""

    def __init__(self, fields: Iterable[FieldSpec]) -> None:
        specs = tuple(fields)
        self.read: pa.Schema = read_schema(specs)
        self.table: pa.Schema = table_schema(specs)

    def finish(self, table: pa.Table) -> pa.Table:
        """The rows as they are written. Raises `ValueError` for a value that does not convert.

        The reader drops nullability; dates are strings so far.
        """
        return table.cast(self.table)

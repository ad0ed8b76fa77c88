"""The schema as it is read and as it is written.

The two differ for types that ``pyarrow.json`` cannot read, or does not read strictly enough. A
date and base64 are read as strings, an epoch as a decimal, a ``float32`` as a double;
`kernels.columns` converts them. The reader has no type for any JSON, for maps and for types that
contain these. The read schema leaves them out, and `kernels.extract` takes them from the lines.

Only top-level columns are required in the Parquet files. ``nullable: false`` inside them is still
enforced on the values. Delta readers disagree about a required field of a null struct, so the files
do not declare it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from blizzard_core.settings.schema import RESCUED, FieldType
from blizzard_py.job import FieldSpec

# Decimal digits behind the point of an epoch in this unit, down to microseconds. Eighteen
# digits of microseconds reach far beyond the year 9999.
EPOCH_SCALES = {"s": 6, "ms": 3, "us": 0}
EPOCH_DIGITS = 18
# The years 1 to 9999, as Python's dates have them, in days and microseconds since 1970.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
MIN_MICROS, MAX_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES: dict[FieldType, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": _TIMESTAMP,
    "date": pa.date32(),
    "json": pa.string(),
    "binary": pa.binary(),
}
_READ_AS: dict[FieldType, pa.DataType] = {
    "date": pa.string(),
    "binary": pa.string(),
    "float32": pa.float64(),
}


def arrow_type(spec: FieldSpec) -> pa.DataType:
    """Return the Arrow type that a field is written as.

    Timestamps are microseconds in UTC, which is what Delta stores; dates are
    days since the epoch; any JSON is its text.
    """
    match spec.type:
        case "decimal":
            return pa.decimal128(spec.precision, spec.scale)
        case "struct":
            return pa.struct([(child.name, arrow_type(child)) for child in spec.children])
        case "list":
            return pa.list_(pa.field("element", arrow_type(spec.children[0])))
        case "map":
            return pa.map_(pa.string(), arrow_type(spec.children[0]))
        case _:
            return _TYPES[spec.type]


def table_schema(fields: Iterable[FieldSpec], *, rescued: bool = False) -> pa.Schema:
    """Return the schema of the Parquet files, in declared order; ``_rescued`` is last."""
    columns = [pa.field(f.name, arrow_type(f), nullable=f.nullable) for f in fields]
    return pa.schema([*columns, pa.field(RESCUED, pa.string())] if rescued else columns)


def is_extracted(spec: FieldSpec) -> bool:
    """Return whether the value is taken from the line itself because the reader cannot read it."""
    if spec.type in ("json", "map") or spec.coerce:
        return True
    return any(is_extracted(child) for child in spec.children)


def read_type(spec: FieldSpec) -> pa.DataType:
    """Return the type that the reader produces; `kernels.columns` converts it to `arrow_type`.

    Everything in it is nullable: the reader would refuse a null struct for the
    sake of its required fields.
    """
    match spec.type:
        case "struct":
            return pa.struct([(child.name, read_type(child)) for child in spec.children])
        case "list":
            return pa.list_(pa.field("element", read_type(spec.children[0])))
        case "decimal":
            # The reader adds digits behind the point without looking whether they fit; 256
            # bits have room for all that 38 digits can become.
            return pa.decimal256(spec.precision, spec.scale)
        case "timestamp" if spec.unit != "iso":
            return pa.decimal128(EPOCH_DIGITS, EPOCH_SCALES[spec.unit])
        case _:
            return _READ_AS.get(spec.type) or arrow_type(spec)


def read_schema(fields: Iterable[FieldSpec]) -> pa.Schema:
    """Return the ``explicit_schema`` for ``pyarrow.json``, without extracted fields.

    A null or missing value of a field that is not nullable is an error of the
    reader itself.
    """
    return pa.schema(
        [
            pa.field(spec.name, read_type(spec), nullable=spec.nullable)
            for spec in fields
            if not is_extracted(spec)
        ]
    )

"""The contract of Parquet files that all readers of a Delta table read alike. Pure.

Promise: engines that follow the protocol read an accepted file alike, as far as its footer shows.
Reading its footer costs limited memory and time. The check runs where footers are read, so every
command decides alike.

* Timestamps have milliseconds or microseconds. The protocol has microseconds. Nanoseconds and
  INT96 (which has no statistics to prove its range) are cut off, overflow or fail, depending on
  the reader.
* A list has no fixed size and a date counts days, also in the Arrow schema that the writer noted:
  some readers use that note.
* There are rows, as many as the sum of the row groups, and no more than the file's bytes could
  hold.
* Columns and depth are limited: a schema that delta-rs cannot parse again would break the log.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.limits import FILE_LEVELS, GROUP_ROWS, ROWS_PER_BYTE
from blizzard_core.table.extent import check_width, children, leaves
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.intake.file_statistics import column_bounds, leaf_columns, row_groups
from penguin_py.model import Footer

# The key under which Arrow's writer stores types that Parquet lacks.
ARROW_KEY = b"ARROW:schema"

# Measured memory of a decoded column chunk, row group and column. It does not depend on their size
# in the footer, so it limits how much a footer can grow.
CHUNK_BYTES, GROUP_BYTES, COLUMN_BYTES = 800, 256, 1700
MOST_DECODED = 32

# Spark 2, and Spark 3 by configuration, writes earlier days in the Julian calendar.
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_KEY = b"org.apache.spark.version"
_GREGORIAN_DAY = (dt.date(1582, 10, 15) - dt.date(1970, 1, 1)).days
_GREGORIAN_SECS = (dt.date(1900, 1, 1) - dt.date(1970, 1, 1)).days * 86_400
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def decoded_bytes(metadata: pq.FileMetaData, length: int) -> int:
    """Return what a footer of this length takes in memory, roughly."""
    columns, groups = metadata.num_columns, metadata.num_row_groups
    inside = groups * (columns * CHUNK_BYTES + GROUP_BYTES) + columns * COLUMN_BYTES
    return length + int(inside)


def check_columns(metadata: pq.FileMetaData, note: bytes | None) -> None:
    """Refuse physical and logical types that readers disagree on. Raises `SchemaMismatch`.

    ``note`` is the Arrow schema that the writer left, as it stands in the footer.
    """
    check_width(metadata.num_columns)
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        if column.physical_type == "INT96":
            raise SchemaMismatch(
                f"column {column.path!r} holds INT96 timestamps, which readers convert"
                " differently; write TIMESTAMP_MICROS (Spark:"
                " spark.sql.parquet.outputTimestampType)"
            )
        if _is_nanoseconds(column.logical_type):
            raise SchemaMismatch(
                f"column {column.path!r} holds timestamps of nanoseconds, Delta has"
                " microseconds; write it with those (pandas: coerce_timestamps='us')"
            )
        _check_kind(column, note)
    if note is not None:
        for field in noted(note):
            _check_noted(field.name, field.type, 1)


def noted(note: bytes) -> pa.Schema:
    """Decode the Arrow schema that the writer left in the footer. Raises `SchemaMismatch`."""
    try:
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(note)))
    except (pa.ArrowException, binascii.Error, OSError, ValueError) as error:
        raise SchemaMismatch(f"has an unreadable {ARROW_KEY.decode()} in its footer") from error


def check_rows(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse row counts that cannot be true. Raises `SchemaMismatch`."""
    rows = metadata.num_rows
    counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    if rows == 0 and not any(counts):
        raise SchemaMismatch("has no rows")
    if rows < 0 or any(not 0 <= count <= GROUP_ROWS for count in counts):
        raise SchemaMismatch(
            f"has an impossible row count: {rows:,} rows in groups of {counts[:5]}"
        )
    if rows != sum(counts):
        raise SchemaMismatch(f"says it has {rows:,} rows, its row groups have {sum(counts):,}")
    if rows > size * ROWS_PER_BYTE:
        raise SchemaMismatch(f"says it has {rows:,} rows in {size:,} bytes")


def check_calendar(
    metadata: pq.FileMetaData, schema: pa.Schema, pairs: Mapping[bytes, bytes]
) -> None:
    """Refuse days that only Spark would move to the calendar of today. Raises `SchemaMismatch`.

    Only files that say that they are written so; days after 1582 and moments after
    1900 are the same in both calendars.
    """
    if not _is_legacy(pairs):
        return
    groups = row_groups(metadata)
    leaves = leaf_columns(metadata, schema)
    indexes = {leaf.index for leaf in leaves.values()}
    for name, leaf in leaves.items():
        oldest = _oldest(leaf.type)
        if oldest is None:
            continue
        bounds = column_bounds(groups, leaf)
        rows = sum(group.num_rows for group in groups)
        if bounds is not None and (
            bounds.nulls == rows or (isinstance(bounds.low, int) and bounds.low >= oldest)
        ):
            continue
        raise _julian(".".join(name))
    for index in range(metadata.num_columns):
        # Inside lists and maps there are no bounds that could prove anything.
        logical = metadata.schema.column(index).logical_type.type
        if index not in indexes and logical in ("DATE", "TIMESTAMP"):
            raise _julian(metadata.schema.column(index).path)


def check_nulls(table: pa.Schema, footer: Footer) -> None:
    """Refuse nulls where the table has none, at every depth. Raises `SchemaMismatch`.

    A nullable column of the file may fill a required one if its statistics prove
    that it is free of nulls.
    """
    if not any(_requires(field) for field in table):
        return
    proof = _Proof(footer.metadata)
    given = _numbered(footer.schema)
    for field in table:
        if field.name in given:
            _check_field(field, *given[field.name], proof, field.name)


class _Proof:
    """Proof that flat columns of a file have no nulls, from all row groups' statistics."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata
        self._groups = row_groups(metadata)

    def any_full(self, columns: range) -> bool:
        """Return whether one of the columns has no nulls: then its parent has none either."""
        return any(self._is_full(index) for index in columns)

    def _is_full(self, index: int) -> bool:
        if index >= self._metadata.num_columns:
            return False
        found = (group.column(index).statistics for group in self._groups)
        return all(s is not None and s.has_null_count and s.null_count == 0 for s in found)


def _check_field(table: pa.Field, file: pa.Field, columns: range, proof: _Proof, name: str) -> None:
    if not table.nullable and file.nullable and not proof.any_full(columns):
        raise SchemaMismatch(f"column {name!r} may hold nulls, which the table forbids")
    table_type, theirs = table.type, file.type
    if pa.types.is_struct(table_type) and pa.types.is_struct(theirs):
        given = _numbered(theirs, columns.start)
        for field in table_type:
            if field.name in given:
                _check_field(field, *given[field.name], proof, f"{name}.{field.name}")
    elif pa.types.is_map(table_type) and pa.types.is_map(theirs):
        values = range(columns.start + leaves(theirs.key_type), columns.stop)
        _check_field(table_type.item_field, theirs.item_field, values, proof, f"{name}[value]")
        keys = range(columns.start, values.start)
        _check_field(table_type.key_field, theirs.key_field, keys, proof, f"{name}[key]")
    elif _is_list(table_type) and _is_list(theirs):
        _check_field(table_type.value_field, theirs.value_field, columns, proof, f"{name}[]")


def _requires(field: pa.Field) -> bool:
    """Return whether a table's field or one inside it forbids nulls; a map's keys always do."""
    if not field.nullable:
        return True
    kind = field.type
    if pa.types.is_struct(kind):
        return any(_requires(inner) for inner in kind)
    if pa.types.is_map(kind):
        return _requires(kind.item_field) or _requires(kind.key_field.with_nullable(True))
    return _is_list(kind) and _requires(kind.value_field)


def _numbered(fields: Iterable[pa.Field], start: int = 0) -> dict[str, tuple[pa.Field, range]]:
    """Return each field by name, with the numbers of its flat columns."""
    found = {}
    for field in fields:
        stop = start + leaves(field.type)
        found[field.name] = (field, range(start, stop))
        start = stop
    return found


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _check_kind(column: pq.ColumnSchema, note: bytes | None) -> None:
    """Refuse what some readers take for text or a time, and others for bytes."""
    kind = column.logical_type.type
    if "INTERVAL" in (kind, column.converted_type):
        raise SchemaMismatch(f"column {column.path!r} holds intervals, for which Delta has no type")
    if kind == "ENUM" or (kind == "JSON" and note is None):
        raise SchemaMismatch(
            f"column {column.path!r} is of Parquet's type {kind}, which readers take for text or"
            " for bytes; write it as text"
        )


def _is_nanoseconds(logical: pq.ParquetLogicalType) -> bool:
    if logical.type != "TIMESTAMP":
        return False
    return bool(json.loads(logical.to_json()).get("timeUnit") == "nanoseconds")


def _check_noted(name: str, kind: pa.DataType, depth: int) -> None:
    if pa.types.is_date64(kind):
        raise SchemaMismatch(
            f"column {name!r} is noted as date64, which some readers take for a timestamp;"
            " write it as date32"
        )
    if pa.types.is_fixed_size_list(kind):
        raise SchemaMismatch(
            f"column {name!r} is noted as a list of fixed size, for which Delta has no type;"
            " write it as a list"
        )
    if depth > FILE_LEVELS:
        raise SchemaMismatch(f"column {name!r} is nested more than {FILE_LEVELS} levels deep")
    for inner in children(kind):
        _check_noted(name, inner, depth + 1)


def _is_legacy(pairs: Mapping[bytes, bytes]) -> bool:
    if any(key in pairs for key in _LEGACY_KEYS):
        return True
    major = re.match(rb"\s*(\d+)\.", pairs.get(_SPARK_KEY, b""))
    return major is not None and int(major[1]) < 3


def _oldest(kind: pa.DataType) -> int | None:
    """Return the first value of a date or timestamp type that both calendars share."""
    if pa.types.is_date32(kind):
        return _GREGORIAN_DAY
    if pa.types.is_timestamp(kind):
        return _GREGORIAN_SECS * _TICKS_PER_SECOND[kind.unit]
    return None


def _julian(name: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {name!r} may hold days of the Julian calendar, which only Spark converts;"
        " write it with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
    )

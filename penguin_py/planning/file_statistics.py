"""File statistics for the Delta log, from a Parquet footer. Pure.

Promise: a bound that is written is certain, and typed by the **table's** column.
One mistyped value switches data skipping off for the whole commit, and a wrong
one silently hides rows, so whatever is in doubt is left out; ``numRecords`` is
always there.

* Bounds for whole numbers, decimals, text, dates and timestamps, at the top level
  and inside structs; null counts for those and for floats (whose bounds NaN makes
  useless). Nothing inside lists and maps.
* A row group without statistics leaves its column out; a row group of nulls only
  has no bounds and needs none.
* Text is cut to 32 characters: a prefix is a lower bound, and an upper one once
  its last character is raised. Not that of the columns that groups replace rows by
  (`UNCUT`), which have bounds wherever they stand, and are all null in a file that
  lacks them. Timestamps are rounded outwards to milliseconds, the resolution that all
  engines agree on, and decimals to 15 digits, which readers that go through floating
  point still get right.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.groups import SOURCE_FILE_COLUMN, UNIT_COLUMN

# Delta's own default: statistics for the first columns of the schema only, each
# field of a struct counted as one.
INDEXED_COLUMNS = 32
TEXT_CHARACTERS = 32
# How many characters stand in the bounds of columns that rows are found again by. Names of
# source files are long, and in the log once for each of the two.
UNCUT = {UNIT_COLUMN: 4096, SOURCE_FILE_COLUMN: 256}
DECIMAL_DIGITS = 15

_ENCODER = msgspec.json.Encoder()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What all row groups together say of one column: raw bounds, None if there are none."""

    nulls: int
    low: Any
    high: Any


class StatisticsWriter:
    """Makes the ``stats`` JSON of an ``add`` for files of one schema in one table's.

    What depends on the schemas alone is worked out once: files that arrive together
    are alike, and there may be thousands.
    """

    def __init__(self, metadata: pq.FileMetaData, file: pa.Schema, table: pa.Schema) -> None:
        """``file`` is the schema in the footer, as Arrow reads it."""
        self._parquet = metadata.schema
        self._file = file
        leaves = leaf_columns(metadata, file)
        found: list[tuple[Name, Leaf, _Write]] = []
        self._absent: list[Name] = []
        for place, (name, kind) in enumerate(_fields(table, ())):
            uncut = UNCUT.get(name[0]) if len(name) == 1 else None
            if place >= INDEXED_COLUMNS and uncut is None:
                continue
            leaf = leaves.get(name)
            write = None if leaf is None else _writer(kind, leaf.type, uncut or TEXT_CHARACTERS)
            if leaf is not None and write is not None:
                found.append((name, leaf, write))
            elif uncut is not None and file.get_field_index(name[0]) < 0:
                self._absent.append(name)
        self._columns = found

    def serves(self, metadata: pq.FileMetaData, file: pa.Schema) -> bool:
        """Whether a file is of the schema that this was made for."""
        alike = file is self._file or file.equals(self._file)
        return bool(alike and self._parquet.equals(metadata.schema))

    def __call__(self, metadata: pq.FileMetaData) -> str:
        """The statistics of a file that this `serves`."""
        groups = row_groups(metadata)
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for name in self._absent:
            _put(nulls, name, metadata.num_rows)
        for name, leaf, write in self._columns:
            found = column_bounds(groups, leaf)
            if found is None:
                continue
            _put(nulls, name, found.nulls)
            if found.low is None or found.high is None:
                continue
            lower, upper = write(found.low, False), write(found.high, True)
            if lower is not None:
                _put(low, name, lower)
            if upper is not None:
                _put(high, name, upper)
        document = {
            "numRecords": metadata.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
        }
        return _ENCODER.encode(document).decode()


def file_statistics(metadata: pq.FileMetaData, file: pa.Schema, table: pa.Schema) -> str:
    """The ``stats`` JSON of one file; see `StatisticsWriter`."""
    return StatisticsWriter(metadata, file, table)(metadata)


# A column's name, or the names on the way to a field inside structs.
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A flat column of a file: its number among the Parquet columns, and its type.

    ``signed``: its raw bounds may be big-endian two's complement, which does not
    sort as bytes.
    """

    index: int
    type: pa.DataType
    signed: bool


def leaf_columns(metadata: pq.FileMetaData, file: pa.Schema) -> dict[Name, Leaf]:
    """The file's flat columns, those inside structs included.

    Counted through the schema tree: a Parquet path cannot tell a column ``a.b``
    from a field ``b`` of ``a``. Empty if the count does not come out.
    """
    found: dict[Name, Leaf] = {}
    position = 0
    for name, kind in _fields(file, ()):
        if not pa.types.is_nested(kind):
            if position >= metadata.num_columns:
                return {}
            logical = metadata.schema.column(position).logical_type.type
            found[name] = Leaf(position, kind, logical == "DECIMAL")
        position += _leaves(kind)
    return found if position == metadata.num_columns else {}


def _fields(fields: Iterable[pa.Field], outer: Name) -> Iterator[tuple[Name, pa.DataType]]:
    """All columns in order, structs taken apart; lists and maps stay whole."""
    for field in fields:
        name = (*outer, field.name)
        if pa.types.is_struct(field.type):
            yield from _fields(field.type, name)
        else:
            yield name, field.type


def _put(into: dict[str, Any], name: Name, value: Any) -> None:
    for outer in name[:-1]:
        into = into.setdefault(outer, {})
    into[name[-1]] = value


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaves(kind.value_type)
    return 1


def row_groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    """The row groups that have rows."""
    found = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return [group for group in found if group.num_rows]


def column_bounds(groups: Iterable[pq.RowGroupMetaData], leaf: Leaf) -> ColumnBounds | None:
    """Null count and raw bounds over all row groups; None unless all of them say."""
    nulls = 0
    lows: list[Any] = []
    highs: list[Any] = []
    bounded = True
    for group in groups:
        statistics = group.column(leaf.index).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.has_min_max:
            lows.append(_raw(statistics.min_raw, leaf.signed))
            highs.append(_raw(statistics.max_raw, leaf.signed))
        elif statistics.null_count != group.num_rows:
            bounded = False
    if not bounded or not lows:
        return ColumnBounds(nulls, None, None)
    return ColumnBounds(nulls, min(lows), max(highs))


def _raw(value: Any, signed: bool) -> Any:
    if signed and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


# Writes one raw bound as the JSON value for the table's column; None leaves it out.
# The flag asks for an upper bound.
_Write = Callable[[Any, bool], Any]


def _writer(table: pa.DataType, file: pa.DataType | None, characters: int) -> _Write | None:
    """How bounds of this pair of types are written; None for "no statistics at all"."""
    if file is not None and pa.types.is_dictionary(file):
        file = file.value_type
    write: _Write | None = None
    if file is None:
        write = None
    elif pa.types.is_signed_integer(table) and pa.types.is_signed_integer(file):
        write = partial(_whole, table.bit_width)
    elif pa.types.is_string(table) and _is_text(file):
        write = partial(_text, characters)
    elif pa.types.is_date32(table) and pa.types.is_date32(file):
        write = _date
    elif pa.types.is_timestamp(table) and pa.types.is_timestamp(file):
        if (table.tz is None) == (file.tz is None):
            suffix = "" if table.tz is None else "Z"
            write = partial(_timestamp, _TICKS_PER_SECOND[file.unit], suffix)
    elif pa.types.is_decimal128(table) and table == file:
        write = partial(_decimal, table.precision, table.scale)
    elif pa.types.is_floating(table) and pa.types.is_floating(file):
        write = _unbounded
    return write


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _unbounded(_raw: Any, _upper: bool) -> None:
    """Floats: NaN sorts highest in some readers and is left out in others."""


def _whole(bits: int, raw: Any, _upper: bool) -> int | None:
    limit = 1 << (bits - 1)
    return raw if isinstance(raw, int) and -limit <= raw < limit else None


def _decimal(precision: int, scale: int, raw: Any, upper: bool) -> msgspec.Raw | None:
    """A JSON number with all its digits: not every reader takes an exponent."""
    if not isinstance(raw, int):
        return None
    digits = decimal.Context(
        prec=DECIMAL_DIGITS, rounding=decimal.ROUND_CEILING if upper else decimal.ROUND_FLOOR
    )
    rounded = digits.scaleb(digits.create_decimal(raw), -scale)
    # Rounding outwards may leave the range of the type.
    if abs(rounded) >= decimal.Decimal(10) ** (precision - scale):
        return None
    return msgspec.Raw(format(rounded, "f").encode())


def _date(raw: Any, _upper: bool) -> str | None:
    if not isinstance(raw, int):
        return None
    try:
        return (_EPOCH.date() + dt.timedelta(days=raw)).isoformat()
    except OverflowError:
        return None  # a year that neither Python nor other readers write the same way


def _timestamp(ticks: int, suffix: str, raw: Any, upper: bool) -> str | None:
    if not isinstance(raw, int):
        return None  # int96 has no order that statistics could rely on
    millis = -(-raw * 1000 // ticks) if upper else raw * 1000 // ticks
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=millis)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + suffix


def _text(characters: int, raw: Any, upper: bool) -> str | None:
    if not isinstance(raw, bytes):
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= characters:
        return text
    prefix = text[:characters]
    return raised(prefix) if upper else prefix


def raised(prefix: str) -> str | None:
    """The shortest text above everything that starts with ``prefix``; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code == 0xD800:
            code = 0xE000  # surrogates are not characters
        if code <= 0x10FFFF:
            return prefix[: end - 1] + chr(code)
    return None

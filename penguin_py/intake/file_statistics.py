"""File statistics for the Delta log, from a Parquet footer. Pure.

Promise: no reader misses a row because of them. A bound is certain, and typed by the **table's**
column: a mistyped value disables data skipping for the whole commit, a wrong one silently hides
rows.

* A file has bounds of *every* column that readers use, or of none. deltalake's dataset takes a
  missing bound beside others for null, and drops the file from every filter on that column. Two
  exceptions: a column of nulls with its null count, and a field of a struct, for which that dataset
  has no expressions. `numRecords` and the null counts are always there.
* Numbers and dates have exact bounds: Spark answers `min` and `max` from them without reading the
  file. So floats have bounds only if the writer says that none is NaN (`blizzard.nan_columns`),
  since readers sort NaN above everything and no footer counts it. None may be infinite, since JSON
  has no such number.
* Bounds of text are cut to 32 characters: a prefix is a lower bound, and an upper one once its
  last character is raised. Columns that select rows for replacement (`UNCUT`) keep longer bounds
  and always have them. Timestamps are rounded outwards to milliseconds, the resolution that all
  engines share, and decimals to 15 digits, which survive floating point; neither leaves the range
  of its type.
* Lists, maps and binary have none, and readers expect none.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.handover.groups import SOURCE_FILE_COLUMN, UNIT_COLUMN
from blizzard_core.handover.outputs import nan_columns_of
from blizzard_core.table.extent import leaves
from penguin_py.intake.bound_values import Write, bound_writer

# Delta's own default: statistics for the first columns of the schema only, each
# field of a struct counted as one.
INDEXED_COLUMNS = 32
TEXT_CHARACTERS = 32
# How many characters stand in the bounds of columns that rows are found again by. Names of
# source files are long, and in the log once for each of the two.
UNCUT = {UNIT_COLUMN: 4096, SOURCE_FILE_COLUMN: 256}
# Above every text, where nothing is known of one: of more than 4 KiB a footer has no bounds.
HIGHEST_TEXT = "\U0010ffff" * TEXT_CHARACTERS

_LISTED = re.compile(r"`(?:[^`]|``)+`|[^.,`]+|[.,]")
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of one column over all row groups: raw bounds, None if there are none."""

    nulls: int
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the table; ``leaf`` is None where the file lacks it or does not fit.

    ``is_indexed``: readers look for its bounds.
    """

    name: Name
    type: pa.DataType
    leaf: Leaf | None
    write: Write | None
    is_absent: bool
    is_indexed: bool


class StatisticsWriter:
    """Makes the ``stats`` JSON of an ``add`` for files of one schema in one table's.

    Everything that depends only on the schemas is computed once: thousands of files that arrive
    together have one schema.
    """

    def __init__(
        self,
        metadata: pq.FileMetaData,
        file: pa.Schema,
        table: pa.Schema,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """``file`` is the schema in the footer, as Arrow reads it; ``properties`` the table's."""
        self._parquet = metadata.schema
        self._file = file
        leaves = leaf_columns(metadata, file)
        there = {name for name, _ in _fields(file, ())}
        fields = list(_fields(table, ()))
        indexed = indexed_columns([name for name, _ in fields], properties or {})
        self._columns: list[_Column] = []
        for name, kind in fields:
            uncut = UNCUT.get(name[0]) if len(name) == 1 else None
            characters = uncut or TEXT_CHARACTERS
            if bound_writer(kind, kind, characters) is None or (
                uncut is None and name not in indexed
            ):
                continue
            leaf = leaves.get(name)
            write = None if leaf is None else bound_writer(kind, leaf.type, characters)
            absent = not any(name[:depth] in there for depth in range(1, len(name) + 1))
            self._columns.append(_Column(name, kind, leaf, write, absent, name in indexed))

    def serves(self, metadata: pq.FileMetaData, file: pa.Schema) -> bool:
        """Return whether a file is of the schema that this was made for."""
        alike = file is self._file or file.equals(self._file)
        return bool(alike and self._parquet.equals(metadata.schema))

    def __call__(self, metadata: pq.FileMetaData) -> str:
        """Return the statistics of a file that this writer `serves`."""
        groups = row_groups(metadata)
        rows = metadata.num_rows
        nan = nan_columns_of(metadata.metadata)
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        is_bounded = True
        for column in self._columns:
            found = _found(column, groups, rows)
            if found is not None:
                _put(nulls, column.name, found.nulls)
            is_null = found is not None and found.nulls == rows
            lower, upper = (None, None) if is_null else _written(column, found, nan)
            # A struct that is left out would be null as a whole.
            inner_low, inner_high = _inside(low, column.name), _inside(high, column.name)
            if lower is not None and upper is not None:
                inner_low[column.name[-1]], inner_high[column.name[-1]] = lower, upper
            elif not is_null and column.is_indexed and len(column.name) == 1:
                is_bounded = False
        document: dict[str, Any] = {"numRecords": rows}
        if is_bounded:
            document |= {"minValues": low, "maxValues": high}
        return _ENCODER.encode({**document, "nullCount": nulls}).decode()


def file_statistics(
    metadata: pq.FileMetaData,
    file: pa.Schema,
    table: pa.Schema,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Return the ``stats`` JSON of one file; see `StatisticsWriter`."""
    return StatisticsWriter(metadata, file, table, properties)(metadata)


def _found(
    column: _Column, groups: Iterable[pq.RowGroupMetaData], rows: int
) -> ColumnBounds | None:
    """Return a column's bounds in the footer; a missing column is null in all rows."""
    if column.is_absent:
        return ColumnBounds(rows, None, None)
    if column.leaf is None or column.write is None:
        return None
    return column_bounds(groups, column.leaf)


def _written(
    column: _Column, found: ColumnBounds | None, nan: frozenset[int] | None
) -> tuple[Any, Any]:
    """Return both bounds as JSON values; None for a bound that is unknown."""
    if found is None or column.leaf is None or column.write is None:
        return None, None
    if pa.types.is_floating(column.type) and (nan is None or column.leaf.index in nan):
        return None, None
    if found.low is None or found.high is None:
        return ("", HIGHEST_TEXT) if pa.types.is_string(column.type) else (None, None)
    return column.write(found.low, False), column.write(found.high, True)


def indexed_columns(names: Sequence[Name], properties: Mapping[str, str]) -> set[Name]:
    """Return the columns whose bounds readers use, by the properties of the table.

    These are the listed columns with their fields; without a list, the first columns.
    """
    listed = properties.get("delta.dataSkippingStatsColumns")
    if listed is not None:
        wanted = set(_listed(listed))
        return {
            name
            for name in names
            if any(
                tuple(part.casefold() for part in name[:depth]) in wanted
                for depth in range(1, len(name) + 1)
            )
        }
    try:
        count = int(properties.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS))
    except ValueError:
        count = INDEXED_COLUMNS
    return set(names if count < 0 else names[:count])


def _listed(text: str) -> Iterator[Name]:
    """Parse a list of columns; names may be in backticks, dots lead into structs."""
    name: list[str] = []
    for part in (*_LISTED.findall(text), ","):
        if part == ",":
            yield tuple(name)
            name = []
        elif part != "." and part.strip():
            plain = part.strip()
            if plain.startswith("`"):
                plain = plain[1:-1].replace("``", "`")
            name.append(plain.casefold())


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
    """Return the file's flat columns, including those inside structs.

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
        position += leaves(kind)
    return found if position == metadata.num_columns else {}


def _fields(fields: Iterable[pa.Field], outer: Name) -> Iterator[tuple[Name, pa.DataType]]:
    """Yield all columns in order, structs split into fields; lists and maps stay whole."""
    for field in fields:
        name = (*outer, field.name)
        if pa.types.is_struct(field.type):
            yield from _fields(field.type, name)
        else:
            yield name, field.type


def _put(into: dict[str, Any], name: Name, value: Any) -> None:
    _inside(into, name)[name[-1]] = value


def _inside(into: dict[str, Any], name: Name) -> dict[str, Any]:
    """Return the object of the struct around a column, made if missing."""
    for outer in name[:-1]:
        into = into.setdefault(outer, {})
    return into


def row_groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    """Return the row groups that have rows."""
    found = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return [group for group in found if group.num_rows]


def column_bounds(groups: Iterable[pq.RowGroupMetaData], leaf: Leaf) -> ColumnBounds | None:
    """Return null count and raw bounds over all row groups; None unless all have them."""
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

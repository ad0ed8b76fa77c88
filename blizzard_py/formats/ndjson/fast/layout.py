"""The layout of a schema in the memory of `scan.c`, and of the resulting columns.

The numbers are those of `scan.c`. Results of the sandbox are checked before Arrow uses them: the
counts, and that offsets increase and end within their text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from blizzard_core.settings.schema import FieldType
from blizzard_py.formats.ndjson.fast.sandbox import Broken, Bytes, Machine
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import EPOCH_DIGITS, EPOCH_SCALES, arrow_type, table_schema

WINDOW_BYTES = 4 << 20
_CELLS, _CHARS, _ROWS, _LEFT = 24 << 20, 32 << 20, 1 << 18, 1 << 14
_FIELDS, _NAMES = 1024, 1 << 16
_UNKNOWNS, LONG_NAME = 64, 256
_KINDS: dict[FieldType, int] = {
    "string": 0,
    "int32": 1,
    "int64": 2,
    "float32": 3,
    "float64": 4,
    "boolean": 5,
    "timestamp": 6,
    "date": 8,
    "decimal": 9,
    "binary": 10,
    "json": 12,
    "struct": 13,
    "list": 13,
    "map": 13,
}
_EPOCH, _COERCED, _NESTED = 7, 11, 13
_TEXTS = frozenset({_KINDS["string"], _KINDS["binary"], _COERCED, _KINDS["json"], _NESTED})
_FIELD_ITEMS = (
    *("kind", "nullable", "precision", "scale", "name", "name_length"),
    *("valid", "data", "chars", "room", "nulls"),
)
_FIELD = np.dtype([(item, "<u4") for item in _FIELD_ITEMS])
_LEFT_LINE = np.dtype([("line", "<u4"), ("start", "<u4"), ("end", "<u4")])
_UNKNOWN = np.dtype([("start", "<u4"), ("length", "<u4")])


def has_room(fields: Sequence[FieldSpec]) -> bool:
    """Return whether the number of columns is within the limits."""
    names = sum(len(spec.name.encode()) for spec in fields)
    return len(fields) <= _FIELDS and names <= _NAMES


def is_nested(spec: FieldSpec) -> bool:
    """Return whether the column is returned as JSON text, which other code converts."""
    return _KINDS[spec.type] == _NESTED


def scanned_schema(fields: Sequence[FieldSpec], *, rescued: bool) -> pa.Schema:
    """Return `table_schema`, with JSON text as binary for nested columns."""
    schema = table_schema(fields, rescued=rescued)
    for index, spec in enumerate(fields):
        if is_nested(spec):
            schema = schema.set(index, schema.field(index).with_type(pa.binary()))
    return schema


class ScanLayout:
    """A machine that is set up for a schema, and its buffers."""

    def __init__(self, machine: Machine, fields: Sequence[FieldSpec], *, skips: bool) -> None:
        self._machine = machine
        names = [spec.name.encode() for spec in fields]
        joined = np.frombuffer(b"".join(names), np.uint8)
        machine.buffer("names", _NAMES)[: len(joined)] = joined
        table = machine.buffer("schema", _FIELDS * _FIELD.itemsize).view(_FIELD)[: len(fields)]
        place = 0
        for row, spec, name in zip(table, fields, names, strict=True):
            row["kind"], row["precision"], row["scale"] = _kind(spec)
            row["nullable"] = spec.nullable
            row["name"], row["name_length"] = place, len(name)
            place += len(name)
        if not machine.call("configure", len(fields), skips):
            raise Broken("the schema has no room")
        self._found = machine.buffer("found", 20).view("<u4")
        self._rows_at = machine.buffer("rows_at", 4 * _ROWS).view("<u4")
        self._left = machine.buffer("left", _LEFT * _LEFT_LINE.itemsize).view(_LEFT_LINE)
        self._unknown = machine.buffer("unknown", _UNKNOWNS * _UNKNOWN.itemsize).view(_UNKNOWN)
        self._input = machine.buffer("input", WINDOW_BYTES)
        cells, text = machine.buffer("cells", _CELLS), machine.buffer("text", _CHARS)
        self._capacity = int(self._found[3])
        self._nulls = table["nulls"]
        self._columns = [
            _Column(spec, row, cells, text) for spec, row in zip(fields, table, strict=True)
        ]

    def fill(self, window: memoryview) -> None:
        """Copy whole lines into the machine, at most `WINDOW_BYTES`."""
        self._input[: len(window)] = np.frombuffer(window, np.uint8)

    def scan(self, start: int, length: int, *, utf8: bool) -> int:
        """Continue the scan from ``start`` and return where it stopped."""
        stopped = self._machine.call("scan", start, length, not utf8)
        rows, lines, left = self._found[:3].tolist()
        if not (
            start < stopped <= length
            and rows <= self._capacity
            and left <= _LEFT
            and rows + left <= lines <= length
        ):
            raise Broken(f"counts that cannot be: {start} {stopped} {rows} {lines} {left}")
        return stopped

    @property
    def lines(self) -> int:
        """The number of lines that were passed."""
        return int(self._found[1])

    def rows_at(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the index of each row's line."""
        rows, lines = self._found[:2].tolist()
        return np.arange(rows) if rows == lines else self._rows_at[:rows].astype(np.int64)

    def left(self) -> list[tuple[int, int, int]]:
        """Return index, start and end of the lines that are not certain."""
        found: list[tuple[int, int, int]] = self._left[: self._found[2]].tolist()
        return found

    def unknown(self) -> list[bytes]:
        """Return some names in the rows that the schema lacks, cut to `LONG_NAME` bytes."""
        count = min(int(self._found[4]), _UNKNOWNS)
        places: list[tuple[int, int]] = self._unknown[:count].tolist()
        return [self._input[start:][: min(n, LONG_NAME)].tobytes() for start, n in places]

    def columns(self) -> list[pa.Array]:
        """Return the rows, copied."""
        rows = int(self._found[0])
        nulls: list[int] = self._nulls.tolist()
        return [column.to_arrow(rows, n) for column, n in zip(self._columns, nulls, strict=True)]


class _Column:
    def __init__(self, spec: FieldSpec, row: np.void, cells: Bytes, text: Bytes) -> None:
        self._type = pa.binary() if is_nested(spec) else arrow_type(spec)
        self._is_text = row["kind"] in _TEXTS
        self._bits = 32 if self._is_text else self._type.bit_width
        self._valid = cells[row["valid"] :]
        self._data = cells[row["data"] :]
        self._text = text[row["chars"] :][: row["room"]]

    def to_arrow(self, rows: int, nulls: int) -> pa.Array:
        """Return an array as Arrow's own builders make it: no validity without nulls."""
        valid = _copied(self._valid[: (rows + 7) // 8]) if nulls else None
        if not self._is_text:
            data = _copied(self._data[: (rows * self._bits + 7) // 8])
            return pa.Array.from_buffers(self._type, rows, [valid, data], nulls)
        offsets = self._data[: 4 * (rows + 1)].view("<i4")
        length = int(offsets[-1])
        if offsets[0] or length > len(self._text) or (offsets[1:] < offsets[:-1]).any():
            raise Broken("offsets that cannot be")
        buffers = [valid, _copied(offsets), _copied(self._text[:length])]
        return pa.Array.from_buffers(self._type, rows, buffers, nulls)


def _copied(part: Bytes) -> pa.Buffer:
    return pa.py_buffer(part.tobytes())


def _kind(spec: FieldSpec) -> tuple[int, int, int]:
    """Return the type's number in `scan.c`, its digits and its fractional digits."""
    if spec.coerce:
        return _COERCED, 0, 0
    if spec.type == "timestamp" and spec.unit != "iso":
        return _EPOCH, EPOCH_DIGITS, EPOCH_SCALES[spec.unit]
    return _KINDS[spec.type], spec.precision, spec.scale

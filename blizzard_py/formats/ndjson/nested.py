"""Structs, lists and maps of lines that the fast path has read, made from their JSON text.

The fast path finds the end of such a value and checks that it is JSON. The exact path converts it:
it parses lines that contain only these fields, so it reads a part of each line instead of all. If
it refuses a line, the whole chunk is read again without the fast path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.formats.ndjson.columns import RecordSchema, read_json
from blizzard_py.formats.ndjson.extract import NULL
from blizzard_py.formats.ndjson.fast.layout import is_nested
from blizzard_py.formats.ndjson.unexpected import FieldWatch

# If a larger share of a chunk is nested, reading it twice takes longer than the exact path.
WORTH = 0.7


@dataclass(frozen=True, slots=True)
class Made:
    """The rows with all columns. ``unexpected`` are fields of structs without a column."""

    table: pa.Table
    unexpected: frozenset[str]


class NestedColumns:
    """The nested columns of a schema.

    Fields of structs without a column are reported as by `FieldWatch`.
    """

    def __init__(self, schema: RecordSchema, *, watched: bool, thorough: bool) -> None:
        fields = [spec for spec in schema.fields if is_nested(spec)]
        self._places = [number for number, spec in enumerate(schema.fields) if is_nested(spec)]
        self.worth = WORTH
        self._table = schema.table
        self._rescued = schema.unexpected == "capture"
        self._schema = RecordSchema(fields, schema.unexpected)
        # Unexpected fields of structs within lists and maps are dropped in every mode.
        watched = watched and any(spec.type == "struct" for spec in fields)
        self._watch = FieldWatch(fields, thorough=thorough) if watched else None

    def __bool__(self) -> bool:
        return bool(self._places)

    def made(self, scanned: pa.Table, chunk_bytes: int) -> Made | None:
        """Return the rows of ``scanned``; None if their chunk must be read by the exact path.

        ``chunk_bytes`` is the size of the chunk; reading a part of it again must be worth it.
        """
        if not scanned.num_rows:
            return Made(self._table.empty_table(), frozenset())
        columns = scanned.columns
        names = [json.dumps(f.name, ensure_ascii=False).encode() for f in self._schema.fields]
        texts = [columns[place].chunk(0) for place in self._places]
        if _size(names, texts) > self.worth * chunk_bytes:
            return None
        lines = _lines(names, texts)
        try:
            found = self._schema.finish(read_json(lines, self._schema.read), lines)
        except ValueError:  # pa.ArrowInvalid is one
            return None
        for place, column in zip(self._places, found.columns, strict=False):
            columns[place] = column
        if self._rescued:
            # A line with an unexpected field is handed over, so only structs have such fields here.
            columns[-1] = found.column(found.num_columns - 1)
        unexpected = self._watch.names(lines, ()) if self._watch else frozenset()
        return Made(pa.Table.from_arrays(columns, schema=self._table), unexpected)


def _size(names: Sequence[bytes], texts: Sequence[pa.Array]) -> int:
    """Return about the bytes of `_lines`: it may be much larger than the chunk."""
    size: int = len(texts[0]) * len(b"{}\n") + texts[0].null_count * (len(names[0]) + len(b":null"))
    for name, text in zip(names, texts, strict=True):
        _, _, values = text.buffers()
        size += int(values.size) + (len(text) - text.null_count) * (len(name) + len(b",:"))
    return size


def _lines(names: Sequence[bytes], texts: Sequence[pa.Array]) -> bytes:
    """Return lines of records with these fields alone; a null is only written for the first."""
    parts: list[pa.Scalar | pa.Array] = []
    for name, text in zip(names, texts, strict=True):
        if parts:
            parts.append(_joined(pa.scalar(b"," + name + b":"), text).fill_null(b""))
        else:
            parts += (pa.scalar(b"{" + name + b":"), text.fill_null(NULL))
    _, _, lines = _joined(*parts, pa.scalar(b"}\n")).buffers()
    return bytes(lines.to_pybytes())


def _joined(*parts: pa.Scalar | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))

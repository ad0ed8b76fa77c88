"""Structs, lists and maps of lines that the fast path has read: columns of their JSON text.

The fast path finds out where such a value ends, and that it is JSON. What becomes of it the exact
path decides, here over lines that have nothing but these fields: so it reads a part of each line
instead of all. Where it would refuse one it says nothing, and the chunk is read as if there were
no other path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.job import FieldSpec
from blizzard_py.kernels.decode.columns import RecordSchema, read_json
from blizzard_py.kernels.decode.extract import NULL
from blizzard_py.kernels.decode.unexpected import Watch
from blizzard_py.kernels.fast.layout import is_nested

# Where more than that of a chunk is nested, reading it twice takes longer than reading it once.
WORTH = 0.7


@dataclass(frozen=True, slots=True)
class Made:
    """The rows with all columns; ``bytes`` is how much was read for those that are nested.

    ``unexpected`` are fields of structs that no column takes.
    """

    table: pa.Table
    unexpected: frozenset[str]
    bytes: int


class NestedColumns:
    """Those of a schema. Fields of structs that no column takes are told as `Watch` tells them."""

    def __init__(self, schema: RecordSchema, *, watched: bool, thorough: bool) -> None:
        fields = [spec for spec in schema.fields if is_nested(spec)]
        self._places = [number for number, spec in enumerate(schema.fields) if is_nested(spec)]
        self._table = schema.table
        self._rescued = schema.unexpected == "capture"
        self._schema = RecordSchema(fields, schema.unexpected)
        # Fields of structs within lists and maps are dropped in every mode.
        watched = watched and any(spec.type == "struct" for spec in fields)
        self._watch = Watch(fields, thorough=thorough) if watched else None

    def __bool__(self) -> bool:
        return bool(self._places)

    def made(self, scanned: pa.Table) -> Made | None:
        """The rows of ``scanned``; None if their chunk has to be read by the exact path."""
        if not scanned.num_rows:
            return Made(self._table.empty_table(), frozenset(), 0)
        columns = scanned.columns
        lines = _lines(self._schema.fields, [columns[place] for place in self._places])
        try:
            found = self._schema.finish(read_json(lines, self._schema.read), lines)
        except ValueError:  # pa.ArrowInvalid is one
            return None
        for place, column in zip(self._places, found.columns, strict=False):
            columns[place] = column
        if self._rescued:
            # A line with another field is handed over, so all that is kept is of structs.
            columns[-1] = found.column(found.num_columns - 1)
        names = self._watch.names(lines, ()) if self._watch else frozenset()
        return Made(pa.Table.from_arrays(columns, schema=self._table), names, len(lines))


def _lines(fields: Sequence[FieldSpec], texts: Sequence[pa.ChunkedArray]) -> bytes:
    """Lines of records that have these fields alone; where one is null only the first says so."""
    parts: list[pa.Scalar | pa.Array] = []
    for spec, text in zip(fields, texts, strict=True):
        name = json.dumps(spec.name, ensure_ascii=False).encode() + b":"
        if parts:
            parts.append(_joined(pa.scalar(b"," + name), text.chunk(0)).fill_null(b""))
        else:
            parts += (pa.scalar(b"{" + name), text.fill_null(NULL).chunk(0))
    _, _, lines = _joined(*parts, pa.scalar(b"}\n")).buffers()
    return bytes(lines.to_pybytes())


def _joined(*parts: pa.Scalar | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))

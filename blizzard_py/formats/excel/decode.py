"""Cells to the declared columns: each kind of cell by its own rules.

Texts follow the options, as in CSV. Numbers, truth values, dates and times are written one way, so
they are read without options, except that a time without a zone is of ``time_zone``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from blizzard_core.settings.format_options import ValueOptions
from blizzard_core.settings.formats import ExcelOptions
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.excel.cells import ERROR, LITERAL, MOMENT, NO_VALUE, TEXT
from blizzard_py.formats.excel.letters import cell_text
from blizzard_py.formats.letters.writing import encoded
from blizzard_py.formats.protocol import BadLine, LineNumbers, Parsed, RecordBytes
from blizzard_py.formats.typed_rows import TypedDecoder, TypedRows
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece

# The column of a piece with the numbers of its rows; no column of a sheet has this name.
NUMBERS = ""
_NONE = pa.scalar(None, pa.string())
_MIDNIGHT = r"T00:00(?::00(?:\.0+)?)?Z?$"
_MOMENT_TYPES = {
    r"^\d{4}-\d\d-\d\d$": pa.date32(),
    r"^\d{4}-\d\d-\d\d(?:T|$)": pa.timestamp("us"),
}
_JSON = pa.json_(pa.string())


class ExcelDecoder(TypedDecoder):
    """The second half of the format, for one source's columns."""

    def __init__(self, schema: RowSchema, options: ExcelOptions, *, tolerant: bool) -> None:
        super().__init__(schema, tolerant=tolerant)
        self._nulls = pa.array(options.null_value, pa.string())
        self._readers = {spec.name: _Reader(spec, options, self._nulls) for spec in schema.fields}

    def rows(self, piece: Piece) -> _Rows:
        """Return the rows of a piece."""
        return _Rows(piece, self._readers, self._nulls, names_errors=self._rescues)

    def decode(self, piece: Piece) -> Parsed:
        """Decode as `Decoder.decode`; blank rows have numbers, and are no records."""
        if piece.rows is None:  # a file without rows
            return super().decode(piece)
        numbers = _numbers(piece)
        try:
            parsed = super().decode(_without_gaps(piece))
        except BadLine as error:
            raise BadLine(int(numbers[error.index]), error.reason) from error
        bad = tuple(structs.replace(each, index=int(numbers[each.index])) for each in parsed.bad)
        return replace(parsed, lines=piece.lines, rows_at=numbers[parsed.rows_at], bad=bad)

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the rows as JSON by their index; each is made when it is looked up."""
        return _ByNumber(super().records(piece), _numbers(piece))

    def _rescued(self, rows: TypedRows, bad: dict[int, str]) -> pa.Array:  # noqa: ARG002  # none of them is bad
        """Return as `TypedDecoder._rescued`; cells that are not there are left out."""
        return cast("_Rows", rows).left_over(is_sample=self._schema.evolves)

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the rows each."""
        rows = _batch(piece)
        if rows.num_rows < 2:
            return None
        middle = rows.num_rows // 2
        lines = int(_numbers(piece)[middle])
        return (
            replace(piece, rows=rows.slice(0, middle), lines=lines),
            replace(piece, rows=rows.slice(middle), lines=piece.lines - lines),
        )

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns of the header, those of dates and times with the type.

        In others each cell has a type of its own.
        """
        rows = _batch(piece)
        return {
            name: _moment_type(rows.column(name), self._nulls)
            for name in rows.schema.names
            if name != NUMBERS
        }

    def as_lines(self, piece: Piece) -> bytes:
        """Return a line of JSON for each number, with the columns that are not declared."""
        if piece.rows is None or not self._schema.evolves:
            return b""
        found = [b""] * piece.lines
        texts = super().as_lines(_without_gaps(piece)).splitlines()
        for number, text in zip(_numbers(piece).tolist(), texts, strict=True):
            found[number] = text
        return b"".join(line + b"\n" for line in found)


def _batch(piece: Piece) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([]) if piece.rows is None else piece.rows


def _numbers(piece: Piece) -> LineNumbers:
    """Return the index of each row in the numbers of its piece."""
    numbers = _batch(piece).column(NUMBERS)
    return np.asarray(pc.subtract(numbers, numbers[0]), np.int64)


def _without_gaps(piece: Piece) -> Piece:
    return replace(piece, lines=_batch(piece).num_rows)


class _ByNumber(Mapping[int, RecordBytes]):
    """Records by their numbers, of which some are no record's."""

    def __init__(self, records: Mapping[int, RecordBytes], numbers: LineNumbers) -> None:
        self._records = records
        self._rows = {number: row for row, number in enumerate(numbers.tolist())}

    def __getitem__(self, index: int) -> RecordBytes:
        return self._records[self._rows[index]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Reader:
    """Reads the cells of one declared column."""

    def __init__(self, spec: FieldSpec, texts: ValueOptions, nulls: pa.StringArray) -> None:
        nullable = (replace(spec, nullable=True),)
        self._spec = spec
        self._nulls = nulls
        self._of_texts = Conformer(nullable, texts=texts)
        self._of_others = Conformer(nullable, texts=ValueOptions(time_zone=texts.time_zone))

    def read(self, cells: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the column, with null in rows whose cell does not fit, and their reasons."""
        kinds, bodies = _split(cells)
        kinds = pc.if_else(_are_null(kinds, bodies, self._nulls), _NONE, kinds)
        bad = {}
        is_bad = pc.is_in(kinds, pa.array([ERROR, NO_VALUE]))
        for row in np.flatnonzero(is_bad.to_numpy(zero_copy_only=False)).tolist():
            bad[row] = self._reason(kinds[row].as_py(), bodies[row].as_py())
        texts = pc.if_else(pc.equal(kinds, TEXT), bodies, _NONE)
        others = pc.if_else(pc.is_in(kinds, pa.array([LITERAL, MOMENT])), bodies, _NONE)
        if self._spec.type == "date":
            others = pc.replace_substring_regex(others, _MIDNIGHT, "")
        if texts.null_count == len(cells):
            return self._conformed(self._of_others, others, bad), bad
        found = self._conformed(self._of_texts, texts, bad)
        if others.null_count < len(cells):
            found = pc.coalesce(found, self._conformed(self._of_others, others, bad))
        return found, bad

    def _conformed(
        self, conformer: Conformer, texts: pa.StringArray, bad: dict[int, str]
    ) -> pa.Array:
        [found], unfit = conformer.values(pa.RecordBatch.from_arrays([texts], [self._spec.name]))
        bad |= unfit
        return found

    def _reason(self, kind: str, text: str) -> str:
        name = self._spec.name
        if kind == NO_VALUE:
            return f"column {name!r}: {text}"
        return (
            f"column {name!r}: the error {text}; correct the sheet, or add the error to"
            " format.null_value if it means that there is no value"
        )


class _Rows:
    """The rows of a piece as `TypedRows`."""

    def __init__(
        self,
        piece: Piece,
        readers: Mapping[str, _Reader],
        nulls: pa.StringArray,
        *,
        names_errors: bool,
    ) -> None:
        self._batch = batch = _batch(piece)
        self._header: Any = piece.context
        self._nulls = nulls
        self._readers = readers
        self._columns: dict[str, pa.Array] = {}
        self.types = {name: _JSON for name in batch.schema.names if name != NUMBERS}
        self.count = batch.num_rows
        self._names_errors = names_errors
        self._filled = [
            name for name in self.types if batch.column(name).null_count < batch.num_rows
        ]
        self.bad: dict[int, str] = {}

    def column(self, name: str) -> pa.Array:
        """Return a declared column in its type, another one as JSON."""
        if name not in self._columns:
            cells = self._batch.column(name)
            if name in self._readers:
                found, bad = self._readers[name].read(cells)
                for row, reason in bad.items():
                    self.bad.setdefault(row, reason)
            else:
                cells = pc.if_else(_are_null(*_split(cells), self._nulls), _NONE, cells)
                texts = [cell and self._json_text(cell) for cell in cells.to_pylist()]
                found = pa.ExtensionArray.from_storage(_JSON, pa.array(texts, pa.string()))
            self._columns[name] = found
        return self._columns[name]

    def left_over(self, *, is_sample: bool) -> pa.StringArray:
        """Return each row's cells without a declared column as JSON; null where there are none.

        The first row of a sample has the empty columns, too.
        """
        parts: list[list[str]] = [[] for _ in range(self.count)]
        filled = set(self._filled)
        for name in self.types:
            if name in self._readers or not (is_sample or name in filled):
                continue
            key = json.dumps(name, ensure_ascii=False)
            texts = self.column(name).storage if name in filled else None
            if texts is None or texts.null_count == self.count:
                if is_sample:
                    parts[0].append(f"{key}:null")
                continue
            for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist():
                parts[row].append(f"{key}:{texts[row].as_py()}")
        found = [f"{{{','.join(part)}}}" if part else None for part in parts]
        return pa.array(found, pa.string())

    def _json_text(self, cell: str) -> str:
        """Return a cell as JSON. An error says so, unless only values count."""
        is_value = cell[0] not in {ERROR, NO_VALUE}
        return _as_json(cell) if is_value or self._names_errors else "null"

    def letters(self, indices: Sequence[int]) -> tuple[bytes, list[bytes]]:
        """Return the rows as the sheet has them, without empty cells."""
        some = self._batch.take(pa.array(indices, pa.int64()))
        rows: list[list[str]] = [[] for _ in indices]
        for name in self._filled:
            key = json.dumps(name, ensure_ascii=False)
            for row, cell in zip(rows, some.column(name).to_pylist(), strict=True):
                if cell is not None:
                    row.append(f"{key}: {cell_text(cell)}")
        lines = [encoded(f"{{{', '.join(members)}}}") for members in rows]
        return self._header.letter_header(self.types), lines


def _split(cells: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    return pc.utf8_slice_codeunits(cells, 0, 1), pc.utf8_slice_codeunits(cells, 1)


def _are_null(
    kinds: pa.StringArray, bodies: pa.StringArray, nulls: pa.StringArray
) -> pa.BooleanArray:
    """Return which cells mean that there is no value."""
    is_written = pc.or_(pc.equal(kinds, TEXT), pc.equal(kinds, ERROR))
    return pc.and_(pc.is_in(bodies, nulls), is_written)


def _moment_type(cells: pa.StringArray, nulls: pa.StringArray) -> pa.DataType | None:
    """Return the type of a column whose values are dates or times, None for other values.

    Errors are left out, since they fit no column.
    """
    kinds, bodies = _split(cells.drop_null())
    is_value = pc.invert(pc.is_in(kinds, pa.array([ERROR, NO_VALUE])))
    is_value = pc.and_not(is_value, _are_null(kinds, bodies, nulls))
    kinds, bodies = kinds.filter(is_value), bodies.filter(is_value)
    if not len(kinds):
        return pa.null()
    if not pc.all(pc.equal(kinds, MOMENT)).as_py():
        return None
    for pattern, kind in _MOMENT_TYPES.items():
        if pc.all(pc.match_substring_regex(bodies, pattern)).as_py():
            return kind
    return None  # times of a day


def _as_json(cell: str) -> str:
    """Return a cell as JSON. One without a value is an object, so that its row stays bad."""
    kind, text = cell[0], cell[1:]
    if kind == LITERAL:
        return text
    value = {"error": text} if kind in {ERROR, NO_VALUE} else text
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

"""The format Excel: the rows of one sheet, each with its number there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from blizzard_core.limits import EXCEL_ROW_BYTES
from blizzard_core.settings.format_options import (
    DataAddress,
    column_letters,
    column_number,
    parse_address,
)
from blizzard_core.settings.formats import ExcelOptions
from blizzard_py.formats.excel.archive import Archive
from blizzard_py.formats.excel.cells import NO_VALUE
from blizzard_py.formats.excel.decode import NUMBERS, ExcelDecoder
from blizzard_py.formats.excel.letters import SheetHeader, cells_in
from blizzard_py.formats.excel.sheet import Row, sheet_rows
from blizzard_py.formats.excel.workbook import open_workbook
from blizzard_py.formats.protocol import NO_OFFSET, OpenFile
from blizzard_py.formats.typed_rows import TypedFormat, check_names
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import CHUNK_BYTES, Piece, RefusedRecord
from blizzard_py.schema.column_names import column_names

# Cells of a piece. Each is a Python object before it is Arrow's.
_PIECE_CELLS = 256 << 10
_NAME_CHARACTERS = 200
_UNNAMED = re.compile(r"column_([A-Z]{1,3})_*")


@dataclass(frozen=True, slots=True)
class ExcelFormat(TypedFormat):
    """Workbooks as a `Format`."""

    options: ExcelOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the rows below the header; blank ones have numbers, and are no records."""
        archive = Archive(file)
        address = parse_address(self.options.data_address)
        workbook = open_workbook(archive)
        sheet = workbook.sheet(address.sheet)
        rows = sheet_rows(archive, workbook, sheet, address)
        filled = (row for row in rows if not row.is_blank)
        texts = None
        if self.options.header_rows:
            header = next(filled, None)
            if header is None and address != DataAddress(address.sheet):
                shown = self.options.data_address
                raise FileFailed("parse", f"has nothing at {shown!r}; correct format.data_address")
            if header is None:
                return
            texts = _texts_of(header)
        columns = self._columns(texts, schema)
        seen: set[str] = set()
        for item in _pieces(filled, columns):
            if columns.unnamed and isinstance(item, Piece) and item.rows is not None:
                seen.update(item.rows.schema.names)
            yield item
        if seen:
            columns.check(schema, seen)

    def _columns(self, texts: Mapping[int, str] | None, schema: RowSchema) -> _Columns:
        """Return the columns below a header with these texts. Raises `FileFailed`."""
        address = parse_address(self.options.data_address)
        if texts is None:
            given = self.options.columns or [spec.name for spec in schema.fields]
            names = dict(enumerate(given, address.first_column))
        else:
            names = _header_names(texts, schema)
        columns = _Columns(names, texts, schema, _unnamed_fields(names, address, schema))
        columns.check(schema, columns.unnamed)
        return columns

    def letter_piece(
        self, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], schema: RowSchema
    ) -> Piece:
        """Return the cells below the header of their sheet."""
        texts, cells = cells_in(header, rows)
        columns = self._columns(texts, schema)
        part = _Part(columns, set(columns.names))
        for number, each in enumerate(cells, 1):
            part.add(Row(number, each, 0))
        return part.piece(0)

    def letter_decoder(self, schema: RowSchema, *, tolerant: bool) -> ExcelDecoder:
        """Return the decoder of cells."""
        return ExcelDecoder(schema, self.options, tolerant=tolerant)


def _texts_of(header: Row) -> dict[int, str]:
    """Return the texts of a header by column."""
    if header.size > EXCEL_ROW_BYTES:
        raise FileFailed("parse", f"its header has more than {EXCEL_ROW_BYTES:,} characters")
    return {
        column: name
        for column, cell in sorted(header.cells.items())
        if cell[0] != NO_VALUE and (name := cell[1:].strip())
    }


def _header_names(given: Mapping[int, str], schema: RowSchema) -> dict[int, str]:
    """Return the names by column. Raises `FileFailed` for a name that stands there twice.

    Of columns that nobody asked for, the second one is named by its letter.
    """
    asked = {spec.name for spec in schema.fields}
    found = dict(zip(given, column_names(list(given.values()), asked), strict=True))
    counts = Counter(found.values())
    is_open = schema.evolves or schema.unexpected_fields == "capture"
    taken: set[str] = set()
    for column, name in sorted(found.items()):
        if counts[name] > 1 and (is_open or name in asked):
            shown = bounded(name, _NAME_CHARACTERS)
            raise FileFailed("parse", f"the header has {shown!r} twice; rename one")
        if name in taken:
            del found[column]
        taken.add(name)
    return found


def _unnamed_fields(names: Mapping[int, str], address: DataAddress, schema: RowSchema) -> set[str]:
    """Return the declared columns that the header may lack: those of the form ``column_C``.

    Only the rows show whether they are there.
    """
    found, taken = set(), set(names.values())
    for spec in schema.fields:
        match = _UNNAMED.fullmatch(spec.name)
        if match and spec.name not in taken:
            column = column_number(match[1])
            is_inside = address.first_column <= column <= address.last_column
            if is_inside and column not in names and _unnamed(column, taken) == spec.name:
                found.add(spec.name)
    return found


class _Columns:
    """The names of a sheet's columns, and those that a piece has even without a cell in them."""

    def __init__(
        self,
        names: Mapping[int, str],
        texts: Mapping[int, str] | None,
        schema: RowSchema,
        unnamed: AbstractSet[str],
    ) -> None:
        fields = {spec.name for spec in schema.fields}
        self.unnamed = unnamed
        self.texts = texts
        self.fields = len(fields)
        self.names = dict(names)
        self.always = {
            column for column, name in names.items() if schema.of_table or name in fields
        }
        self._taken = dict.fromkeys(names.values()).keys()

    def check(self, schema: RowSchema, seen: AbstractSet[str]) -> None:
        """Raise `FileFailed` as `check_names`, if these of the ``unnamed`` columns are there."""
        check_names([*self._taken, *(self.unnamed & seen)], schema)

    def name(self, column: int) -> str:
        """Return the name of a column, which may have none in the header."""
        if column not in self.names:
            self.names[column] = _unnamed(column, self._taken)
        return self.names[column]


def _pieces(rows: Iterator[Row], columns: _Columns) -> Iterator[Piece | RefusedRecord]:
    last = 0  # the row before
    # The first piece shows the whole header. A cell that others lack costs nothing there.
    part = _Part(columns, set(columns.names))
    for row in rows:
        if part.numbers and (part.is_full or row.size > EXCEL_ROW_BYTES):
            yield part.piece(last)
            last, part = part.numbers[-1], _Part(columns, columns.always)
        if row.size > EXCEL_ROW_BYTES:
            reason = f"longer than {EXCEL_ROW_BYTES:,} characters"
            skipped = row.number - last - 1
            yield RefusedRecord(NO_OFFSET, row.size, b"", reason, skipped)
            last = row.number
        else:
            part.add(row)
    if part.numbers:
        yield part.piece(last)


class _Part:
    """Rows on their way to a piece, by column. ``always`` are columns that it has in any case."""

    def __init__(self, columns: _Columns, always: AbstractSet[int]) -> None:
        self.numbers: list[int] = []
        self._cells: dict[int, list[str | None]] = {}  # of columns with one
        self._columns = columns
        self._always = always
        self._size = 0

    @property
    def is_full(self) -> bool:
        """True if it has enough for a piece."""
        return self._size >= CHUNK_BYTES or len(self.numbers) * self._width >= _PIECE_CELLS

    @property
    def _width(self) -> int:
        return max(1, len(self._cells), self._columns.fields)

    def add(self, row: Row) -> None:
        """Add a row."""
        rows = len(self.numbers)
        for column, cell in row.cells.items():
            cells = self._cells.get(column)
            if cells is None:
                cells = self._cells[column] = []
            if len(cells) < rows:
                cells += [None] * (rows - len(cells))
            cells.append(cell)
        self.numbers.append(row.number)
        self._size += row.size

    def piece(self, last: int) -> Piece:
        """Return the rows, which follow row ``last``."""
        rows = len(self.numbers)
        arrays, names = [pa.array(self.numbers, pa.int64())], [NUMBERS]
        empty = pa.nulls(rows, pa.string())
        for column in sorted(self._always | self._cells.keys()):
            cells = self._cells.get(column)
            if cells is not None:
                cells += [None] * (rows - len(cells))
            arrays.append(empty if cells is None else pa.array(cells, pa.string()))
            names.append(self._columns.name(column))
        first = self.numbers[0]
        numbers_of = {name: column for column, name in self._columns.names.items()}
        return Piece(
            b"",
            NO_OFFSET,
            cells=rows * self._width,
            skipped=first - last - 1,
            lines=self.numbers[-1] - first + 1,
            context=SheetHeader(self._columns.texts, numbers_of),
            rows=pa.RecordBatch.from_arrays(arrays, names),
        )


def _unnamed(column: int, taken: AbstractSet[str]) -> str:
    """Return the name of a column without one in the header, whose names are ``taken``."""
    name = f"column_{column_letters(column)}"
    while name in taken:
        name += "_"
    return name

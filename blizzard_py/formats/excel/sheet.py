"""The rows of a sheet, in order, within an address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from blizzard_core.limits import EXCEL_CELLS, EXCEL_ROW_BYTES
from blizzard_core.settings.format_options import (
    LAST_COLUMN,
    LAST_ROW,
    DataAddress,
    column_number,
)
from blizzard_py.formats.excel.archive import Archive
from blizzard_py.formats.excel.cells import (
    ERROR,
    LITERAL,
    MOMENT,
    NO_VALUE,
    TEXT,
    moment_cell,
    number_cell,
    unescaped,
)
from blizzard_py.formats.excel.elements import Handler, full_names, walk
from blizzard_py.formats.excel.workbook import SharedTexts, Sheet, Workbook
from blizzard_py.lines.failure import FileFailed, bounded

_LETTERS = re.compile(r"[A-Za-z]{1,3}")
_NAMES = full_names("row", "c", "v", "f", "is", "t", "rPh")
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_BOOLEANS = {"1": "true", "true": "true", "0": "false", "false": "false"}
_NO_RESULT = f"{NO_VALUE}a formula without a stored result; open the file in Excel and save it"
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its number in the sheet, and its cells that are not empty, by column.

    ``size`` counts the characters. There are no cells beyond a limit.
    """

    number: int
    cells: dict[int, str]
    size: int

    @property
    def is_blank(self) -> bool:
        """True if no cell shows anything."""
        return not self.size and all(cell == TEXT for cell in self.cells.values())


def sheet_rows(
    archive: Archive, workbook: Workbook, sheet: Sheet, address: DataAddress
) -> Iterator[Row]:
    """Yield the rows with cells, to the end of the sheet.

    A text that several cells share is copied row by row, since a small block may name a large one
    many times. Raises `FileFailed` for damage, and for too many cells or copies.
    """
    handler = _SheetPart(workbook, address)
    for _ in walk(sheet.part, archive.blocks(sheet.part), handler):
        for row in handler.rows:
            yield _with_texts(row, workbook.texts, archive)
        handler.rows.clear()


@dataclass(frozen=True, slots=True)
class _ReadRow:
    """A row of the XML; a number among ``cells`` is that of a shared text.

    ``size`` counts the characters of the others.
    """

    number: int
    cells: dict[int, str | int]
    size: int


def _with_texts(row: _ReadRow, texts: SharedTexts, archive: Archive) -> Row:
    """Return the row with copies of its shared texts. Raises `FileFailed` for too many."""
    copied = sum(texts.size(cell) for cell in row.cells.values() if isinstance(cell, int))
    archive.count_unpacked(copied)
    if row.size + copied > EXCEL_ROW_BYTES:
        return Row(row.number, {}, row.size + copied)
    cells = {
        column: cell if isinstance(cell, str) else TEXT + texts[cell]
        for column, cell in row.cells.items()
    }
    return Row(row.number, cells, row.size + copied)


class _SheetPart(Handler):
    """The consumer of a sheet's XML; the finished rows of a block gather in ``rows``.

    Its methods are called several times for each cell, so they do little.
    """

    def __init__(self, workbook: Workbook, address: DataAddress) -> None:
        self.rows: list[_ReadRow] = []
        self._workbook = workbook
        self._address = address
        self._row = 0  # the number of the open row, or of the last
        self._row_text = ""
        self._column = 0
        self._columns: dict[str, int] = {}  # by letters
        self._moments: dict[str, str] = {}  # by the number of a style
        self._seen: set[int] = set()
        self._cells: dict[int, str | int] = {}
        self._size = 0
        self._count = 0
        self._in_row = self._in_cell = self._is_aloud = False
        self._type = ""
        self._style = ""
        self._has_formula = self._has_value = False
        self._takes = False  # text belongs to the cell
        self._texts: list[str] = []  # its parts
        self._length = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        local = _NAMES.get(name)
        if local == "c":
            self._open_cell(attributes)
        elif local == "row":
            self._open_row(attributes.get("r"))
        elif not self._in_cell:
            return
        elif local in {"v", "is"}:
            if self._has_value:
                raise _damaged(f"a cell with two values in row {self._row}")
            self._takes = self._has_value = local == "v"
        elif local == "f":
            self._has_formula = True
        elif local == "rPh":
            self._is_aloud = True
        elif local == "t" and not self._is_aloud:
            self._takes = self._has_value = True

    def text(self, text: str) -> None:
        if self._takes:
            self._texts.append(text)
            self._length += len(text)
            if self._length > EXCEL_ROW_BYTES:
                self._size += self._length
                self._drop_text()

    def end(self, name: str) -> None:
        self.depth -= 1
        local = _NAMES.get(name)
        if local in {"v", "t"}:
            self._takes = False
        elif local == "c":
            self._close_cell()
        elif local == "row":
            self._close_row()
        elif local == "rPh":
            self._is_aloud = False

    def _open_row(self, given: str | None) -> None:
        number = self._row + 1 if given is None else _integer(given)
        if self._in_row or not self._row < number <= LAST_ROW:
            raise _damaged(f"row {number} follows {self._row}")
        self._row, self._column, self._in_row = number, 0, True
        self._row_text = str(number)

    def _open_cell(self, attributes: dict[str, str]) -> None:
        if not self._in_row or self._in_cell:
            raise _damaged("a cell outside of a row")
        self._count += 1
        if self._count > EXCEL_CELLS:
            raise FileFailed(
                "parse", f"its sheet has more than {EXCEL_CELLS:,} cells; split it, or store CSV"
            )
        place = attributes.get("r")
        column = self._column + 1 if place is None else self._column_of(place)
        if column > LAST_COLUMN or column in self._seen:
            raise _damaged(f"a cell twice, or behind column {LAST_COLUMN:,}, in row {self._row}")
        self._column = column
        self._seen.add(column)
        self._in_cell = True
        self._type, self._style = attributes.get("t", "n"), attributes.get("s", "0")
        self._has_formula = self._has_value = False
        self._drop_text()

    def _drop_text(self) -> None:
        self._texts.clear()
        self._length = 0

    def _column_of(self, place: str) -> int:
        letters = place.removesuffix(self._row_text)
        column = self._columns.get(letters)
        if column is None:
            if letters == place or not _LETTERS.fullmatch(letters):
                shown = bounded(place, _SHOWN_CHARACTERS)
                raise _damaged(f"the cell {shown!r} in row {self._row}")
            column = self._columns[letters] = column_number(letters)
        return column

    def _close_cell(self) -> None:
        self._in_cell = self._takes = self._is_aloud = False
        address = self._address
        if (
            address.first_column <= self._column <= address.last_column
            and address.first_row <= self._row <= address.last_row
            and (cell := self._cell()) != ""
        ):
            if isinstance(cell, str):
                self._size += len(cell) - 1
            if self._size <= EXCEL_ROW_BYTES:
                self._cells[self._column] = cell

    def _close_row(self) -> None:
        self._in_row = False
        self._seen.clear()
        if self._cells or self._size:
            self.rows.append(_ReadRow(self._row, self._cells, self._size))
        self._cells, self._size = {}, 0

    def _cell(self) -> str | int:
        """Return the cell, or ``""`` for one without anything in it."""
        kind, text = self._type, "".join(self._texts)
        is_text = kind in {"str", "inlineStr"}
        found: str | int
        if self._has_formula and not text and not (is_text and self._has_value):
            found = _NO_RESULT
        elif is_text:
            found = TEXT + unescaped(text) if self._has_value else ""
        elif not text:
            found = ""
        elif kind == "s":
            found = self._shared(text)
        elif kind == "n":
            moment = self._moment()
            is_1904 = self._workbook.is_1904
            found = moment_cell(text, moment, is_1904=is_1904) if moment else number_cell(text)
        elif kind == "b" and text in _BOOLEANS:
            found = LITERAL + _BOOLEANS[text]
        elif kind in {"e", "d"}:
            found = (ERROR if kind == "e" else MOMENT) + text
        else:
            found = f"{NO_VALUE}a cell of the unknown type {bounded(kind, _SHOWN_CHARACTERS)!r}"
        return found

    def _shared(self, text: str) -> int:
        index, count = _integer(text), len(self._workbook.texts)
        if not 0 <= index < count:
            raise _damaged(f"text {index} of {count} in row {self._row}")
        return index

    def _moment(self) -> str:
        found = self._moments.get(self._style)
        if found is None:
            index, moments = _integer(self._style), self._workbook.moments
            if not 0 <= index < max(1, len(moments)):
                raise _damaged(f"style {index} of {len(moments)} in row {self._row}")
            found = self._moments[self._style] = moments[index] if moments else ""
        return found


def _integer(text: str) -> int:
    """Return a number of a row, text or style. Raises `ValueError`."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{bounded(text, _SHOWN_CHARACTERS)!r} is no whole number")
    return int(text)


def _damaged(problem: str) -> FileFailed:
    return FileFailed("parse", f"its sheet is damaged: {problem}")

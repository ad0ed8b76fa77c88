"""The table of a workbook: its sheet, the rows above its header, and whether it has one. Pure.

A title has fewer cells than the rows of the table. Whether the first full row is a header is told
by the kinds of its cells and of those below; all text is a header, as in delimited text. A first
sheet of notes, which have at most two columns of text, is passed over for one with a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_core.settings.format_options import column_letters, parse_address
from blizzard_core.settings.formats import ExcelOptions
from blizzard_py.commands.starter.heads import Recognized
from blizzard_py.formats.excel.cells import TEXT
from blizzard_py.formats.excel.sheet import Row

# The rows of a sheet that are looked at, and those that may stand above the table.
SAMPLE_ROWS = 200
_TITLE_ROWS = 10
_NOTE_COLUMNS = 2
Sheets = Mapping[str, Sequence[Row]]
_YEAR = re.compile(r"j(19|20)\d\d")


@dataclass(frozen=True, slots=True)
class _Table:
    """The number of the row at which a table begins, 0 for the first of the sheet."""

    start: int
    has_header: bool
    last_column: int


def recognize_workbooks(books: Mapping[str, Sheets]) -> Recognized:
    """Return the options for workbooks by their path, each by the first rows of its sheets."""
    name, notes, odd = _chosen_sheet(books)
    tables = {
        path: table
        for path, sheets in books.items()
        if path not in odd
        and (table := _table(sheets[name] if name else next(iter(sheets.values()), ()))) is not None
    }
    starts = {table.start for table in tables.values()}
    if len(starts) > 1:
        odd |= {
            path: f"its table begins in row {table.start}, unlike others; format.data_address would"
            " drop rows of the others"
            for path, table in tables.items()
            if table.start
        }
        tables = {path: table for path, table in tables.items() if path not in odd}
    has_header = not tables or any(table.has_header for table in tables.values())
    if has_header:
        odd |= {path: "it has no header" for path, each in tables.items() if not each.has_header}
    options: dict[str, Any] = {"type": "excel"}
    start = starts.pop() if len(starts) == 1 else 0
    cells = f"A{start}:XFD" if start else "A:XFD" if name else ""
    if cells:
        options["data_address"] = f"{_quoted(name)}!{cells}" if name else cells
    doubts = notes
    if not has_header:
        last = max(table.last_column for table in tables.values())
        columns = [f"column_{column_letters(number)}" for number in range(1, last + 1)]
        options |= {"header_rows": 0, "columns": columns}
        doubts += ("no header was found; if there is one, leave out header_rows and columns",)
    return Recognized(ExcelOptions.model_validate(options), doubts, odd_files=odd)


def _chosen_sheet(books: Mapping[str, Sheets]) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return the sheet to read, empty for the first one; remarks, and files that lack the sheet."""
    names = [_first_table(sheets) for sheets in books.values()]
    is_first = [
        name in {"", next(iter(sheets), "")}
        for name, sheets in zip(names, books.values(), strict=True)
    ]
    name = (
        ""
        if all(is_first)
        else Counter(
            name for name, first in zip(names, is_first, strict=True) if not first
        ).most_common(1)[0][0]
    )
    odd = {
        path: f"it has no sheet {name!r}"
        for path, sheets in books.items()
        if name and name not in sheets
    }
    for path, sheets in books.items():
        read = name or next(iter(sheets), "")
        others = [repr(each) for each, rows in sheets.items() if each != read and _table(rows)]
        if others and path not in odd:
            note = (
                f"only the sheet {read!r} of {path} is read, and not {', '.join(others)}; another"
                " sheet needs a source with its own data_address"
            )
            return name, (note,), odd
    return name, (), odd


def _first_table(sheets: Sheets) -> str:
    """Return the first sheet that has more than notes.

    Without any, it is the one with the most rows of two columns, or else the first not blank.
    """
    known = {name: rows for name, rows in sheets.items() if _table(rows) and _has_address(name)}
    tables = [name for name, rows in known.items() if not _has_notes(rows)]
    return next(iter(tables), "") or max(known, key=lambda name: _pairs(known[name]), default="")


def _has_address(sheet: str) -> bool:
    try:
        return parse_address(f"{_quoted(sheet)}!A:XFD").sheet == sheet
    except ValueError:
        return False


def _has_notes(rows: Sequence[Row]) -> bool:
    cells = [row.cells for row in rows if not row.is_blank]
    return all(
        len(each) <= _NOTE_COLUMNS and all(cell[0] == TEXT for cell in each.values())
        for each in cells
    )


def _pairs(rows: Sequence[Row]) -> int:
    """Return how many rows have two columns; none if others have one, as notes do."""
    widths = [len(row.cells) for row in rows if not row.is_blank]
    return len(widths) if set(widths) == {_NOTE_COLUMNS} else 0


def _quoted(sheet: str) -> str:
    return "'" + sheet.replace("'", "''") + "'"


def _table(rows: Sequence[Row]) -> _Table | None:
    """Return the table of a sheet; None for a sheet without a row."""
    filled = [row for row in rows if not row.is_blank]
    if not filled:
        return None
    width = max(Counter(len(row.cells) for row in filled).items(), key=lambda each: each[::-1])[0]
    full = (place for place, row in enumerate(filled) if len(row.cells) >= width)
    top = next(full, 0)
    if top > _TITLE_ROWS:
        top = 0
    has_header = _is_header(filled[top], filled[top + 1 :])
    if not has_header and top and _is_names(filled[top - 1], filled[top]):
        top, has_header = top - 1, True
    last = max(max(row.cells) for row in filled[top:])
    return _Table(filled[top].number if top else 0, has_header, last)


def _is_names(row: Row, below: Row) -> bool:
    """Return whether a shorter row right above the table names most of its columns."""
    is_near = row.number + 1 == below.number and 2 * len(row.cells) > len(below.cells)
    return is_near and all(cell[0] == TEXT for cell in row.cells.values())


def _is_header(row: Row, below: Sequence[Row]) -> bool:
    """Return whether a row names columns: it is of text, or of years above other values."""
    names = [(column, cell) for column, cell in row.cells.items() if cell[0] != TEXT]
    return all(
        _YEAR.fullmatch(cell)
        and any(not _YEAR.fullmatch(each.cells.get(column, cell)) for each in below)
        for column, cell in names
    )

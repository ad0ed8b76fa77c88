"""Addresses of tables in workbooks, as spreadsheets write them: `Orders!A3:F500`."""

from __future__ import annotations

import re
from dataclasses import dataclass

LAST_ROW = 1_048_576
LAST_COLUMN = 16_384
_CELL = r"\$?([A-Za-z]{1,3})(?:\$?([1-9]\d{0,6}))?"
_LETTERS = re.compile(r"[A-Za-z]{1,3}")
_RANGE = re.compile(rf"{_CELL}(?::{_CELL})?", re.ASCII)
_NO_NAME = re.compile(r"[:\\/?*\[\]]")


@dataclass(frozen=True, slots=True)
class DataAddress:
    """The part of a sheet that is read; rows and columns count from 1, both ends inclusive.

    Without a ``sheet`` it is the first visible one.
    """

    sheet: str = ""
    first_row: int = 1
    last_row: int = LAST_ROW
    first_column: int = 1
    last_column: int = LAST_COLUMN


def parse_address(text: str) -> DataAddress:
    """Return the address. Raises `ValueError` if the text is none."""
    sheet, has_range, cells = text.rpartition("!")
    if not has_range:
        sheet, cells = ("", text) if ":" in text else (text, "")
    if len(sheet) > 1 and sheet[0] == sheet[-1] == "'":
        sheet = sheet[1:-1].replace("''", "'")
    if _NO_NAME.search(sheet):
        raise ValueError(f"{sheet!r} is no name of a sheet")
    if not cells and not has_range:
        return DataAddress(sheet)
    match = _RANGE.fullmatch(cells)
    if match is None:
        raise ValueError(
            f"{cells!r} is no range of cells; write Sheet!A2:D500, Sheet!A2, Sheet!A:D or Sheet"
        )
    first, first_row, last, last_row = match.groups()
    found = DataAddress(
        sheet,
        int(first_row or 1),
        int(last_row or LAST_ROW),
        column_number(first),
        column_number(last) if last else LAST_COLUMN,
    )
    if found.last_row > LAST_ROW or found.last_column > LAST_COLUMN:
        raise ValueError(f"{cells!r} ends behind XFD{LAST_ROW}, the last cell of a sheet")
    if found.first_row > found.last_row or found.first_column > found.last_column:
        raise ValueError(f"{cells!r} ends before it begins")
    return found


def is_cell(text: str) -> bool:
    """Return whether a text is a cell with its row, such as `B2`."""
    match = _RANGE.fullmatch(text)
    return match is not None and match[2] is not None


def column_number(letters: str) -> int:
    """Return the number of a column, from 1 for A. Raises `ValueError` for other letters."""
    if not _LETTERS.fullmatch(letters):
        raise ValueError(f"{letters!r:.20} are no letters of a column, which are A to XFD")
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    """Return the letters of a column, from 1 for A. There are none for a smaller number."""
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters

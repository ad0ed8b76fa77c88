"""Cells and the header of a sheet in letters. Pure.

Numbers and truth values are JSON, texts are strings; other cells are objects that say what they
are: ``{"time": "2024-05-06"}``, ``{"error": "#DIV/0!"}``, ``{"no_value": "has no stored result"}``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_core.settings.format_options import column_letters, column_number
from blizzard_py.formats.excel.cells import ERROR, LITERAL, MOMENT, NO_VALUE, TEXT
from blizzard_py.formats.letters.header import SHEET, header_text
from blizzard_py.formats.letters.reading import Number

_KEYS = {MOMENT: "time", ERROR: "error", NO_VALUE: "no_value"}
_KINDS = {key: kind for kind, key in _KEYS.items()}
# Columns of the header that a letter names, beside those with a cell.
_HEADER_COLUMNS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class SheetHeader:
    """The columns of a sheet by their names: numbers, and the header's texts; None without one."""

    texts: Mapping[int, str] | None
    numbers: Mapping[str, int]

    def letter_header(self, names: Collection[str]) -> bytes:
        """Return the header of letters with these columns.

        It has each column's letters and its text in the header, if there is one.
        """
        texts = self.texts
        found = {
            name: [column_letters(number), None if texts is None else texts.get(number)]
            for name, number in self.numbers.items()
            if name in names or len(self.numbers) <= _HEADER_COLUMNS
        }
        return header_text(SHEET, {"has_header": texts is not None, "columns": found})


def cells_in(
    header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, str] | None, list[dict[int, str]]]:
    """Return the header's texts and the rows' cells, by column.

    Raises `ValueError` for what is no letter of a sheet.
    """
    try:
        columns = {
            name: (column_number(at), text) for name, (at, text) in header["columns"].items()
        }
        texts = {at: text for at, text in columns.values() if text is not None}
        cells = [{columns[name][0]: _cell(value) for name, value in row.items()} for row in rows]
    except (KeyError, TypeError) as error:
        raise ValueError(f"is no row of a sheet: {error!r}") from error
    return (texts if header.get("has_header") else None), cells


def cell_text(cell: str) -> str:
    """Return a cell as JSON."""
    kind, text = cell[0], cell[1:]
    if kind == LITERAL:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if kind == TEXT else f'{{"{_KEYS[kind]}": {quoted}}}'


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"{LITERAL}{'true' if value else 'false'}"
    if isinstance(value, dict):
        [(key, text)] = value.items()
        if not isinstance(text, str):
            raise TypeError(text)
        return f"{_KINDS[key]}{text}"
    if not isinstance(value, str):
        raise TypeError(value)
    return f"{LITERAL if isinstance(value, Number) else TEXT}{value}"

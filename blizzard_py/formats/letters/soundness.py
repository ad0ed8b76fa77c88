"""Checks of the headers of letters: whoever may write letters may write any. Pure.

They are made once, where a header is read, and the readers of letters rely on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import pyarrow as pa

from blizzard_core.limits import FOOTER_LEVELS, LETTER_COLUMNS
from blizzard_core.settings.format_options import LAST_COLUMN, column_number
from blizzard_core.table.extent import children
from blizzard_py.formats.letters.types import type_of
from blizzard_py.formats.nested_arrays import leaf_types

Members = Mapping[str, Any]
# What a file says of its old dates; see `formats.columnar.calendars`.
Calendar = Literal["gregorian", "julian", "unknown"]
_SHOWN_CHARACTERS = 100
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")


def values_per_row(kind: str, members: Members) -> int:
    """Return how many values a row of letters with this header may have.

    Raises `ValueError` for a header that is not sound.
    """
    try:
        return _CHECKS[kind](members)
    except RecursionError as error:
        raise ValueError("is nested too deep") from error


def _rows(members: Members) -> int:
    columns = _object(members, "columns")
    leaves = {name: _leaves(name, text) for name, text in columns.items()}
    width = sum(map(len, leaves.values()))
    _check(width <= LETTER_COLUMNS, f"has more than {LETTER_COLUMNS:,} columns")
    for name, words in _of_leaves(members, "calendars", leaves):
        _check(all(word in _CALENDARS for word in words), "an unknown calendar", name)
    for name, flags in _of_leaves(members, "int96", leaves):
        are_texts = all(
            isinstance(flag, bool) and (not flag or pa.types.is_string(kind))
            for flag, kind in zip(flags, leaves[name], strict=True)
        )
        _check(are_texts, "flags of INT96 for other parts than texts", name)
    _check_unread(members.get("unread", []), columns)
    return width


def _leaves(name: str, text: Any) -> Sequence[pa.DataType]:
    _check(_is_name(name), "a name that is no text", name)
    try:
        kind = type_of(text)
    except (LookupError, TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"has no type of column {name!r:.{_SHOWN_CHARACTERS}}") from error
    _check(_levels(kind) <= FOOTER_LEVELS, f"more than {FOOTER_LEVELS} levels", name)
    return list(leaf_types(kind))


def _levels(kind: pa.DataType) -> int:
    return 1 + max(map(_levels, children(kind)), default=0)


def _of_leaves(
    members: Members, key: str, leaves: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield what is told of each column's leaves."""
    for name, told in _object(members, key, {}).items():
        fits = name in leaves and isinstance(told, list) and len(told) == len(leaves[name])
        _check(fits, f"{key} for other parts than it has", name)
        yield name, told


def _check_unread(unread: Any, columns: Mapping[str, Any]) -> None:
    if unread is True:
        return
    are_others = (
        isinstance(unread, list)
        and len(unread) <= LETTER_COLUMNS
        and all(_is_name(name) and name not in columns for name in unread)
    )
    _check(are_others, "has unread columns that are none")


def _sheet(members: Members) -> int:
    columns = _object(members, "columns")
    _check(isinstance(members.get("has_header"), bool), "does not say whether there is a header")
    numbers = set()
    for name, place in columns.items():
        _check(bool(name) and _is_name(name), "a name that is no text", name)
        match place:
            case [str() as letters, None | str() as text]:
                numbers.add(_number(name, letters))
                has_text = text is None or (text != "" and _is_name(text))
                _check(has_text, "a cell of the header that is no text", name)
            case _:
                raise ValueError(f"has no place of column {name!r:.{_SHOWN_CHARACTERS}}")
    _check(len(numbers) == len(columns), "has two columns at one place")
    return len(columns)


def _number(name: str, letters: str) -> int:
    try:
        number = column_number(letters)
    except ValueError:
        number = 0
    _check(0 < number <= LAST_COLUMN, "a place that no sheet has", name)
    return number


def _text(members: Members) -> int:
    around = members.get("around")
    # Bytes that are no text are halves of pairs here; see `text_header`.
    is_text = isinstance(around, str) and _is_name(_ESCAPED_BYTES.sub("", around))
    _check(is_text, "has no text around its records")
    return 0


def _object(members: Members, key: str, default: Any = None) -> Mapping[str, Any]:
    found = members.get(key, default)
    if not isinstance(found, dict):
        raise ValueError(f"has no {key!r}")  # noqa: TRY004  # of foreign text, not of an argument
    return found


def _is_name(text: object) -> bool:
    """Return whether this is text that UTF-8 has: no half of a pair."""
    return isinstance(text, str) and text.encode("utf-8", "ignore").decode() == text


def _check(holds: bool, fault: str, column: str = "") -> None:
    if not holds:
        where = f"has for column {column!r:.{_SHOWN_CHARACTERS}} " if column else ""
        raise ValueError(f"{where}{fault}")


_CALENDARS: tuple[str, ...] = get_args(Calendar)
_CHECKS: Mapping[str, Callable[[Members], int]] = {
    "rows": _rows,
    "sheet": _sheet,
    "text": _text,
    "refused": lambda _members: 0,
}

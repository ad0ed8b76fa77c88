"""Settings of keyed tables: the current row of each key, derived from a table of changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_NAME = r"(?P<column>[^\W\d]\w*|`[^`]+`)"
_TEXT = r"'(?:[^']|'')*'"
_VALUE = rf"(?:{_TEXT}|-?\d+)"
_IS = re.compile(rf"{_NAME}(?:\s+IS\s+(?P<negated>NOT\s+)?NULL)?", re.IGNORECASE)
_EQUALS = re.compile(rf"{_NAME}\s*=\s*(?P<values>{_VALUE})")
_IN = re.compile(
    rf"{_NAME}\s+IN\s*\(\s*(?P<values>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)", re.IGNORECASE
)
_EACH = re.compile(_VALUE)


@dataclass(frozen=True, slots=True)
class DeleteCondition:
    """The condition that makes a change a delete: one column, and what it must be.

    ``values`` are those of the kind ``in``; the others have none.
    """

    column: str
    kind: Literal["in", "null", "not_null", "true"]
    values: tuple[str, ...] | tuple[int, ...] = ()


def parse_condition(text: str) -> DeleteCondition:
    """Parse `op = 'd'`, `op IN ('d', 't')`, `x IS NULL`, `x IS NOT NULL` or a boolean column.

    Raises `ValueError`.
    """
    stripped = text.strip()
    found = _EQUALS.fullmatch(stripped) or _IN.fullmatch(stripped)
    if found is not None:
        return DeleteCondition(_plain(found["column"]), "in", _values(found["values"]))
    found = _IS.fullmatch(stripped)
    if found is None:
        raise ValueError(
            "must be a condition on one column: op = 'd', op IN ('d', 't'), deleted_at IS NOT"
            " NULL, x IS NULL, or the name of a boolean column"
        )
    if not stripped.upper().endswith("NULL") or found.end("column") == len(stripped):
        return DeleteCondition(_plain(found["column"]), "true")
    return DeleteCondition(_plain(found["column"]), "not_null" if found["negated"] else "null")


def _plain(name: str) -> str:
    return name.strip("`")


def _values(text: str) -> tuple[str, ...] | tuple[int, ...]:
    found = _EACH.findall(text)
    texts = tuple(each[1:-1].replace("''", "'") for each in found if each.startswith("'"))
    numbers = tuple(int(each) for each in found if not each.startswith("'"))
    if texts and numbers:
        raise ValueError("compares one column with text and with numbers")
    return texts or numbers

"""SQLite's types, which belong to values and not to columns.

ADBC takes a column's type from its first rows and fails if a later value has another type. A
cast turns text into 0. So each column is cast to the storage class that its declared field needs.
One more column, `OTHER_CLASS_COLUMN`, holds the values of other storage classes as JSON, by the
position of their column; it is ``''`` in rows without any. The reader puts these values back
where the cast has lost them. An additional first row fixes the types of all columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from blizzard_core.settings.schema import FieldType, decimal_digits
from blizzard_py.connections.protocol import ColumnKind, SourceColumn
from blizzard_py.job import FieldSpec

Storage = Literal["integer", "real", "text", "blob"]
OTHER_CLASS_COLUMN = "blizzard misfits"

_FIRST: dict[Storage, str] = {"integer": "0", "real": "0.0", "text": "''", "blob": "x''"}
_GROUP = 50  # a function takes 127 arguments
_DIGITS = re.compile(r"(?:decimal|numeric)\s*(\(.*\))", re.IGNORECASE)


# The first of these words that a declared type contains decides, as in SQLite itself.
_WORDS: Sequence[tuple[str, ColumnKind, FieldType]] = (
    ("INT", "number", "int64"),
    ("CHAR", "text", "string"),
    ("CLOB", "text", "string"),
    ("TEXT", "text", "string"),
    ("JSON", "text", "string"),
    ("BLOB", "other", "binary"),
    ("REAL", "number", "float64"),
    ("FLOA", "number", "float64"),
    ("DOUB", "number", "float64"),
    ("BOOL", "number", "boolean"),
    ("TIME", "time", "timestamp"),
    ("DATE", "date", "date"),
)


def column(name: str, declared: str, *, nullable: bool) -> SourceColumn:
    """Return the column by its declared type."""
    upper = declared.upper()
    for word, kind, held in _WORDS:
        if word in upper:
            return SourceColumn(name, declared, kind, nullable, FieldSpec(name, held, nullable))
    if not declared:
        return SourceColumn(name, "any", "other", nullable, FieldSpec(name, "string", nullable))
    return SourceColumn(name, declared, "number", nullable, _exact(name, upper, nullable=nullable))


def _exact(name: str, word: str, *, nullable: bool) -> FieldSpec:
    found = _DIGITS.match(word)
    if found:
        try:
            precision, scale = decimal_digits(f"decimal{found[1]}")
        except ValueError:  # more digits than any decimal has
            return FieldSpec(name, "string", nullable)
        return FieldSpec(name, "decimal", nullable, (), precision, scale)
    return FieldSpec(name, "string", nullable)


def storage(field: FieldSpec) -> Storage:
    """Return the storage class for the values of a field."""
    if field.type in ("int32", "int64", "boolean"):
        return "integer"
    if field.type == "timestamp" and field.unit != "iso":
        return "integer"
    if field.type in ("float32", "float64"):
        return "real"
    return "blob" if field.type == "binary" else "text"


def first(kind: Storage) -> str:
    """Return the value of the additional first row."""
    return _FIRST[kind]


def cast_to(quoted: str, kind: Storage) -> str:
    """Return the cast to a storage class; `OTHER_CLASS_COLUMN` holds values of other classes."""
    return f"CAST({quoted} AS {kind.upper()})"


def _has_other_class(quoted: str, kind: Storage) -> str:
    """Return the condition that a value is of another class; not true for null.

    Values of any class compare: numbers lie below all text, text below all blobs. That costs half
    of a call of ``typeof``.
    """
    match kind:
        case "integer":
            return f"typeof({quoted}) NOT IN ('integer', 'null')"
        case "real":
            return f"{quoted} >= ''"
        case "blob":
            return f"{quoted} < ''"
        case "text":
            return f"{quoted} >= x''"


def other_class_values(columns: Sequence[tuple[str, Storage]]) -> str:
    """Return the expression for a row's values of other classes."""
    if not columns:
        return "''"
    any_of = _balanced([_has_other_class(quoted, kind) for quoted, kind in columns], "({} OR {})")
    cases = [
        f"'{place}', CASE WHEN {_has_other_class(quoted, kind)} THEN {_as_sql_text(quoted)} END"
        for place, (quoted, kind) in enumerate(columns)
    ]
    groups = [
        f"json_object({', '.join(cases[start : start + _GROUP])})"
        for start in range(0, len(cases), _GROUP)
    ]
    # An empty patch removes the nulls.
    merged = _balanced([f"json_patch('{{}}', {group})" for group in groups], "json_patch({}, {})")
    return f"CASE WHEN {any_of} THEN {merged} ELSE '' END"


def _as_sql_text(quoted: str) -> str:
    return (
        f"CASE typeof({quoted}) WHEN 'blob' THEN 'X''' || hex({quoted}) || ''''"
        f" WHEN 'real' THEN printf('%!.17g', {quoted}) ELSE CAST({quoted} AS TEXT) END"
    )


def _balanced(parts: Sequence[str], pair: str) -> str:
    """Return all parts joined in pairs of pairs: SQLite allows a depth of 1,000 only."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return pair.format(_balanced(parts[:middle], pair), _balanced(parts[middle:], pair))

"""Columns inferred from a sample of records. Pure.

| values seen of a field | its type |
|---|---|
| none but null | ``string`` (see below) |
| booleans | ``boolean`` |
| whole numbers of 64 bits | ``int64`` (never ``int32``: the sample may be small) |
| whole numbers, some larger, up to 38 digits | ``decimal(38,0)``, which keeps every digit |
| numbers, some with a fraction or an exponent | ``float64`` |
| text | ``string``; ``timestamp`` if asked for and all of it is ISO 8601 |
| objects | ``struct``; ``json`` without a common form: no or too many names, or odd ones |
| arrays | ``list`` of whatever the elements have in common |
| anything else: a conflict | ``string`` with ``coerce: true``, which takes all of it |

Hostile lines cannot make the schema grow without limit. Columns beyond `INFERRED_COLUMNS` are left
out. Objects and arrays nested deeper than `INFERRED_LEVELS` are ``json``, and so is a field that
would give a row more than `INFERRED_VALUES`.

Without coercion a conflict raises `SchemaConflict`, and a field that is always null is a plain
string. With coercion such a field takes any value, since its type is unknown.

A type that files name counts more than their values, which JSON shows with fewer types. Types of
several files are united (`file_types.united`), or they are a conflict.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from blizzard_core.errors import SchemaConflict
from blizzard_core.limits import (
    INFERRED_COLUMNS,
    INFERRED_LEVELS,
    INFERRED_VALUES,
    STRUCT_FIELDS,
)
from blizzard_core.settings.schema import DECIMAL_DIGITS, FieldType, column_name
from blizzard_py.job import FieldSpec
from blizzard_py.schema.column_names import unique_columns
from blizzard_py.schema.field_specs import field_document
from blizzard_py.schema.file_types import united

# Exactly forms that the reader takes for a timestamp.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.(?:\d{3}|\d{6}))?)?(?:Z|[+-]\d\d:\d\d)?"
)

_Kind = Literal[
    "boolean", "integer", "decimal", "digits", "float", "timestamp", "text", "object", "array"
]
_KINDS: dict[type, _Kind] = {
    bool: "boolean",
    int: "integer",
    float: "float",
    dict: "object",
    list: "array",
}
_NUMBERS: frozenset[_Kind] = frozenset({"integer", "decimal", "digits", "float"})
# The first type that takes all kinds seen without change is the one.
_COMMON: tuple[tuple[frozenset[_Kind], FieldType], ...] = (
    (frozenset({"boolean"}), "boolean"),
    (frozenset({"integer"}), "int64"),
    (frozenset({"integer", "decimal"}), "decimal"),
    (frozenset({"integer", "decimal", "float"}), "float64"),
    (frozenset({"timestamp"}), "timestamp"),
    (frozenset({"timestamp", "text"}), "string"),
)
_TOLD = {"digits": "integer of more than 38 digits", "decimal": "integer beyond 64 bits"}


@dataclass(frozen=True, slots=True)
class Rules:
    """``taken``: lower-case names that are columns already, declared or from the path.

    ``read`` are names in the records that other columns are filled from.
    """

    coerce_conflicts: bool = True
    timestamps: bool = False
    taken: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Inferred:
    """Fields in the order of their first appearance, and why others are none of them.

    ``nulls`` are paths that never had a value, so that their types say nothing. ``problem`` is why
    the first file that cannot be read has no records, or not all.
    """

    fields: tuple[FieldSpec, ...]
    left_out: dict[str, str]
    records: int
    skipped_lines: int
    nulls: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(slots=True)
class _Seen:
    """The kinds of values of one field, each with the place of its first value.

    ``named`` are the types that files name, each with the first file; None is of files in which
    only the values have one.
    """

    kinds: dict[_Kind, str] = field(default_factory=dict)
    named: dict[FieldSpec | None, str] = field(default_factory=dict)
    members: dict[str, _Seen] = field(default_factory=dict)
    elements: _Seen | None = None

    def add(self, value: Any, where: str, depth: int = 1) -> bool:
        """Take a value. Return whether it added a kind."""
        if value is None:
            return False
        kind = _kind(value)
        is_new = kind not in self.kinds
        self.kinds.setdefault(kind, where)
        if depth > INFERRED_LEVELS:
            return is_new
        if kind == "object":
            for name, member in value.items():
                if name not in self.members and len(self.members) > STRUCT_FIELDS:
                    continue  # too many already; memory stays bounded
                is_new |= name not in self.members
                is_new |= self.members.setdefault(name, _Seen()).add(member, where, depth + 1)
        elif kind == "array":
            self.elements = self.elements or _Seen()
            for element in value:
                is_new |= self.elements.add(element, where, depth + 1)
        return is_new


class NewKinds:
    """A filter for the few values that an `Inference` learns something from."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def adds(self, name: str, value: Any) -> bool:
        """Return whether this value of the field says more than those before it."""
        return self._seen.setdefault(name, _Seen()).add(value, "")


class Inference:
    """Inference of columns from lines."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._columns: dict[str, _Seen] = {}
        self._beyond: set[str] = set()
        self._nulls: set[str] = set()
        self._records = 0
        self._skipped = 0
        self._problem = ""

    def add(self, line: bytes, where: str) -> None:
        """Add a line of a sample, or skip it if it is no record; ``where`` names it in errors."""
        if not line.strip():
            return
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            self._skipped += 1  # it will be a bad record when its file is ingested
            return
        self._records += 1
        for name, value in record.items():
            if (seen := self._seen(name)) is not None:
                seen.add(value, where)

    def add_problem(self, problem: str) -> None:
        """Add why a file cannot be read; the first one is kept."""
        self._problem = self._problem or problem

    def add_columns(self, columns: Mapping[str, FieldSpec | None], where: str) -> None:
        """Add the columns that a file names, as `file_types.named_columns` returns them."""
        for name, spec in columns.items():
            if (seen := self._seen(name)) is not None:
                seen.named.setdefault(spec, where)

    def _seen(self, name: str) -> _Seen | None:
        """Return what is known of a column; None if there are too many, or it is no new one."""
        if name.lower() in self._rules.taken or name in self._rules.read:
            return None
        if name in self._columns or len(self._columns) < INFERRED_COLUMNS:
            return self._columns.setdefault(name, _Seen())
        if len(self._beyond) < INFERRED_COLUMNS:  # at most so many are reported
            self._beyond.add(name)
        return None

    def result(self) -> Inferred:
        """Return the columns so far. Raises `SchemaConflict`."""
        fields: list[FieldSpec] = []
        left_out = dict.fromkeys(
            sorted(self._beyond),
            f"it came after {INFERRED_COLUMNS:,} others; declare what is wanted under"
            " schema.fields",
        )
        columns = unique_columns(self._columns)
        values = 0
        for name, seen in self._columns.items():
            column = columns.get(name, "")
            if not column or column.lower() in self._rules.taken:
                left_out[name] = (
                    f"the column {column!r} has another source"
                    if column
                    else "a column cannot have this name"
                )
                continue
            found = self._column(name, seen)
            if values + _values(found) > INFERRED_VALUES and found.children:
                found = _spec(name, "json")
            values += _values(found)
            fields.append(_named(found, column))
        nulls = frozenset(self._nulls)
        counts = self._records, self._skipped
        return Inferred(tuple(fields), left_out, *counts, nulls, self._problem)

    def _column(self, name: str, seen: _Seen) -> FieldSpec:
        """Return a column for the types that files name, and for values without one."""
        types = {spec: where for spec, where in seen.named.items() if spec is not None}
        if not types:
            return self._field(name, seen, name)
        if None in seen.named and seen.kinds:
            types.setdefault(self._field(name, seen, name), seen.named[None])
        first, *others = types
        found: FieldSpec | None = first
        for other in others:
            found = united(found, other) if found else None
        if found is not None:
            return found
        named = (f"{field_document(spec)['type']} ({where})" for spec, where in types.items())
        return self._conflict(name, name, named)

    def _field(self, name: str, seen: _Seen, path: str) -> FieldSpec:
        kinds = seen.kinds.keys()
        if not kinds:
            self._nulls.add(path)
            return _spec(name, "string", coerce=self._rules.coerce_conflicts)
        if "digits" in kinds and kinds <= _NUMBERS:
            return _spec(name, "string", coerce=True)  # no number type has so many digits
        if kinds == {"object"}:
            return self._struct(name, seen, path)
        if kinds == {"array"}:
            return self._list(name, seen, path)
        for common, kind in _COMMON:
            if kinds <= common and (kind != "timestamp" or self._rules.timestamps):
                return _spec(name, kind, precision=DECIMAL_DIGITS if kind == "decimal" else 0)
        return self._conflict(
            name, path, (f"{_TOLD.get(k, k)} ({w})" for k, w in seen.kinds.items())
        )

    def _conflict(self, name: str, path: str, places: Iterator[str]) -> FieldSpec:
        """Return a column for values of several types. Raises `SchemaConflict`."""
        if self._rules.coerce_conflicts:
            return _spec(name, "string", coerce=True)
        raise SchemaConflict(
            f"field {path!r} has values of different types: {', '.join(places)}; declare it under"
            " schema.fields (type: json or coerce: true take anything), or set"
            " schema.advanced.coerce_conflicts_to_utf8: true"
        )

    def _list(self, name: str, seen: _Seen, path: str) -> FieldSpec:
        if seen.elements is None:
            return _spec(name, "json")  # too deep
        return _spec(name, "list", children=(self._field("element", seen.elements, f"{path}[]"),))

    def _struct(self, name: str, seen: _Seen, path: str) -> FieldSpec:
        names = unique_columns(seen.members)
        alike = {column_name(member).lower() for member in seen.members}
        if not 0 < len(seen.members) == len(names) == len(alike) <= STRUCT_FIELDS:
            return _spec(name, "json")
        children = [
            _named(self._field(n, member, f"{path}.{n}"), names[n])
            for n, member in seen.members.items()
        ]
        return _spec(name, "struct", children=tuple(children))


def _spec(name: str, kind: FieldType, **more: Any) -> FieldSpec:
    return FieldSpec(name, kind, nullable=True, **more)


def _named(spec: FieldSpec, column: str) -> FieldSpec:
    """Return a column of another name than the records' field, if it needs one."""
    return spec if spec.name == column else replace(spec, name=column, source=spec.name)


def _kind(value: Any) -> _Kind:
    if isinstance(value, str):
        return "timestamp" if _is_timestamp(value) else "text"
    kind = _KINDS[type(value)]
    if kind == "integer" and not -(2**63) <= value < 2**63:
        return "decimal" if abs(value) < 10**DECIMAL_DIGITS else "digits"
    return kind


def _is_timestamp(text: str) -> bool:
    if _ISO.fullmatch(text) is None:
        return False
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment.astimezone(dt.UTC)  # raises if the time is outside of the calendar
    except (ValueError, OverflowError):
        return False
    return True


def _values(spec: FieldSpec) -> int:
    return sum(map(_values, spec.children)) if spec.children else 1

"""The values of work units: listed, written as text, or fields of a table's rows. Pure.

A unit's ``values`` are a dict, field → text. Its **name** identifies it in its state, in its rows
and on the command line. It is the value, or the values of several fields, joined with ``|`` (``%``
and ``|`` within them as ``%25`` and ``%7C``), or ``{}`` without values.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_core.text import json_value
from blizzard_py.slices.compare import shown

# The name of the only unit of a source without values.
LONE = "{}"


def unit_name(values: Mapping[str, Any]) -> str:
    """Return the name of the unit with these values. Raises `UnitError` for other than text."""
    if not values:
        return LONE
    texts = [_row_text(field, value) for field, value in values.items()]
    if len(texts) == 1:
        return texts[0]
    return "|".join(text.replace("%", "%25").replace("|", "%7C") for text in texts)


def values_named(name: str, fields: Sequence[str]) -> dict[str, str]:
    """Return the values of a unit with these ``fields`` by its name.

    The inverse of `unit_name`. Raises `UnitError` for a name of other fields.
    """
    if name == LONE and not fields:
        return {}
    texts = [name]
    if len(fields) > 1:
        texts = [text.replace("%7C", "|").replace("%25", "%") for text in name.split("|")]
    if len(texts) != len(fields):
        raise UnitError(f"{shown(name)} is no unit of {', '.join(fields) or 'one alone'}")
    return dict(zip(fields, texts, strict=True))


def unit_list(name: Any, units: Any) -> list[dict[str, str]]:
    """Return the units in a list, in text with commas or in JSON text: trimmed, unique, in order.

    They are values of the field ``name``, or objects that all have the same fields. Integers
    become text. ``null`` in text is a normal value.

    Raises `UnitError` for an empty list or value, and for unquoted text that YAML has converted
    (``no``, ``1.10``, nothing), because its text is lost.
    """
    if isinstance(units, str):
        given: list[Any] = _in_text(units)
    elif isinstance(units, Iterable) and not isinstance(units, Mapping | bytes):
        given = list(units)
    else:
        raise UnitError(f"{shown(units)} is neither a list of values nor text with commas")
    if not given:
        raise UnitError("the list of values is empty; without values leave it out")
    objects = [isinstance(one, Mapping) for one in given]
    if all(objects):
        found = [_object(one) for one in given]
        fields = set(found[0])
        odd = next((one for one in found if set(one) != fields), None)
        if odd is not None:
            raise UnitError(f"units have the same fields, {sorted(fields)}: {shown(odd)}")
        found = [{field: one[field] for field in found[0]} for one in found]
    elif any(objects):
        raise UnitError("units are values or objects, not both")
    else:
        field = _field(name)
        found = [{field: _listed(field, one)} for one in given]
    return _each_once(found)


def _in_text(text: str) -> list[Any]:
    """Return what a text lists: JSON where it begins as such, else between commas."""
    if not text.lstrip().startswith(("[", "{")):
        return text.split(",")
    try:
        found = json_value(text)
    except ValueError as error:
        raise UnitError(
            f"{shown(text)} begins as JSON and is none ({error}); mend it, or give a YAML list for"
            " values that begin with a bracket"
        ) from error
    if not isinstance(found, list):
        raise UnitError(f"{shown(text)} is JSON, and no list: put [ ] around it")
    return found


def units_from(
    rows: Iterable[Mapping[str, Any]], fields: Any, filters: Mapping[str, Any] | None = None
) -> list[dict[str, str]]:
    """Return the units in rows: ``fields`` of the rows whose whole values match every filter.

    Filters are field → regular expression. Null and missing fields match no filter. Units are
    unique, in the order of the rows. Values become text and are not trimmed. Without rows the
    result is empty.

    Raises `UnitError` for invalid fields and filters. In a matching row a field may not be null or
    empty, and must be text, number, boolean or time.
    """
    names = fields.split(",") if isinstance(fields, str) else fields
    if not isinstance(names, list | tuple) or not names:
        raise UnitError(f"{shown(fields)} is no list of fields")
    chosen = [_field(one) for one in names]
    if len(set(chosen)) < len(chosen):
        raise UnitError(f"a field is named twice: {shown(chosen)}")
    patterns = _patterns(filters)
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise UnitError(f"{shown(rows)} are no rows")
    found = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise UnitError(f"{shown(row)} is no row: it has no fields")
        if all(_matches(pattern, field, row.get(field)) for field, pattern in patterns.items()):
            found.append({field: _row_text(field, row.get(field)) for field in chosen})
    return _each_once(found)


def look_alikes(units: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return pairs of unit names that differ only in case, accents or trailing blanks.

    The collations of many databases treat such values as equal.
    """
    first: dict[tuple[str, ...], str] = {}
    pairs = []
    for one in units:
        name = unit_name(one)
        known = first.setdefault(tuple(map(_folded, one.values())), name)
        if known != name:
            pairs.append((known, name))
    return pairs


def _folded(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(one for one in letters if not unicodedata.combining(one)).rstrip(" ")


def check_distinct(units: Iterable[Mapping[str, str]]) -> None:
    """Raise `UnitError` with the names of units that a collation may take for one another."""
    pairs = look_alikes(units)
    if pairs:
        named = ", ".join(f"{shown(one)} and {shown(other)}" for one, other in pairs[:3])
        raise UnitError(
            f"{named} may be the same for the database, and all their rows would come twice: say"
            " in the statement how it compares, such as `= {unit.NAME} COLLATE …` with a binary"
            " collation, or leave one out"
        )


def _each_once(units: list[dict[str, str]]) -> list[dict[str, str]]:
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for one in units:
        found.setdefault(tuple(one.values()), one)
    return list(found.values())


def _field(name: Any) -> str:
    text = name.strip() if isinstance(name, str) else ""
    if not text:
        raise UnitError(f"{shown(name)} names no field of a unit")
    return text


def _object(one: Mapping[Any, Any]) -> dict[str, str]:
    if not one:
        raise UnitError("a unit is an object without fields")
    return {_field(field): _listed(str(field), value) for field, value in one.items()}


def _listed(field: str, value: Any) -> str:
    """Return a value as it stands in a configuration."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UnitError(f"{field}: {shown(value)} is no text any more; put it in quotes")
    return _text(field, value).strip()


def _row_text(field: str, value: Any) -> str:
    """Return a value as it stands in a row."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str | int | float | Decimal):
        what = "is null; a filter can leave such rows out" if value is None else "cannot be a unit"
        raise UnitError(f"{field}: {shown(value)} {what}")
    return _text(field, value)


def _text(field: str, value: Any) -> str:
    try:
        text = str(value)
        text.encode()
    except ValueError as error:  # half a character, or thousands of digits
        raise UnitError(f"{field}: {shown(value)} cannot be written as text") from error
    if not text.strip():
        raise UnitError(f"{field}: a unit's value is empty")
    return text


def _patterns(filters: Any) -> dict[str, re.Pattern[str]]:
    if not isinstance(filters, Mapping | None):
        raise UnitError(f"{shown(filters)} are no filters: write field: pattern")
    try:
        return {_field(field): re.compile(pattern) for field, pattern in (filters or {}).items()}
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise UnitError(f"a filter of {shown(filters)} is no pattern: {error}") from error


def _matches(pattern: re.Pattern[str], field: str, value: Any) -> bool:
    if value is None:
        return False
    text = value if isinstance(value, str) else _row_text(field, value)
    return pattern.fullmatch(text) is not None

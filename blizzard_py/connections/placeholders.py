"""Placeholders of a work unit in a statement or request: ``{from}``, ``{to}``, ``{unit.NAME}``.

In SQL a placeholder becomes a literal of its type, so it may be where a value may be, and never
between quotes. In a request it becomes text, which is encoded in a path. A time may name its
format: ``{from:date}``. Dates and wall times are in the time's own zone, which is the zone of the
unit's range. Braces around anything else are kept between SQL's quotes, and refused elsewhere.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import quote

from blizzard_core.errors import SourceError, WatermarkError
from blizzard_py.connections.literals import literal
from blizzard_py.connections.sent_values import FORMAT_TICKS, param
from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.instants import stamp

# The values of placeholders by name: times and texts.
Values: TypeAlias = Mapping[str, datetime | str]

FROM, TO = "from", "to"
# The dialect of literals in filters of lakes.
LAKE = "lake"
FORMATS = ("iso", "date", "datetime", "datetime_ms", "timestamp", "timestamp_ms")
# In SQL they are literals of an instant, a date, or a time without a zone.
SQL_FORMATS = ("iso", "date", "datetime")
# The formats without a zone.
_WALLS = frozenset({"date", "datetime", "datetime_ms"})
# After a format: the last value before the time. Configurations cannot use it.
BEFORE = "!"
_FINEST = timedelta(microseconds=1)

_NAMED = re.compile(r"\{((?:from|to)(?::[^{}]*)?|unit\.[^{}]+)\}")
_ANY = re.compile(r"\{([A-Za-z_][\w.:-]*|unit\.[^{}]+)\}")
# Not an expression: text, quoted names, comments. Whether a backslash escapes a quote depends
# on the server and its settings, so both cases are checked.
_REST = r"|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$"
_ASIDES = tuple(
    re.compile(text + _REST, re.DOTALL) for text in (r"'(?:[^'\\]|\\.|'')*'", r"'(?:[^']|'')*'")
)
_HASHED = re.compile(r"#[^\n]*")


def unit_placeholder(name: str) -> str:
    """Return the placeholder's name of a unit's value in a statement or a request."""
    return f"unit.{name}"


def is_of_one(units: Sequence[Values]) -> bool:
    """Return whether all are of one unit with values, of whatever times."""
    values = [{name: text for name, text in one.items() if name not in {FROM, TO}} for one in units]
    return bool(values) and bool(values[0]) and all(one == values[0] for one in values)


def names_in(text: str) -> list[str]:
    """Return the placeholders in a text, without their formats."""
    return [found.partition(":")[0] for found in _NAMED.findall(text)]


def formats_in(text: str) -> list[tuple[str, str]]:
    """Return the ends of time in a text, each with its format, ``""`` for none."""
    found = (each.partition(":") for each in _NAMED.findall(text))
    return [(name, form) for name, _, form in found if name in {FROM, TO}]


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in parameters or a body, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from texts_in(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from texts_in(inner)


def problems_in_sql(text: str, known: Sequence[str], *, hashes: bool = False) -> Iterator[str]:
    """Yield problems of the placeholders in a query or a filter.

    ``hashes``: text after ``#`` is a comment.
    """
    aside = [found[0] for each in _ASIDES for found in each.finditer(text)]
    if hashes:
        aside += _HASHED.findall(text)
    for name in dict.fromkeys(name for part in aside for name in _NAMED.findall(part)):
        yield (
            f"{{{name}}} is between quotes or in a comment; it becomes a literal with its"
            " own quotes"
        )
    for name in dict.fromkeys(_ANY.findall(_ASIDES[0].sub(" ", text))):
        yield from _problem(name, known, SQL_FORMATS)


def problems_in_text(text: str, known: Sequence[str]) -> Iterator[str]:
    """Yield problems of the placeholders in a path, a parameter or a text of a body."""
    for found in dict.fromkeys(_ANY.findall(text)):
        yield from _problem(found, known, FORMATS)


def _problem(found: str, known: Sequence[str], formats: Sequence[str]) -> Iterator[str]:
    name, colon, form = found.partition(":")
    if colon and name in {FROM, TO} and form not in formats:
        yield f"{{{found}}}: unknown format {form!r}; known here: {', '.join(formats)}"
    else:
        yield from _unknown(name if name in {FROM, TO} else found, known)


def _unknown(name: str, known: Sequence[str]) -> Iterator[str]:
    if name not in known:
        there = ", ".join(f"{{{one}}}" for one in known)
        why = f"there are: {there}" if known else "placeholders are filled in for `units` only"
        yield f"{{{name}}} has no value; {why}"


def in_sql(text: str, values: Values, dialect: str) -> str:
    """Return a query or a filter with literals in place of its placeholders.

    Raises `SourceError` for a value that no literal can hold.
    """
    return _filled(text, values, lambda value, form: _literal(value, form, dialect))


def in_path(text: str, values: Values) -> str:
    """Return a path with its placeholders filled in, each within one segment.

    Raises `SourceError` for a value that would lead elsewhere.
    """
    found = _filled(text, values, lambda value, form: quote(_text(value, form), safe=""))
    odd = next((step for step in found.split("/") if step in {".", ".."}), None)
    if odd is not None and odd not in text.split("/"):
        raise SourceError(f"{odd!r} cannot be a part of a path; leave the value out")
    return found


def in_text(value: Any, values: Values) -> Any:
    """Return a parameter, or a body of any depth, with the placeholders in its texts filled in."""
    if isinstance(value, str):
        return _filled(value, values, _text)
    if isinstance(value, Mapping):
        return {in_text(key, values): in_text(inner, values) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [in_text(inner, values) for inner in value]
    return value


def _filled(text: str, values: Values, spelt: Callable[[datetime | str, str], str]) -> str:
    def put(found: re.Match[str]) -> str:
        name, _, form = found[1].partition(":") if found[1] not in values else (found[1], "", "")
        if name not in values:
            return found[0]
        return spelt(values[name], form)

    return _NAMED.sub(put, text)


def _text(value: datetime | str, form: str) -> str:
    if not isinstance(value, datetime):
        return value
    name = form.removesuffix(BEFORE)
    moment = lowest_wall(value, value.tzinfo or UTC) if name in _WALLS else value.astimezone(UTC)
    if form.endswith(BEFORE):
        moment -= FORMAT_TICKS.get(name, _FINEST)
        if not name:
            return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return param(moment, name) if name else stamp(moment)


def _literal(value: datetime | str, form: str, dialect: str) -> str:
    found = _literal_value(value, form) if isinstance(value, datetime) else value
    if dialect in {"sqlite", LAKE} and isinstance(found, datetime):
        # Times may be text there: the shortest form sorts correctly next to longer ones.
        return literal(_plain(found), dialect)
    try:
        return literal(found, dialect)
    except WatermarkError as error:
        raise SourceError(f"{error}; leave the value out") from error


def _literal_value(value: datetime, form: str) -> date:
    """Return the value of a literal: an instant in UTC, a date, or a time without a zone."""
    name = form.removesuffix(BEFORE)
    back = FORMAT_TICKS["date"] if name == "date" else _FINEST
    moment = lowest_wall(value, value.tzinfo or UTC) if name in _WALLS else value.astimezone(UTC)
    if form.endswith(BEFORE):
        moment -= back
    return moment.date() if name == "date" else moment


def _plain(value: datetime) -> str:
    naive = value.replace(tzinfo=None)
    if not (naive.hour or naive.minute or naive.second or naive.microsecond):
        return naive.date().isoformat()
    if naive.microsecond % 1000:
        return naive.isoformat(" ", "microseconds")
    return naive.isoformat(" ", "milliseconds" if naive.microsecond else "seconds")

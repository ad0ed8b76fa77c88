"""Times in the form in which a column of SQLite stores them.

They are compared as text, so a bound must have the form of the rows: ``T`` sorts above a space, and
a bound in the other form would skip a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.windows import last_full_tick

_DIGIT = re.compile(r"\d")
_FORM = re.compile(r"\d{4}-\d\d-\d\d(?:([ T])\d\d:\d\d:\d\d(?:\.(\d{1,6}))?(Z|\+00:00)?)?")


def is_time(text: str) -> bool:
    """Return whether it is a time or a date in a form that sorts as text like time."""
    return _FORM.fullmatch(text) is not None


def same_form(value: object, other: object) -> bool:
    """Return whether two stored times have one form, so that text sorts as time does."""
    mine, its = (
        _FORM.fullmatch(text) if isinstance(text, str) else None for text in (value, other)
    )
    return mine is not None and its is not None and _shape(mine) == _shape(its)


def unlike(values: Iterable[str]) -> tuple[str, ...]:
    """Return two values in different forms, if any: then text does not sort as time does."""
    known: dict[object, str] = {}
    for value in values:
        found = _FORM.fullmatch(value)
        known.setdefault(_shape(found) if found else _DIGIT.sub("0", value), value)
        if len(known) > 1:
            return tuple(known.values())
    return ()


def has_zone(text: str) -> bool:
    """Return whether a stored time has a zone, so that it is no local wall time."""
    found = _FORM.fullmatch(text)
    return found is not None and found[3] is not None


def _shape(found: re.Match[str]) -> tuple[str | None, bool, str | None]:
    return found[1], found[2] is not None, found[3]


def until(instant: datetime, like: str, zone: tzinfo = UTC) -> str:
    """Return the last time that is certainly below ``instant``, in the form of ``like``.

    A form without a zone has wall times of ``zone``.
    """
    found = _FORM.fullmatch(like)
    where = UTC if found is not None and found[3] else zone
    below = lowest_wall(instant, where) - timedelta(microseconds=1)
    if found is None or found[1] is None:
        return str(last_full_tick(below, "date"))
    digits = len(found[2] or "")
    value = last_full_tick(below, f"datetime({digits})")
    text: str = value.isoformat(found[1], "microseconds")
    return text[: 19 + (digits + 1 if digits else 0)] + (found[3] or "")

"""Times as a column of SQLite stores them.

They are compared as text, so a bound has to have the form of the rows: ``T`` sorts above a
space, and a bound in the other form would skip a day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from blizzard_py.columns.windows import last_full_tick

_FORM = re.compile(r"\d{4}-\d\d-\d\d(?:([ T])\d\d:\d\d:\d\d(?:\.(\d{1,6}))?(Z|\+00:00)?)?")


def is_time(text: str) -> bool:
    """Whether it is a time or a date in a form whose order as text is that of time."""
    return _FORM.fullmatch(text) is not None


def same_form(value: object, other: object) -> bool:
    """Whether two stored times are written alike, and so that text sorts as time does."""
    mine, its = (
        _FORM.fullmatch(text) if isinstance(text, str) else None for text in (value, other)
    )
    return mine is not None and its is not None and _shape(mine) == _shape(its)


def _shape(found: re.Match[str]) -> tuple[str | None, bool, str | None]:
    return found[1], found[2] is not None, found[3]


def until(instant: datetime, like: str) -> str:
    """The last time that is surely below ``instant``, in the form of ``like``."""
    below = instant.astimezone(UTC) - timedelta(microseconds=1)
    found = _FORM.fullmatch(like)
    if found is None or found[1] is None:
        return str(last_full_tick(below, "date"))
    digits = len(found[2] or "")
    value = last_full_tick(below, f"datetime({digits})").replace(tzinfo=None)
    text: str = value.isoformat(found[1], "microseconds")
    return text[: 19 + (digits + 1 if digits else 0)] + (found[3] or "")

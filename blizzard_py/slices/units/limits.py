"""Limits: units of a run, values that must be there."""

from __future__ import annotations

import re
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.slices.compare import shown

DEFAULT_LIMIT = 500
HIGHEST_LIMIT = 5000

_WHOLE = re.compile(r"[+-]?\d{1,9}", re.ASCII)


def limit(text: Any) -> int | None:
    """Return how many units a run executes at most: 500 for 0 and for nothing; None for -1.

    Raises `UnitError` above 5,000 and for what is no such number.
    """
    if text is None or (isinstance(text, str) and not text.strip()):
        return DEFAULT_LIMIT
    number = _int_of(text)
    if number is None or not -1 <= number <= HIGHEST_LIMIT:
        raise UnitError(
            f"{shown(text)} is no limit: up to {HIGHEST_LIMIT:,} units a run, 0 for"
            f" {DEFAULT_LIMIT}, -1 for no limit"
        )
    return None if number == -1 else number or DEFAULT_LIMIT


def enough(count: int | None, least: Any) -> None:
    """Raise `UnitError` where there are fewer values than there must be, or none to count."""
    wanted = _int_of(least)
    if wanted is None or wanted < 0:
        raise UnitError(f"min_units: {shown(least)} is no number of values")
    if wanted and count is None:
        raise UnitError(f"min_units: {wanted} values are wanted, and none are configured")
    if count is not None and count < wanted:
        raise UnitError(f"min_units: there are {count} values, and {wanted} are wanted at least")


def _int_of(value: Any) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

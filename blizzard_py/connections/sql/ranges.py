"""Cutting what lies between two values into equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from blizzard_core.errors import SourceError

_DIVISIBLE: tuple[Any, ...] = (int, Decimal, datetime, date)


def cuts(low: Any, high: Any, parts: int) -> Sequence[Any]:
    """At most ``parts - 1`` values above ``low`` and up to ``high`` in ascending order.

    Fewer where the values are closer together than that. Raises `SourceError` for values that
    cannot be divided (text).
    """
    if low is None or high is None or parts < 2:
        return ()
    if isinstance(low, float):
        low, high = Decimal(repr(low)), Decimal(repr(high))
    if isinstance(low, Decimal) and not (low.is_finite() and high.is_finite()):
        return ()
    if not isinstance(low, _DIVISIBLE) or type(low) is not type(high):
        raise SourceError("split.by needs a column of numbers or times")
    width: Any = high - low
    found = [
        low + (width * i // parts if isinstance(low, int) else width * i / parts)
        for i in range(1, parts)
    ]
    return sorted({cut for cut in found if low < cut <= high})

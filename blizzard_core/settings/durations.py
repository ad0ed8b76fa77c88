"""Durations as they are written in a configuration. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator

_MILLI = 1000
_UNITS = {
    "microsecond": 1,
    "millisecond": _MILLI,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_CALENDAR = re.compile(r"\b(month|quarter|year|decade)s?\b", re.IGNORECASE)
_PART = re.compile(r"(-?)(\d+(?:\.\d+)?) *([a-zA-Z]+)")
_WHOLE = re.compile(rf"{_PART.pattern}(?: +{_PART.pattern})*")
_MOST = 36_525 * _UNITS["day"]


def micros(text: str) -> int:
    """A duration such as ``1 hour 30 minutes`` in microseconds. Raises `ValueError`."""
    if _CALENDAR.search(text):
        raise ValueError(f"{text!r} has months or years, which differ in length; give days")
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a duration such as `10 minutes` or `1 hour 30 minutes`")
    total = Decimal(0)
    for sign, number, named in _PART.findall(text):
        unit = named.lower().removesuffix("s")
        if sign:
            raise ValueError(f"{text!r} is negative")
        if unit not in _UNITS:
            raise ValueError(f"{text!r}: there is no unit {named!r}; known: {', '.join(_UNITS)}")
        total += Decimal(number) * _UNITS[unit]
    if total != int(total):
        raise ValueError(f"{text!r} is finer than a microsecond")
    if total > _MOST:
        raise ValueError(f"{text!r} is more than 100 years")
    return int(total)


def signed_micros(text: str) -> int:
    """The same, where a minus in front makes all of it less than nothing. Raises `ValueError`."""
    bare = text.strip()
    return -micros(bare[1:]) if bare.startswith("-") else micros(bare)


def whole_millis(text: str, found: int) -> str:
    """The text of so many microseconds. Raises `ValueError` if a watermark cannot follow it."""
    if found % _MILLI:
        raise ValueError(f"{text!r}: a watermark moves by whole milliseconds")
    return text


def _duration(text: str) -> str:
    micros(text)
    return text


def _positive(text: str) -> str:
    if micros(text) == 0:
        raise ValueError("must be longer than nothing")
    return text


def _delay(text: str) -> str:
    return whole_millis(text, micros(text))


Duration = Annotated[str, AfterValidator(_duration)]
Length = Annotated[str, AfterValidator(_positive)]
Delay = Annotated[str, AfterValidator(_delay)]

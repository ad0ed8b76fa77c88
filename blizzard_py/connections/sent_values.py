"""Watermarks in an API's request, as text in the API's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.slices.compare import as_utc, shown
from blizzard_py.slices.cutting import time_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# As naive UTC: these formats have no zone.
_FORMATS: Mapping[str, Callable[[datetime], str]] = {
    "date": lambda v: v.date().isoformat(),
    "datetime": lambda v: v.isoformat(timespec="seconds"),
    "datetime_ms": lambda v: v.isoformat(timespec="milliseconds"),
    "timestamp": lambda v: str(v.replace(tzinfo=UTC).timestamp()),
    "timestamp_ms": lambda v: str((v.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)),
}

# The smallest distance of two values in a format; the others have microseconds.
FORMAT_TICKS: Mapping[str, timedelta] = {
    "date": timedelta(days=1),
    "datetime": timedelta(seconds=1),
    "datetime_ms": timedelta(milliseconds=1),
    "timestamp_ms": timedelta(milliseconds=1),
}

# How much is taken off an end that the API includes.
INCLUSIVE_TICKS: Mapping[str | None, timedelta] = {
    "1ms": timedelta(milliseconds=1),
    "1s": timedelta(seconds=1),
    "1day": timedelta(days=1),
}


def param(v: Any, format: str = "iso") -> str:  # noqa: A002  # the documented name
    """Return a time in the API's format.

    `iso` keeps the zone (``2026-05-04T11:59:58.120000+00:00``; a date stays one). The others are in
    UTC without a zone, cut and never rounded: `date`, `datetime` (whole seconds), `datetime_ms`,
    `timestamp` (seconds since 1970, with fractional digits), `timestamp_ms`. Raises `SourceError`
    for a value that is no time, and for another format.
    """
    value = time_of(v)
    name = (format or "iso").lower()
    if name == "iso":
        return value.isoformat()
    if name not in _FORMATS:
        raise SourceError(f"unknown format {shown(format)}; known: iso, {', '.join(_FORMATS)}")
    return _FORMATS[name](_naive_utc(value))


def sent_to(v: Any, mode: str | None = None) -> Any:
    """Return the end of a range for an API that includes the end.

    ``mode`` is its precision, `1ms`, `1s` or `1day`; the end is lowered by it. Without one it is
    not lowered. A date is lowered by days, to the moment only if that is finer. Raises
    `SourceError` for another mode or a value that is no time.
    """
    if not mode:
        return v
    if mode not in INCLUSIVE_TICKS:
        raise SourceError(f"inclusive is {', '.join(map(str, INCLUSIVE_TICKS))}, not {shown(mode)}")
    value = time_of(v)
    if not isinstance(value, datetime) and mode != "1day":
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    try:
        return value - INCLUSIVE_TICKS[mode]
    except OverflowError as error:
        raise SourceError(f"there is no time before {shown(v)}") from error


def _naive_utc(value: date) -> datetime:
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  # UTC, told by the caller
    return as_utc(value).replace(tzinfo=None)

"""Watermarks in an API's request: as text of the format it takes, one range after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.columns.calendars import LENGTHS, MONTHS, later, one_unit, pieces, whole
from blizzard_py.columns.compare import Watermark, in_utc, is_zoned, shown
from blizzard_py.columns.iso import IsoText

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# As naive UTC: these formats have no place for a zone.
_FORMATS: Mapping[str, Callable[[datetime], str]] = {
    "date": lambda v: v.date().isoformat(),
    "datetime": lambda v: v.isoformat(timespec="seconds"),
    "datetime_ms": lambda v: v.isoformat(timespec="milliseconds"),
    "timestamp": lambda v: str(v.replace(tzinfo=UTC).timestamp()),
    "timestamp_ms": lambda v: str((v.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)),
}

# How far two values lie apart that a format can say; the others say microseconds.
FORMAT_TICKS: Mapping[str, timedelta] = {
    "date": timedelta(days=1),
    "datetime": timedelta(seconds=1),
    "datetime_ms": timedelta(milliseconds=1),
    "timestamp_ms": timedelta(milliseconds=1),
}

_INCLUSIVE = {
    "1ms": timedelta(milliseconds=1),
    "1s": timedelta(seconds=1),
    "1day": timedelta(days=1),
}


def param(v: Any, format: str = "iso") -> str:  # noqa: A002  # the documented name
    """A time as the API takes it.

    `iso` keeps the zone (``2026-05-04T11:59:58.120000+00:00``; a date stays one). In UTC and
    without one, cut and never rounded: `date`, `datetime` (whole seconds), `datetime_ms`,
    `timestamp` (seconds since 1970, with a point), `timestamp_ms`. Raises `SourceError` for a
    value that is no time, and for another format.
    """
    value = _time(v)
    name = (format or "iso").lower()
    if name == "iso":
        return value.isoformat()
    if name not in _FORMATS:
        raise SourceError(f"{shown(format)} is no format: iso, {', '.join(_FORMATS)}")
    return _FORMATS[name](_naive_utc(value))


def params(
    mapping: Mapping[str, str],
    wm: Watermark | None,
    format: str = "iso",  # noqa: A002  # the documented name
) -> dict[str, str]:
    """The parameters for a watermark: ``mapping`` is column → parameter.

    A column without a value is not sent. Raises `SourceError` as `param` does, naming the
    column.
    """
    sent = {}
    for column, name in mapping.items():
        value = (wm or {}).get(column)
        if value is None:
            continue
        try:
            sent[name] = param(value, format)
        except SourceError as error:
            raise SourceError(f"column {column}: {error}") from error
    return sent


def ranges(a: Any, b: Any, unit: str, amount: int = 1) -> list[tuple[Any, Any]]:
    """[a, b) cut every ``amount`` minutes, hours, days, weeks, months or years, counted from a.

    Half-open pairs without gap or overlap, the last one cut short; none if a is not before b.
    Dates stay dates unless the unit is shorter than a day. Raises `SourceError` for other
    units and amounts, and for ends that are no times or of which only one has a zone.
    """
    name, steps = one_unit(unit), whole(amount)
    if name not in LENGTHS and name not in MONTHS:
        raise SourceError(f"{shown(unit)} is no unit: {', '.join([*LENGTHS, *MONTHS])}")
    if steps is None:
        raise SourceError(f"a range is a whole number of {name}s, 1 or more: {shown(amount)}")
    start, end = alike(_time(a), _time(b), precise=name in {"minute", "hour"})
    if isinstance(start, datetime) and is_zoned(start) != is_zoned(end):
        raise SourceError(f"of {shown(a)} and {shown(b)} only one says its zone")
    boundary = partial(_boundary, start, name, steps)
    return list(pieces(start, end, boundary, SourceError))


def sent_to(v: Any, mode: str | None = None) -> Any:
    """The end of a range as it is sent to an API that takes it to be inside.

    ``mode`` is its precision, `1ms`, `1s` or `1day`, by which the end is lowered; without one
    it is not. A date is lowered by days, to the moment only if that is finer. Raises
    `SourceError` for another mode or a value that is no time.
    """
    if not mode:
        return v
    if mode not in _INCLUSIVE:
        raise SourceError(f"inclusive is {', '.join(_INCLUSIVE)}, not {shown(mode)}")
    value = _time(v)
    if not isinstance(value, datetime) and mode != "1day":
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    try:
        return value - _INCLUSIVE[mode]
    except OverflowError as error:
        raise SourceError(f"there is no time before {shown(v)}") from error


def alike(start: Any, end: Any, precise: bool) -> tuple[Any, Any]:
    """Both as dates, or both as datetimes if one is or it must be ``precise``.

    A date is its midnight, in the zone of the other end.
    """
    zones = [v.tzinfo for v in (start, end) if isinstance(v, datetime)]
    if not zones and not precise:
        return start, end
    zone = zones[0] if zones else UTC
    midnight = datetime.min.time()
    first, last = (
        v if isinstance(v, datetime) else datetime.combine(v, midnight, zone) for v in (start, end)
    )
    return first, last


def _boundary(start: Any, unit: str, amount: int, k: int) -> Any:
    return later(start, unit, k * amount)


def _time(v: Any) -> date:
    """The value as datetime or date; ISO text is parsed."""
    if isinstance(v, date):
        return v
    form = IsoText.of(v) if isinstance(v, str) else None
    if form is None:
        raise SourceError(f"{shown(v)} is no time, so it cannot be sent as one")
    return form.value().date() if form.is_date else _in_zone(form)


def _in_zone(form: IsoText) -> datetime:
    """The text's value with the offset that it was written with."""
    value = form.value()
    return value if not form.zone else value.astimezone(timezone(form.offset))


def _naive_utc(value: date) -> datetime:
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  # UTC, told by the caller
    return in_utc(value).replace(tzinfo=None)

"""Ranges of values, cut at calendar boundaries.

A backfill's chunks are cut at calendar boundaries, so that two runs have the same chunks. An API's
ranges are counted from their beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from itertools import count
from typing import Any

from blizzard_core.errors import BlizzardError, ConfigurationError, SourceError
from blizzard_core.settings import base
from blizzard_py.slices.calendars import LENGTHS, MONTHS, later, one_unit, positive_int
from blizzard_py.slices.compare import is_zoned, shown
from blizzard_py.slices.iso import IsoText

Chunk = tuple[Any, Any]

# More pieces are a mistake in the interval, and would not fit in memory.
_MOST = 1_000_000


def chunks(start: Any, end: Any, interval: Mapping[str, int] | str | None = None) -> list[Chunk]:
    """Cut [start, end) into half-open pairs at the boundaries of ``interval``.

    ``{"months": 1}``, likewise years, weeks, days, hours, minutes, and ``step`` for integers
    (``"months=1"`` means the same). Weeks begin on Monday. Months and years are counted from
    January of year 1, integers are cut at multiples, days and shorter units are counted from
    midnight of the first day. The first and the last chunk may be shorter. Without an interval
    there is one pair, and none if ``start`` is not before ``end``. ISO text stays text in the
    start's form, dates stay dates unless the unit is shorter.

    Raises `ConfigurationError` for ends and intervals that do not fit each other.
    """
    unit, amount = _interval(interval)
    if unit == "step" or _is_int(start) or _is_int(end):
        return _integers(start, end, unit, amount)
    form = IsoText.of(start) if isinstance(start, str) else None
    precise = unit in {"hour", "minute"} or (form is not None and not form.is_date)
    first, last = _alike(_moment(start), _moment(end), precise, ConfigurationError)
    if not unit:
        found = [(first, last)] if first < last else []
    else:
        origin = _origin(first, unit, amount)
        cuts = pieces(first, last, lambda k: later(origin, unit, k * amount), ConfigurationError)
        found = list(cuts)
    return found if form is None else _as_texts(form, found, end)


def ranges(a: Any, b: Any, unit: str, amount: int = 1) -> list[Chunk]:
    """Cut [a, b) every ``amount`` minutes, hours, days, weeks, months or years, counted from a.

    Half-open pairs without gap or overlap, the last one cut short; none if a is not before b.
    Dates stay dates unless the unit is shorter than a day. Raises `SourceError` for other
    units and amounts, and for ends that are no times or of which only one has a zone.
    """
    name, steps = one_unit(unit), positive_int(amount)
    if name not in LENGTHS and name not in MONTHS:
        raise SourceError(f"{shown(unit)} is no unit: {', '.join([*LENGTHS, *MONTHS])}")
    if steps is None:
        raise SourceError(f"a range is a whole number of {name}s, 1 or more: {shown(amount)}")
    start, end = _alike(time_of(a), time_of(b), name in {"minute", "hour"}, SourceError)
    return list(pieces(start, end, lambda k: later(start, name, k * steps), SourceError))


def pieces(
    start: Any, end: Any, boundary: Callable[[int], Any], error: type[BlizzardError]
) -> Iterator[Chunk]:
    """Cut [start, end) at the boundaries of 1, 2, 3 … that lie within; half-open pairs.

    ``boundary`` rises and may be None once there is no further one. Raises ``error`` above a
    million pieces.
    """
    begin = start
    for k in count(1):
        if begin >= end:
            return
        if k > _MOST:
            raise error(f"{start} to {end} is more than {_MOST:,} pieces; take longer ones")
        cut = boundary(k)
        if cut is None or cut >= end:
            yield begin, end
            return
        if cut > begin:
            yield begin, cut
            begin = cut


def instant_of(value: Any) -> Any:
    """Return a time as an instant, whatever it is written as; other values as they are."""
    form = IsoText.of(value) if isinstance(value, str) else None
    if form is not None:
        return form.moment()
    if isinstance(value, datetime):
        return value if is_zoned(value) else value.replace(tzinfo=UTC)
    return datetime.combine(value, time(), UTC) if isinstance(value, date) else value


def time_of(v: Any) -> date:
    """Return the value as datetime or date; ISO text is parsed. Raises `SourceError` for others."""
    if isinstance(v, date):
        return v
    form = IsoText.of(v) if isinstance(v, str) else None
    if form is None:
        raise SourceError(f"{shown(v)} is no time, so it cannot be sent as one")
    return form.value().date() if form.is_date else _in_zone(form)


def _in_zone(form: IsoText) -> datetime:
    """Return the text's value with the offset that it was written with."""
    value = form.value()
    return value if not form.zone else value.astimezone(timezone(form.offset))


def _alike(start: date, end: date, precise: bool, error: type[BlizzardError]) -> tuple[Any, Any]:
    """Return both as dates, or both as datetimes if one is, or if it must be ``precise``.

    A date is its midnight, in the zone of the other end.
    """
    zones = [v.tzinfo for v in (start, end) if isinstance(v, datetime)]
    if not zones and not precise:
        return start, end
    zone = zones[0] if zones else UTC
    first, last = (
        v if isinstance(v, datetime) else datetime.combine(v, time(), zone) for v in (start, end)
    )
    if is_zoned(first) != is_zoned(last):
        raise error(f"of {shown(start)} and {shown(end)} only one says its zone")
    return first, last


def _interval(interval: Mapping[str, int] | str | None) -> tuple[str, int]:
    """Return unit and amount. The unit is empty for a single chunk."""
    if isinstance(interval, str) and interval:
        interval = _named(interval)
    if not interval:
        return "", 0
    if len(interval) != 1:
        raise ConfigurationError(f"an interval is written as {{months: 1}}: {shown(interval)}")
    [(name, value)] = interval.items()
    unit, amount = one_unit(name), positive_int(value)
    if unit not in {"step", *LENGTHS, *MONTHS}:
        known = ", ".join(f"{u}s" for u in [*LENGTHS, *MONTHS])
        raise ConfigurationError(f"{shown(name)} is no interval: {known}, step")
    if amount is None:
        raise ConfigurationError(f"{name} is a whole number, 1 or more: {shown(value)}")
    return unit, amount


def _named(text: str) -> dict[str, int]:
    """Parse ``1 month``, ``months=1`` and ``step=1000``. An amount that is not whole becomes 0."""
    name, _, digits = text.partition("=")
    if name.strip() == "step":
        return {"step": int(digits) if digits.strip().isdecimal() else 0}
    try:
        parts = base.duration_parts(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{shown(text)} is no interval: {error}, or `step=1000`"
        ) from error
    sums = {unit: sum(n for n, each in parts if each == unit) for _, unit in parts}
    return {unit: int(n) if n == int(n) else 0 for unit, n in sums.items()}


def _integers(start: Any, end: Any, unit: str, amount: int) -> list[Chunk]:
    if not (_is_int(start) and _is_int(end) and unit in {"", "step"}):
        raise ConfigurationError(
            f"{shown(start)} to {shown(end)} does not go in {unit or 'one'}s: integers in steps, "
            "times in units of time"
        )
    if not unit:
        return [(start, end)] if start < end else []
    below = start // amount
    return list(pieces(start, end, lambda k: (below + k) * amount, ConfigurationError))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _moment(value: Any) -> date:
    if isinstance(value, date):
        return value
    form = IsoText.of(value) if isinstance(value, str) else None
    if form is None:
        raise ConfigurationError(f"{shown(value)} is neither a time nor an integer")
    return form.value().date() if form.is_date else form.value()


def _origin(start: Any, unit: str, amount: int) -> Any:
    """Return the last boundary that is not above the start."""
    day = datetime.combine(start, time(), start.tzinfo) if isinstance(start, datetime) else start
    if unit in MONTHS:
        months = MONTHS[unit] * amount
        index = (start.year - 1) * 12 + start.month - 1
        year, month = divmod(index - index % months, 12)
        return day.replace(year=year + 1, month=month + 1, day=1)
    if unit != "week":
        return day
    back = timedelta(days=day.weekday())  # 0001-01-01 was a Monday, so this stays in range
    return day - back


def _as_texts(form: IsoText, found: list[Chunk], end: Any) -> list[Chunk]:
    texts = [(_as_text(form, low), _as_text(form, high)) for low, high in found]
    if any(
        instant_of(text) != instant_of(value)
        for chunk, pair in zip(texts, found, strict=True)
        for text, value in zip(chunk, pair, strict=True)
    ):
        raise ConfigurationError(
            f"chunks up to {shown(end)} cannot be written in the start's form; give both ends "
            "the same form, as precise as the interval"
        )
    return texts


def _as_text(form: IsoText, value: date) -> str:
    if not isinstance(value, datetime):
        return value.isoformat()
    return form.at_moment(value if is_zoned(value) else value.replace(tzinfo=UTC))

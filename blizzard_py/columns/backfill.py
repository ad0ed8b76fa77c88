"""A backfill's range in chunks on calendar boundaries, so that chunks of two runs agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

from blizzard_core.errors import ConfigurationError
from blizzard_core.settings import durations
from blizzard_py.columns.calendars import LENGTHS, MONTHS, later, one_unit, pieces, whole
from blizzard_py.columns.compare import is_zoned, order, shown
from blizzard_py.columns.iso import IsoText
from blizzard_py.columns.requests import alike

Chunk = tuple[Any, Any]


def chunks(start: Any, end: Any, interval: Mapping[str, int] | str | None = None) -> list[Chunk]:
    """[start, end) as half-open pairs, cut at the boundaries of ``interval``.

    ``{"months": 1}``, likewise years, weeks, days, hours, minutes, and ``step`` for integers
    (``"months=1"`` means the same). Weeks begin on Monday; months and years are counted from
    January of year 1, integers on multiples, days and less from midnight of the first day. The
    first and the last are cut short. Without an interval one pair; none if ``start`` is not
    before ``end``. Ends that are ISO text stay text of the start's form, dates stay dates
    unless the unit is shorter.

    Raises `ConfigurationError` for ends and intervals that do not fit each other.
    """
    unit, amount = _interval(interval)
    if unit == "step" or _is_whole(start) or _is_whole(end):
        return _integers(start, end, unit, amount)
    form = IsoText.of(start) if isinstance(start, str) else None
    precise = unit in {"hour", "minute"} or (form is not None and not form.is_date)
    first, last = alike(_moment(start), _moment(end), precise)
    if isinstance(first, datetime) and is_zoned(first) != is_zoned(last):
        raise ConfigurationError(f"of {shown(start)} and {shown(end)} only one says its zone")
    if not unit:
        found = [(first, last)] if first < last else []
    else:
        boundary = partial(_boundary, _origin(first, unit, amount), unit, amount)
        found = list(pieces(first, last, boundary, ConfigurationError))
    return found if form is None else _as_texts(form, found, end)


def remaining(chunks: Iterable[Chunk], stored: Any = None) -> list[Chunk]:
    """The chunks that are not finished: all that end above the stored value.

    ``stored`` is a value or a watermark of one column; null leaves all. Raises
    `WatermarkError` if it cannot be compared with the chunks' ends.
    """
    if isinstance(stored, Mapping):
        values = [value for value in stored.values() if value is not None]
        if len(values) > 1:
            raise ConfigurationError(f"chunks are of one column, the watermark of {len(values)}")
        stored = values[0] if values else None
    if stored is None:
        return list(chunks)
    done = _instant(stored)
    return [chunk for chunk in chunks if order("chunk", _instant(chunk[1]), done) > 0]


def _interval(interval: Mapping[str, int] | str | None) -> tuple[str, int]:
    """Unit and amount; an empty unit for a single chunk."""
    if isinstance(interval, str) and interval:
        interval = _named(interval)
    if not interval:
        return "", 0
    if len(interval) != 1:
        raise ConfigurationError(f"an interval is written as {{months: 1}}: {shown(interval)}")
    [(name, value)] = interval.items()
    unit, amount = one_unit(name), whole(value)
    if unit not in {"step", *LENGTHS, *MONTHS}:
        known = ", ".join(f"{u}s" for u in [*LENGTHS, *MONTHS])
        raise ConfigurationError(f"{shown(name)} is no interval: {known}, step")
    if amount is None:
        raise ConfigurationError(f"{name} is a whole number, 1 or more: {shown(value)}")
    return unit, amount


def _named(text: str) -> dict[str, int]:
    """``1 month``, ``months=1`` and ``step=1000``, taken apart; what is no whole number is 0."""
    name, _, digits = text.partition("=")
    if name.strip() == "step":
        return {"step": int(digits) if digits.strip().isdecimal() else 0}
    try:
        return {unit: int(n) if n == int(n) else 0 for n, unit in durations.parts(text)}
    except ValueError as error:
        raise ConfigurationError(
            f"{shown(text)} is no interval: {error}, or `step=1000`"
        ) from error


def _integers(start: Any, end: Any, unit: str, amount: int) -> list[Chunk]:
    if not (_is_whole(start) and _is_whole(end) and unit in {"", "step"}):
        raise ConfigurationError(
            f"{shown(start)} to {shown(end)} does not go in {unit or 'one'}s: integers in steps, "
            "times in units of time"
        )
    if not unit:
        return [(start, end)] if start < end else []
    below = start // amount
    return list(pieces(start, end, lambda k: (below + k) * amount, ConfigurationError))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _moment(value: Any) -> date:
    if isinstance(value, date):
        return value
    form = IsoText.of(value) if isinstance(value, str) else None
    if form is None:
        raise ConfigurationError(f"{shown(value)} is neither a time nor an integer")
    return form.value().date() if form.is_date else form.value()


def _origin(start: Any, unit: str, amount: int) -> Any:
    """The last boundary that is not above the start."""
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


def _boundary(origin: Any, unit: str, amount: int, k: int) -> Any:
    return later(origin, unit, k * amount)


def _as_texts(form: IsoText, found: list[Chunk], end: Any) -> list[Chunk]:
    texts = [(_as_text(form, low), _as_text(form, high)) for low, high in found]
    if any(
        _instant(text) != _instant(value)
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


def _instant(value: Any) -> Any:
    """A time as an instant, whatever it is written as; other values as they are."""
    form = IsoText.of(value) if isinstance(value, str) else None
    if form is not None:
        return form.moment()
    if isinstance(value, datetime):
        return value if is_zoned(value) else value.replace(tzinfo=UTC)
    return datetime.combine(value, time(), UTC) if isinstance(value, date) else value

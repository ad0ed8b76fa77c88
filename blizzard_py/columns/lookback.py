"""Where reading begins: the stored watermark, moved back over what may have changed since.

Two ways: a distance (``days``, ``hours``, ``months``, ``years``) from the stored value, or
``closing_day``, the day of a month on which the month before is closed. Only lower bounds
move, never above the stored value, and only values that are times: datetimes, dates, ISO text.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from blizzard_core.errors import ConfigurationError
from blizzard_py.columns.compare import Watermark, in_utc, is_zoned, shown
from blizzard_py.columns.iso import IsoText

UNITS = ("years", "months", "days", "hours", "closing_day")
_PREFIX = "backward_"

# Nothing is moved before this: a day behind the first there is, so that it is a moment in
# every zone.
_BEGIN = datetime(1, 1, 2)  # noqa: DTZ001  # takes the zone of what is moved

Backward = Mapping[str, Any]


def look_back(connection: Backward | None, source: Backward | None = None) -> dict[str, int] | None:
    """The look-back of a source: its own, which replaces the connection's as a whole.

    Both are settings with ``backward: {days: 2}`` or ``backward_days: 2``, the first of which
    wins; 0 switches it off. None if there is none. Raises `ConfigurationError` for what is
    negative, fractional or unknown.
    """
    for settings in (source, connection):
        found = _configured(settings)
        if found is not None:
            return {unit: amount for unit, amount in found.items() if amount} or None
    return None


def shift(v: Any, b: Backward | None) -> Any:
    """The value moved back by ``b``: days and hours first, then calendar months and years.

    The day is clamped to its month's last, the result to the first year there is. Dates stay
    dates (midnight UTC, then cut), ISO text keeps its form; other values do not move, neither
    does ``closing_day``, which takes the clock (see `effective`). Raises `ConfigurationError`
    as `look_back` does.
    """
    amounts = _amounts(b)
    if isinstance(v, datetime):
        return _moved(v, amounts)
    if isinstance(v, date):
        return _moved(datetime(v.year, v.month, v.day), amounts).date()  # noqa: DTZ001  # cut again
    form = IsoText.of(v) if isinstance(v, str) else None
    return v if form is None else form.at_wall(_moved(form.wall, amounts))


def closing_day(now: date, day: int, months: int = 0, years: int = 0) -> datetime:
    """What is open at ``now``: on or before ``day`` since the first of last month, else of this.

    Less ``months`` and ``years``; midnight UTC (without a zone if ``now`` has none). Raises
    `ConfigurationError` for a day outside 1 to 31.
    """
    day = _amount("closing_day", day)
    if not 1 <= day <= 31:
        raise ConfigurationError(f"closing_day is a day of the month, not {day}")
    moment = _utc(now)
    back = {"months": _amount("months", months), "years": _amount("years", years)}
    if moment.day <= day:
        back["months"] += 1
    first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return _moved(first, back)


def effective(wm: Watermark | None, b: Backward | None, now: date | None = None) -> dict[str, Any]:
    """The lower bound: each value moved back by ``b``, none ever above the stored one.

    ``closing_day`` counts from ``now`` (default: this moment, UTC) and takes the place of days
    and hours. Raises `ConfigurationError` as `look_back` does.
    """
    amounts = _amounts(b)
    day = amounts.get("closing_day", 0)
    if not day:
        return {column: shift(value, amounts) for column, value in (wm or {}).items()}
    begin = closing_day(
        now or datetime.now(UTC), day, amounts.get("months", 0), amounts.get("years", 0)
    ).replace(tzinfo=UTC)
    return {column: _at_most(value, begin) for column, value in (wm or {}).items()}


def _moved(moment: datetime, amounts: Mapping[str, int]) -> datetime:
    first = min(moment, _BEGIN.replace(tzinfo=UTC) if is_zoned(moment) else _BEGIN)
    try:
        near = moment - timedelta(days=amounts.get("days", 0), hours=amounts.get("hours", 0))
        return max(first, _less_months(near, amounts))
    except (OverflowError, ValueError):  # before the first year
        return first


def _less_months(moment: datetime, amounts: Mapping[str, int]) -> datetime:
    """So many calendar months and years earlier, the day clamped to its month's last."""
    back = amounts.get("months", 0) + 12 * amounts.get("years", 0)
    year, month = divmod(moment.year * 12 + moment.month - 1 - back, 12)
    if year < 1:
        raise ValueError("before the first year")
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def _at_most(value: Any, begin: datetime) -> Any:
    """The earlier of both, in the form of ``value``; values that are no times do not move."""
    if isinstance(value, datetime):
        fitting = begin if is_zoned(value) else begin.replace(tzinfo=None)
        return min(value, fitting)
    if isinstance(value, date):
        return min(value, begin.date())
    form = IsoText.of(value) if isinstance(value, str) else None
    if form is None or form.moment() <= begin:
        return value
    return form.at_moment(begin)


def _utc(now: date) -> datetime:
    if not isinstance(now, datetime):
        return datetime(now.year, now.month, now.day, tzinfo=UTC)
    return in_utc(now) if is_zoned(now) else now


def _amounts(b: Backward | None) -> dict[str, int]:
    """The amounts of a look-back by itself, in which every key counts."""
    if isinstance(b, Mapping) and any(str(key).startswith("backward") for key in b):
        return _configured(b) or {}
    return _nested(b)


def _configured(settings: Backward | None) -> dict[str, int] | None:
    """The amounts that settings give, zeros included; None if they say nothing."""
    if settings is None:
        return None
    found = {u: _amount(u, settings[u]) for u in UNITS if settings.get(u) is not None}
    for key, value in settings.items():
        if str(key).startswith(_PREFIX) and value is not None:
            unit = str(key).removeprefix(_PREFIX)
            found[unit] = _amount(unit, value)
    found |= _nested(settings.get("backward"))
    if not found and isinstance(settings.get("watermark"), Mapping):
        return _configured(settings["watermark"])
    return found or None


def _nested(value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {unit: _amount(unit, amount) for unit, amount in value.items() if amount is not None}
    if isinstance(value, int) and value == 0:  # switched off: says so for every unit
        return dict.fromkeys(UNITS, 0)
    raise ConfigurationError(f"backward is written as {{days: 2}}, not {shown(value)}")


def _amount(unit: Any, value: Any) -> int:
    if unit not in UNITS:
        raise ConfigurationError(f"backward knows {', '.join(UNITS)}, not {shown(unit)}")
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        value = int(value)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not 0 <= value < 10**9:
        raise ConfigurationError(f"backward: {unit} is a whole number, 0 or more: {shown(value)}")
    if unit == "closing_day" and value > 31:
        raise ConfigurationError(f"closing_day is a day of the month, not {shown(value)}")
    return int(value)

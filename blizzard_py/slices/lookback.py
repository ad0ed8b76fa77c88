"""The look-back: where a reading begins, below the stored watermark.

There are two ways: a distance (``days``, ``hours``, ``months``, ``years``) from the stored value,
or ``closing_day``, the day of a month on which the month before is closed. Only lower bounds move,
never above the stored value. Only times move: datetimes, dates, ISO text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from blizzard_py.slices.calendars import later
from blizzard_py.slices.compare import Watermark, as_utc, is_zoned
from blizzard_py.slices.iso import IsoText

UNITS = ("years", "months", "days", "hours", "closing_day")

# The lowest result: one day after the first day of the calendar, so that it exists in every zone.
_BEGIN = datetime(1, 1, 2)  # noqa: DTZ001  # takes the zone of what is moved

# The distance by unit, never negative.
Backward = Mapping[str, int]


def shift(value: Any, back: Backward) -> Any:
    """Return the value moved back: days and hours first, then calendar months and years.

    The day is clamped to the last day of its month, the result to the first year of the calendar.
    Dates stay dates (midnight UTC, then cut) and ISO text keeps its form. Other values do not
    move. ``closing_day`` is ignored, because it needs the clock (see `effective`).
    """
    if isinstance(value, datetime):
        return _moved(value, back)
    if isinstance(value, date):
        return _moved(datetime(value.year, value.month, value.day), back).date()  # noqa: DTZ001  # cut again
    form = IsoText.of(value) if isinstance(value, str) else None
    return value if form is None else form.at_wall(_moved(form.wall, back))


def closing_day(now: date, day: int, back: Backward) -> datetime:
    """Return the beginning of the open period at ``now``.

    Up to the closing ``day`` of a month this is the first of last month, later the first of this
    month, less the months and years of ``back``. Midnight UTC, or no zone if ``now`` has none.
    """
    moment = _utc(now)
    first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    months = back.get("months", 0) + (moment.day <= day)
    return _moved(first, {"months": months, "years": back.get("years", 0)})


def effective(
    watermark: Watermark | None, back: Backward, now: date | None = None
) -> dict[str, Any]:
    """Return the lower bound: each value moved back, never above the stored one.

    ``closing_day`` counts from ``now`` (default: this moment, UTC) and takes the place of days
    and hours.
    """
    values = (watermark or {}).items()
    day = back.get("closing_day", 0)
    if not day:
        return {column: shift(value, back) for column, value in values}
    begin = closing_day(now or datetime.now(UTC), day, back).replace(tzinfo=UTC)
    return {column: _at_most(value, begin) for column, value in values}


def _moved(moment: datetime, back: Backward) -> datetime:
    first = min(moment, _BEGIN.replace(tzinfo=UTC) if is_zoned(moment) else _BEGIN)
    try:
        near = moment - timedelta(days=back.get("days", 0), hours=back.get("hours", 0))
    except OverflowError:  # before the first year
        return first
    far = later(near, "month", -back.get("months", 0) - 12 * back.get("years", 0))
    return first if far is None else max(first, far)


def _at_most(value: Any, begin: datetime) -> Any:
    """Return the earlier of both in the form of ``value``. Values that are no times do not move."""
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
    return as_utc(now) if is_zoned(now) else now

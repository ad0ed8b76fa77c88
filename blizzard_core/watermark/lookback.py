"""Where a partition filter's lookback begins. Pure."""

from __future__ import annotations

import datetime as dt

from blizzard_core.settings.sources import PartitionFilter

_FOUR_DIGITS = 1000


def lookback_floor(partition_filter: PartitionFilter | None, now: float) -> str | None:
    """The oldest partition that is wanted at ``now`` (UTC), or None for all.

    ``lookback`` units back, in the template's finest unit. Always a whole
    prefix, so it never cuts a name. Before the year 1000 there is none: its name would be shorter,
    and sort above all others.
    """
    if partition_filter is None or partition_filter.lookback is None:
        return None
    template, back = partition_filter.prefix_template, partition_filter.lookback
    try:
        moment = _back(dt.datetime.fromtimestamp(now, dt.UTC), template, back)
    except (OverflowError, ValueError):  # before the first year
        return None
    return None if moment.year < _FOUR_DIGITS else moment.strftime(template)


def _back(moment: dt.datetime, template: str, back: int) -> dt.datetime:
    if "%H" in template:
        return moment - dt.timedelta(hours=back)
    if any(code in template for code in ("%d", "%j", "%F")):
        return moment - dt.timedelta(days=back)
    months = moment.year * 12 + moment.month - 1 - (back if "%m" in template else 12 * back)
    return moment.replace(year=months // 12, month=months % 12 + 1, day=1)

"""Where a partition filter's lookback begins. Pure."""

from __future__ import annotations

import datetime as dt

from blizzard_core.settings.sources import PartitionFilter


def lookback_floor(partition_filter: PartitionFilter | None, now: float) -> str | None:
    """The oldest partition that is wanted at ``now`` (UTC), or None for all.

    ``lookback`` units back, in the template's finest unit. Always a whole
    prefix, so it never cuts a name.
    """
    if partition_filter is None or partition_filter.lookback is None:
        return None
    template, back = partition_filter.prefix_template, partition_filter.lookback
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    if "%H" in template:
        moment -= dt.timedelta(hours=back)
    elif any(code in template for code in ("%d", "%j", "%F")):
        moment -= dt.timedelta(days=back)
    else:
        months = moment.year * 12 + moment.month - 1 - (back if "%m" in template else 12 * back)
        moment = moment.replace(year=months // 12, month=months % 12 + 1, day=1)
    return moment.strftime(template)

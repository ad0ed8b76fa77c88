"""The rows of a stream, source by source, each behind the watermark of its own.

Of several sources each has a watermark over its own column; which of them the query follows is
Spark's to choose, by the policy.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everywhere

from blizzard_core.settings.event_time import Branch
from blizzard_py.streaming.source import TICK

_MILLI = 1000


def behind(rows: DataFrame, time: str, branch: Branch) -> DataFrame:
    """The rows behind their watermark, which ticks have moved and do not pass."""
    watched = rows.withWatermark(quoted(time), f"{branch.delay_us // _MILLI} milliseconds")
    # It names the time, or Spark would put it below the watermark, and ticks would move nothing.
    return watched.where(~(F.col(TICK) & is_time(time))).drop(TICK)


def is_time(time: str) -> Column:
    """Whether it is after 1970; of rows that the query is given it always is."""
    return column(time) > F.timestamp_seconds(F.lit(0))


def column(name: str) -> Column:
    """The column of that name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name as Spark's SQL takes any."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"

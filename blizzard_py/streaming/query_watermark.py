"""The watermark of a query over event time: declared for Spark, and read back from its logs."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everywhere

from blizzard_core.settings.event_time import Branch
from blizzard_py.engines.spark.deduplication import quoted
from blizzard_py.streaming.source import TICK

_MILLI = 1000


def behind(rows: DataFrame, time: str, branch: Branch) -> DataFrame:
    """Return the rows behind their watermark; ticks have moved it and are dropped."""
    watched = rows.withWatermark(quoted(time), f"{branch.delay_us // _MILLI} milliseconds")
    # It uses the time; otherwise Spark would push it below the watermark and ticks would not count.
    return watched.where(~(F.col(TICK) & is_time(time))).drop(TICK)


def is_time(time: str) -> Column:
    """Return whether it is after 1970; true for every row that the query gets."""
    return column(time) > F.timestamp_seconds(F.lit(0))


def column(name: str) -> Column:
    """Return the column of that name, including dots."""
    return F.col(quoted(name))


def watermarks_of(checkpoint: Path, micro_batch: int) -> tuple[int, int]:
    """Return the watermark of a micro-batch and that of the next, from Spark's own logs."""
    offsets = (checkpoint / "offsets" / str(micro_batch)).read_text().splitlines()
    commits = (checkpoint / "commits" / str(micro_batch)).read_text().splitlines()
    return (
        int(json.loads(offsets[1])["batchWatermarkMs"]),
        int(json.loads(commits[1])["nextBatchWatermarkMs"]),
    )

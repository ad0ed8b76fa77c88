"""From the settings of event time to the frame that a query computes.

Duplicates are removed first, then rows are put into windows and aggregated, as the rule of
lateness takes it (`blizzard_py.kernels.lateness.rule_of`).

Of several sources each has a watermark of its own, over its own column, before their rows come
together; which of them the query follows is Spark's to choose, by the policy. Duplicates are
remembered for the delay of the first branch, whatever Spark is told of the others, so the one
with the longest delay is the first.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everywhere
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from blizzard_core.settings.event_time import (
    EMITTED_BATCH,
    WINDOW_COLUMNS,
    Branch,
    EventTimeSettings,
    WindowSettings,
    micros,
)
from blizzard_py.engines.spark.plan_tree import TooDeep, parsed
from blizzard_py.engines.spark.transform_guard import spark_said
from blizzard_py.engines.spark.transform_rules import SOURCE, aggregate_refusal
from blizzard_py.streaming.source import FORMAT, OFFERS, TICK, WHOSE, marks

_WINDOW = "_blizzard_window"
# Of several sources, the column that has each row's time.
_TIME = "_blizzard_time"
_MILLI = 1000
# A star that is not that of `count(*)` stands for columns, or multiplies.
_COUNT_STAR = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Definition:
    """A query: its settings, the columns of its input and those of a row that only pass through.

    ``branches`` are what of it is each source's, ``output`` the columns that rows keep where
    nothing is aggregated.
    """

    given: EventTimeSettings
    branches: tuple[Branch, ...]
    input: pa.Schema
    output: tuple[str, ...]
    emitted_batch: bool

    @property
    def read(self) -> pa.Schema:
        """The columns of the input that the query needs."""
        used = {branch.column for branch in self.branches}
        used |= _used(self.given, self.input.names, self.output)
        return pa.schema([field for field in self.input if field.name in used])


def _used(given: EventTimeSettings, names: Sequence[str], output: Iterable[str]) -> set[str]:
    used = {*given.deduplicate, *given.group_by}
    if not given.aggregates:
        return used | set(output)
    for text in (_COUNT_STAR.sub("", expression) for expression in given.aggregates.values()):
        if "*" in text or "`" in text:
            return set(names)
        used |= {name for name in names if name.lower() in text.lower()}
    return used


def refusal(spark: SparkSession, given: EventTimeSettings) -> tuple[str, str] | None:
    """The first aggregate that is unusable as it is written, and why. Nothing is analysed."""
    for name, expression in given.aggregates.items():
        try:
            # In parentheses it is an expression, and cannot bring a clause of its own.
            query = f"SELECT (\n{expression}\n) FROM {SOURCE}"  # noqa: S608  # judged before it runs
            why = aggregate_refusal(parsed(spark, query))
        except TooDeep:
            why = "is nested too deeply to be judged"
        except ParseException as error:
            why = spark_said(str(error))
        if why:
            return name, why
    return None


def frame_of(spark: SparkSession, definition: Definition, offers: str) -> DataFrame:
    """What the query computes, to be written in the mode given; raises `PySparkException`."""
    given = definition.given
    several = len(definition.branches) > 1
    marked = marks(definition.read, several=several)
    schema: StructType = from_arrow_schema(marked, prefer_timestamp_ntz=False)
    staged = spark.readStream.format(FORMAT).schema(schema).option(OFFERS, offers).load()
    time = _TIME if several else definition.branches[0].column
    if several:
        frame = _watched(staged, definition.branches)
    else:
        frame = _behind(staged, time, definition.branches[0])
    if given.deduplicate:
        frame = frame.dropDuplicatesWithinWatermark(list(given.deduplicate))
    if not given.aggregates:
        return frame.select(*map(_column, definition.output))
    values = [F.expr(text).alias(name) for name, text in given.aggregates.items()]
    if given.window is None:
        rows = frame.groupBy(*map(_column, given.group_by)).agg(*values)
        return rows.toDF(*given.group_by, *given.aggregates)
    groups = [_window(time, given.window), *map(_column, given.group_by)]
    rows = frame.groupBy(*groups).agg(*values).toDF(_WINDOW, *given.group_by, *given.aggregates)
    start, end = WINDOW_COLUMNS
    return rows.select(
        F.col(_WINDOW).start.alias(start),
        F.col(_WINDOW).end.alias(end),
        *map(_column, (*given.group_by, *given.aggregates)),
    )


def _watched(staged: DataFrame, branches: Iterable[Branch]) -> DataFrame:
    """The rows of several sources, each behind the watermark of its own, with their times."""
    longest_first = sorted(branches, key=lambda branch: (-branch.delay_us, branch.source))
    parts = [
        _behind(
            staged.where(F.col(WHOSE) == branch.source).withColumn(_TIME, _column(branch.column)),
            _TIME,
            branch,
        )
        for branch in longest_first
    ]
    return functools.reduce(DataFrame.unionByName, parts).drop(WHOSE)


def _behind(rows: DataFrame, time: str, branch: Branch) -> DataFrame:
    """The rows behind their watermark, which ticks have moved and do not pass."""
    watched = rows.withWatermark(time, f"{branch.delay_us // _MILLI} milliseconds")
    # It names the time, or Spark would put it below the watermark, and ticks would move nothing.
    is_tick = F.col(TICK) & (_column(time) > F.timestamp_seconds(F.lit(0)))
    return watched.where(~is_tick).drop(TICK)


def with_batch(frame: DataFrame, definition: Definition, number: int) -> DataFrame:
    """The rows as they are written: with the number of their batch, if that is wanted."""
    if not definition.emitted_batch:
        return frame
    return frame.withColumn(EMITTED_BATCH, F.lit(number).cast("bigint"))


def _window(time: str, window: WindowSettings) -> Column:
    if window.gap is not None:
        return F.session_window(time, f"{micros(window.gap)} microseconds")
    size = micros(window.size or "")
    slide = micros(window.slide) if window.slide else size
    return F.window(
        _column(time),
        f"{size} microseconds",
        f"{slide} microseconds",
        f"{micros(window.offset)} microseconds",
    )


def _column(name: str) -> Column:
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")

"""From the settings of event time to the frame that a query computes.

Duplicates are removed first, then rows are put into windows and aggregated, as the rule of
lateness takes it (`blizzard_py.kernels.lateness.rule_of`).
"""

from __future__ import annotations

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
    EventTimeSettings,
    WindowSettings,
    micros,
)
from blizzard_py.engines.spark.plan_tree import TooDeep, parsed
from blizzard_py.engines.spark.transform_guard import spark_said
from blizzard_py.engines.spark.transform_rules import SOURCE, aggregate_refusal
from blizzard_py.streaming.source import FORMAT, OFFERS, TICK

_WINDOW = "_blizzard_window"
_MILLI = 1000
# A star that is not that of `count(*)` stands for columns, or multiplies.
_COUNT_STAR = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Definition:
    """A query: its settings, the columns of its input and those of a row that only pass through.

    ``output`` are the columns that rows keep where nothing is aggregated.
    """

    given: EventTimeSettings
    input: pa.Schema
    output: tuple[str, ...]
    emitted_batch: bool

    @property
    def read(self) -> pa.Schema:
        """The columns of the input that the query needs."""
        used = _used(self.given, self.input.names, self.output)
        return pa.schema([field for field in self.input if field.name in used])


def _used(given: EventTimeSettings, names: Sequence[str], output: Iterable[str]) -> set[str]:
    used = {given.column, *given.deduplicate, *given.group_by}
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
    marked = definition.read.append(pa.field(TICK, pa.bool_(), nullable=False))
    schema: StructType = from_arrow_schema(marked, prefer_timestamp_ntz=False)
    staged = spark.readStream.format(FORMAT).schema(schema).option(OFFERS, offers).load()
    watched = staged.withWatermark(given.column, f"{micros(given.delay) // _MILLI} milliseconds")
    # It names the time, or Spark would put it below the watermark, and ticks would move nothing.
    is_tick = F.col(TICK) & (_column(given.column) > F.timestamp_seconds(F.lit(0)))
    frame = watched.where(~is_tick).drop(TICK)
    if given.deduplicate:
        frame = frame.dropDuplicatesWithinWatermark(list(given.deduplicate))
    if not given.aggregates:
        return frame.select(*map(_column, definition.output))
    values = [F.expr(text).alias(name) for name, text in given.aggregates.items()]
    if given.window is None:
        rows = frame.groupBy(*map(_column, given.group_by)).agg(*values)
        return rows.toDF(*given.group_by, *given.aggregates)
    groups = [_window(given, given.window), *map(_column, given.group_by)]
    rows = frame.groupBy(*groups).agg(*values).toDF(_WINDOW, *given.group_by, *given.aggregates)
    start, end = WINDOW_COLUMNS
    return rows.select(
        F.col(_WINDOW).start.alias(start),
        F.col(_WINDOW).end.alias(end),
        *map(_column, (*given.group_by, *given.aggregates)),
    )


def with_batch(frame: DataFrame, definition: Definition, number: int) -> DataFrame:
    """The rows as they are written: with the number of their batch, if that is wanted."""
    if not definition.emitted_batch:
        return frame
    return frame.withColumn(EMITTED_BATCH, F.lit(number).cast("bigint"))


def _window(given: EventTimeSettings, window: WindowSettings) -> Column:
    if window.gap is not None:
        return F.session_window(given.column, f"{micros(window.gap)} microseconds")
    size = micros(window.size or "")
    slide = micros(window.slide) if window.slide else size
    return F.window(
        _column(given.column),
        f"{size} microseconds",
        f"{slide} microseconds",
        f"{micros(window.offset)} microseconds",
    )


def _column(name: str) -> Column:
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")

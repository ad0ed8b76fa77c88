"""The frame of a query, made from the settings of event time.

Duplicates are removed first; then rows are put into windows and aggregated. The rule of lateness
assumes this order (`blizzard_py.kernels.lateness.rules_of`).

Rows of several sources come together behind their watermarks (`blizzard_py.streaming.join`).
Spark remembers duplicates for the delay of the first branch, whatever the other delays, so the
branch with the longest delay is the first. A join has one branch on either side.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everywhere
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from blizzard_core.settings.base import to_micros
from blizzard_core.settings.event_time import (
    EMITTED_BATCH,
    WINDOW_COLUMNS,
    Branch,
    EventTimeSettings,
    WindowSettings,
)
from blizzard_py.engines.spark.transform_guard import SOURCE, query_refusal
from blizzard_py.streaming.join import join_columns
from blizzard_py.streaming.query_watermark import behind, column
from blizzard_py.streaming.source import FORMAT, OFFERS, WHOSE, marks

_WINDOW = "_blizzard_window"
# With several sources, the column with each row's time.
_TIME = "_blizzard_time"
# Any star outside of `count(*)` means columns, or multiplies.
_COUNT_STAR = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Definition:
    """A query: its settings, its input columns, and the columns of a row that only pass through.

    ``branches`` are each source's part, ``output`` the columns that rows keep if nothing is
    aggregated.
    """

    settings: EventTimeSettings
    branches: tuple[Branch, ...]
    input: pa.Schema
    output: tuple[str, ...]
    emitted_batch: bool

    @property
    def read(self) -> pa.Schema:
        """The columns of the input that the query needs."""
        used = {branch.column for branch in self.branches}
        used |= _used(self.settings, self.input.names, self.output)
        return pa.schema([field for field in self.input if field.name in used])

    def written_columns(self, emitted: StructType) -> StructType:
        """Return the columns that tasks write: the query's own, and the batch's number if set."""
        if not self.emitted_batch:
            return emitted
        return StructType([*emitted.fields, StructField(EMITTED_BATCH, LongType(), nullable=False)])


def _used(given: EventTimeSettings, names: Sequence[str], output: Iterable[str]) -> set[str]:
    if given.join is not None:
        return set().union(*given.join.fields().values())
    used = {*given.deduplicate, *given.group_by}
    if not given.aggregates:
        return used | set(output)
    for text in (_COUNT_STAR.sub("", expression) for expression in given.aggregates.values()):
        if "*" in text or "`" in text:
            return set(names)
        used |= {name for name in names if name.lower() in text.lower()}
    return used


def refusal(spark: SparkSession, given: EventTimeSettings) -> tuple[str, str] | None:
    """Return the first aggregate that is no expression, with Spark's message; only parses."""
    for name, expression in given.aggregates.items():
        # In parentheses it must be an expression and cannot add a clause.
        query = f"SELECT (\n{expression}\n) FROM {SOURCE}"  # noqa: S608  # only parsed
        if why := query_refusal(spark, query):
            return name, why
    return None


def frame_of(spark: SparkSession, definition: Definition, offers: str) -> DataFrame:
    """Return the query's frame, to be written in the mode given; raises `PySparkException`."""
    given = definition.settings
    several = len(definition.branches) > 1
    marked = marks(definition.read, several=several)
    schema: StructType = from_arrow_schema(marked, prefer_timestamp_ntz=False)
    staged = spark.readStream.format(FORMAT).schema(schema).option(OFFERS, offers).load()
    if given.join is not None:
        return join_columns(staged, given.join, definition.branches)
    is_own = several and not given.groups_by_time(definition.branches)
    time = _TIME if is_own else definition.branches[0].column
    if several:
        frame = _watched(staged, definition.branches, time)
    else:
        frame = behind(staged, time, definition.branches[0])
    if given.deduplicate:
        frame = frame.dropDuplicatesWithinWatermark(list(given.deduplicate))
    if not given.aggregates:
        return frame.select(*map(column, definition.output))
    return aggregate_columns(frame, given, time)


def aggregate_columns(frame: DataFrame, given: EventTimeSettings, time: str) -> DataFrame:
    """Return the aggregates of each window and group; ``time`` is the column of the rows' time."""
    values = [F.expr(text).alias(name) for name, text in given.aggregates.items()]
    if given.window is None:
        rows = frame.groupBy(*map(column, given.group_by)).agg(*values)
        return rows.toDF(*given.group_by, *given.aggregates)
    groups = [_window(time, given.window), *map(column, given.group_by)]
    rows = frame.groupBy(*groups).agg(*values).toDF(_WINDOW, *given.group_by, *given.aggregates)
    start, end = WINDOW_COLUMNS
    return rows.select(
        F.col(_WINDOW).start.alias(start),
        F.col(_WINDOW).end.alias(end),
        *map(column, (*given.group_by, *given.aggregates)),
    )


def _watched(staged: DataFrame, branches: Iterable[Branch], time: str) -> DataFrame:
    """Return the rows of several sources, each behind its own watermark, with their times."""
    longest_first = sorted(branches, key=lambda branch: (-branch.delay_us, branch.source))
    parts = [
        behind(
            staged.where(F.col(WHOSE) == branch.source).withColumn(time, column(branch.column)),
            time,
            branch,
        )
        for branch in longest_first
    ]
    return functools.reduce(DataFrame.unionByName, parts).drop(WHOSE)


def _window(time: str, window: WindowSettings) -> Column:
    if window.gap is not None:
        return F.session_window(column(time), f"{to_micros(window.gap)} microseconds")
    size = to_micros(window.size or "")
    slide = to_micros(window.slide) if window.slide else size
    return F.window(
        column(time),
        f"{size} microseconds",
        f"{slide} microseconds",
        f"{to_micros(window.offset)} microseconds",
    )

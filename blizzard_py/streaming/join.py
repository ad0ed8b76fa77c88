"""The frame of a join: the rows of two sources that belong together.

Both sides are in one stream, so that a batch comes in one micro-batch. Each column of a side has
its own name; otherwise Spark would read the stream twice.

**Fields that may be null.** Spark pushes a filter for them down below the watermark. Then rows with
a null, and ticks, would not move it; and an outer join would lose such rows, which it must emit. So
fields are compared as if two nulls were equal, which needs no filter. A mark on each side says that
a null matches nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everywhere

from blizzard_core.settings.event_time import Branch, JoinSettings
from blizzard_py.streaming.query_watermark import behind, column, is_time
from blizzard_py.streaming.source import TICK, WHOSE

LEFT, RIGHT = "left_", "right_"
# A side's mark if none of its fields is null, and if one is.
_WHOLE, _NULL = 0, {LEFT: 1, RIGHT: 2}
MARK = "_blizzard_mark"


def join_columns(staged: DataFrame, join: JoinSettings, branches: Sequence[Branch]) -> DataFrame:
    """Return the columns of the join over a stream with the rows of both sides."""
    own = {branch.source: branch for branch in branches}
    fields = join.fields()
    left, right = (
        _side(staged, side, own[source], fields[source], join.on)
        for side, source in ((LEFT, join.left), (RIGHT, join.right))
    )
    first, second = column(LEFT + own[join.left].column), column(RIGHT + own[join.right].column)
    equal = [column(LEFT + name).eqNullSafe(column(RIGHT + name)) for name in join.on]
    matches = functools.reduce(
        and_,
        [
            column(LEFT + MARK) == column(RIGHT + MARK),
            *equal,
            second >= first + F.lit(timedelta(microseconds=join.lower_us)),
            second <= first + F.lit(timedelta(microseconds=join.upper_us)),
        ],
    )
    rows = left.join(right, matches, join.type)
    return rows.select(
        *(_published(join, place).alias(name) for name, place in join.columns.items())
    )


def _side(
    staged: DataFrame, side: str, branch: Branch, fields: set[str], on: Sequence[str]
) -> DataFrame:
    """Return a source's rows behind their watermark, with those fields and a mark."""
    rows = staged.where(F.col(WHOSE) == branch.source).select(
        *(column(name).alias(side + name) for name in sorted({*fields, branch.column})),
        F.col(TICK),
    )
    time = side + branch.column
    has_all = functools.reduce(
        and_, (column(side + name).isNotNull() for name in on), is_time(time)
    )
    mark = F.when(has_all, _WHOLE).otherwise(_NULL[side])
    return behind(rows, time, branch).withColumn(side + MARK, mark)


def _published(join: JoinSettings, place: str) -> Column:
    found = join.split_field_name(place)
    assert found is not None  # noqa: S101  # the settings were checked
    source, field = found
    return column((LEFT if source == join.left else RIGHT) + field)

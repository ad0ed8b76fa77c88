"""The state of a query over event time, read from a copy of its archived state. For people.

Spark's own readers of a checkpoint directory return the operators, and keys and values of each
store. The copy is not the query's, so reading cannot disturb a running query. A join keeps the rows
of both sides, which are shown as an operator each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from blizzard_core.errors import EngineError
from blizzard_py.engines.spark.deduplication import quoted
from blizzard_py.engines.spark.failures import FAILURES, reason_of
from blizzard_py.streaming.join import MARK
from blizzard_py.streaming.query import SETTINGS

_MILLI = 1000
# Column and name of Spark's windows; and the name used here if a field has the same name.
_WINDOWS, _OF_TIME = {"key": "window", "value": "session_window"}, "window_of_time"


@dataclass(frozen=True, slots=True)
class StateRow:
    """One row of state. It is removed when the watermark has passed ``ends_ms``, if known."""

    key: dict[str, Any]
    value: dict[str, Any]
    ends_ms: int | None


@dataclass(frozen=True, slots=True)
class OperatorRows:
    """The state of one operator, by Spark's name: the number of rows, and those that end first.

    ``ending`` counts rows that end by the given time.
    """

    name: str
    count: int
    first: tuple[StateRow, ...]
    ending: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join. A row waits for so long after its ``time``; then it is removed."""

    name: Literal["left", "right"]
    source: str
    time: str
    on: tuple[str, ...]
    waits_ms: int


def sides_of(query: Mapping[str, Any]) -> tuple[Side, ...]:
    """Return both sides of a join; none for another query.

    The last matching time for a row of the left side is `upper` after its own, for the right side
    `lower` before. The watermark must pass that time.
    """
    join = query.get("join")
    if join is None:
        return ()
    times, on = query["sources"], tuple(join["on"])
    after, before = join["upper_us"] // _MILLI + 1, -join["lower_us"] // _MILLI + 1
    return (
        Side("left", join["left"], times[join["left"]], on, after),
        Side("right", join["right"], times[join["right"]], on, before),
    )


def _time_of(query: Mapping[str, Any]) -> str:
    """Return the field that ends groups without windows: all sources' event time, or none."""
    times = {query["column"]} if "column" in query else set(query.get("sources", {}).values())
    ends = len(times) == 1 and not query.get("window") and query.get("aggregates")
    return times.pop() if ends else ""


def read_operator_rows(
    root: SparkSession, copy: Path, most: int, query: Mapping[str, Any], until_ms: int = 0
) -> tuple[OperatorRows, ...]:
    """Return the operators of the checkpoint directory ``copy``, at most ``most`` rows each.

    Counts rows that end by ``until_ms``. ``query`` is the query stored with the state: the
    configuration may have changed since. Raises `EngineError`.
    """
    sides, time = sides_of(query), _time_of(query)
    session = root.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    try:
        if sides:
            return tuple(_of_side(session, copy, side, most, until_ms) for side in sides)
        stores = session.read.format("state-metadata").load(str(copy)).collect()
        found = []
        for store in sorted(stores, key=lambda row: row["operatorId"]):
            frame = (
                session.read.format("statestore")
                .option("operatorId", store["operatorId"])
                .option("storeName", store["stateStoreName"])
                .load(str(copy))
            )
            renamed = _rename_window(frame)
            found.append(
                _operator_rows(store["operatorName"], renamed, _ends(renamed, time), most, until_ms)
            )
        return tuple(found)
    except FAILURES as error:
        raise EngineError(f"the state of the query cannot be read: {reason_of(error)}") from None


def _of_side(
    session: SparkSession, copy: Path, side: Side, most: int, until_ms: int
) -> OperatorRows:
    """Return the waiting rows of one side of a join, the first operator of its query."""
    reader = session.read.format("statestore").option("operatorId", 0)
    rows = reader.option("joinSide", side.name).load(str(copy))
    prefix = f"{side.name}_"
    places = {
        name.removeprefix(prefix): f"value.{quoted(name)}"
        for name in _fields(rows, "value")
        if name.startswith(prefix) and name != prefix + MARK
    }
    others = [name for name in places if name not in side.on]
    frame = rows.selectExpr(
        f"{_struct(places, side.on)} AS key",
        f"{_struct(places, others)} AS value",
        f"{_millis(places[side.time])} + {side.waits_ms} AS ends",
    )
    return _operator_rows(f"join, {side.source}", frame, "ends", most, until_ms)


def _millis(time: str) -> str:
    """Return the first watermark that has passed an event time, which may be between two."""
    return f"-floor(-unix_micros({time}) / {_MILLI})"


def _struct(places: Mapping[str, str], names: Sequence[str]) -> str:
    return f"struct({', '.join(f'{places[name]} AS {quoted(name)}' for name in names)})"


def _operator_rows(
    name: str, frame: DataFrame, ends: str, most: int, until_ms: int
) -> OperatorRows:
    ending = frame.where(f"{ends} <= {until_ms}").count() if until_ms else 0
    return OperatorRows(name, frame.count(), _first(frame, ends, most), ending)


def _first(frame: DataFrame, ends: str, most: int) -> tuple[StateRow, ...]:
    """Return the first rows by their end, then by key."""
    rows = (
        frame.selectExpr("to_json(key) AS k", "to_json(value) AS v", f"{ends} AS e")
        .orderBy("e", "k")
        .limit(most)
        .collect()
    )
    return tuple(StateRow(json.loads(row["k"]), json.loads(row["v"]), row["e"]) for row in rows)


def _rename_window(frame: DataFrame) -> DataFrame:
    """Return the rows with Spark's window renamed if a field has the same name.

    Spark's comes first, in the key, or for sessions in the value.
    """
    for column, name in _WINDOWS.items():
        kind = frame.schema[column].dataType
        if isinstance(kind, StructType) and kind.fieldNames().count(name) > 1:
            own = StructField(_OF_TIME, kind[0].dataType, kind[0].nullable)
            named = frame[column].cast(StructType([own, *kind.fields[1:]]))
            frame = frame.withColumn(column, named)
    return frame


def _ends(frame: DataFrame, time: str) -> str:
    """Return the end of a row of state in milliseconds, as a Spark expression."""
    for column, name in _WINDOWS.items():
        kind = frame.schema[column].dataType
        first = kind[0] if isinstance(kind, StructType) and len(kind) else None
        # A field of rows may have this name and is no window.
        if first is not None and first.name in {name, _OF_TIME} and _is_window(first.dataType):
            return f"unix_millis({column}.{first.name}.end)"
    if "expiresAtMicros" in _fields(frame, "value"):
        return "value.expiresAtMicros DIV 1000"
    if time in _fields(frame, "key"):
        return _millis(f"key.{quoted(time)}")
    return "CAST(NULL AS BIGINT)"


def _is_window(kind: DataType) -> bool:
    return isinstance(kind, StructType) and kind.fieldNames() == ["start", "end"]


def _fields(frame: DataFrame, column: str) -> list[str]:
    kind = frame.schema[column].dataType
    return kind.fieldNames() if isinstance(kind, StructType) else []

"""What a query over event time remembers, read from a copy of its packed state. For people.

Spark's own readers of a checkpoint directory tell it: the operators, and of each store its keys and
values. The copy is not the query's, so nothing here can disturb one that runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from blizzard_core.errors import EngineError
from blizzard_py.engines.spark.failures import FAILURES, reason_of
from blizzard_py.streaming.query import SETTINGS


@dataclass(frozen=True, slots=True)
class Remembered:
    """One row of state. It is let go when the watermark has passed ``ends_ms``, if known."""

    key: dict[str, Any]
    value: dict[str, Any]
    ends_ms: int | None


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """The state of one operator, as Spark names it: how many rows, and those that end first.

    ``ending`` are those that end by the time that was asked for.
    """

    name: str
    count: int
    first: tuple[Remembered, ...]
    ending: int = 0


def remembered(
    root: SparkSession, copy: Path, most: int, until_ms: int = 0
) -> tuple[OperatorMemory, ...]:
    """The operators over the checkpoint directory ``copy``, with at most ``most`` rows of each.

    Counts rows that end by ``until_ms``. Raises `EngineError`.
    """
    session = root.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    try:
        stores = session.read.format("state-metadata").load(str(copy)).collect()
        found = []
        for store in sorted(stores, key=lambda row: row["operatorId"]):
            frame = (
                session.read.format("statestore")
                .option("operatorId", store["operatorId"])
                .option("storeName", store["stateStoreName"])
                .load(str(copy))
            )
            ending = frame.where(f"{_ends(frame)} <= {until_ms}").count() if until_ms else 0
            name, count = store["operatorName"], frame.count()
            found.append(OperatorMemory(name, count, _first(frame, most), ending))
        return tuple(found)
    except FAILURES as error:
        raise EngineError(f"the state of the query cannot be read: {reason_of(error)}") from None


def _first(frame: DataFrame, most: int) -> tuple[Remembered, ...]:
    """By the time that they end, then by key."""
    rows = (
        frame.selectExpr("to_json(key) AS k", "to_json(value) AS v", f"{_ends(frame)} AS e")
        .orderBy("e", "k")
        .limit(most)
        .collect()
    )
    return tuple(Remembered(json.loads(row["k"]), json.loads(row["v"]), row["e"]) for row in rows)


def _ends(frame: DataFrame) -> str:
    """The time in milliseconds at which a row of state ends, as an expression of Spark."""
    if "window" in _fields(frame, "key"):
        return "unix_millis(key.window.end)"
    if "session_window" in _fields(frame, "value"):
        return "unix_millis(value.session_window.end)"
    if "expiresAtMicros" in _fields(frame, "value"):
        return "value.expiresAtMicros DIV 1000"
    return "CAST(NULL AS BIGINT)"


def _fields(frame: DataFrame, column: str) -> list[str]:
    kind = frame.schema[column].dataType
    return kind.fieldNames() if isinstance(kind, StructType) else []

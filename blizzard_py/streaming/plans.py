"""Comparison of Spark's plans of one query in two spellings, or in two time zones.

One Spark plans both over the same columns, and compares the plans. No plan is stored: another
release of Spark makes another plan of the same text. The optimised plans are compared. Analysed
plans differ even for one text, since each ``WITH`` has a number, and by ``page AS page``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from blizzard_core.errors import ConfigError, EngineError
from blizzard_core.settings.document import SESSION_ZONE
from blizzard_core.settings.event_time import OURS, Branch, EventTimeSettings
from blizzard_py.engines.spark.failures import FAILURES, reason_of
from blizzard_py.engines.spark.transform import records, transformed
from blizzard_py.engines.spark.transform_guard import spark_message
from blizzard_py.engines.spark.worker import nothing
from blizzard_py.job import IngestSettings
from blizzard_py.streaming.check import definition_of
from blizzard_py.streaming.decode_job import decode_settings
from blizzard_py.streaming.operators import aggregate_columns
from blizzard_py.streaming.query_watermark import column

_EDGES = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


def differing(
    root: SparkSession,
    pipeline: str,
    definition: tuple[EventTimeSettings, tuple[Branch, ...]],
    settings: IngestSettings,
    queries: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> list[str]:
    """Return those of ``transform``, ``aggregates`` and ``zone`` that change the stored query.

    ``queries`` are the fingerprints of both, the stored one first. Raises `EngineError`, and
    `ConfigError` for a query that cannot be computed.
    """
    try:
        found = _Comparison(root, pipeline, definition, settings).differing(*queries)
        return list(dict.fromkeys(found))
    except AnalysisException as error:
        place = f"pipelines.{pipeline}.event_time"
        raise ConfigError(place, [spark_message(str(error))]) from None
    except FAILURES as error:
        raise EngineError(
            f"{pipeline}: the query could not be compared with the stored one: {reason_of(error)}"
        ) from None


class _Plan:
    """Spark's plan of a frame, and the names of its columns, in any order."""

    def __init__(self, frame: DataFrame, *, ignores_case: bool) -> None:
        names = sorted(frame.columns, key=str.lower)
        # The compared plans have no names.
        self.names = [*map(str.lower, names)] if ignores_case else names
        # Under other names: a different spelling would be a step of the plan.
        renamed = (column(name).alias(f"{OURS}{place}") for place, name in enumerate(names))
        selected: Any = frame.select(*renamed)
        # At once, since it depends on the session's current settings.
        self.plan = selected._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public name

    def is_same(self, other: _Plan) -> bool:
        return self.names == other.names and bool(self.plan.sameResult(other.plan))


class _Comparison:
    def __init__(
        self,
        root: SparkSession,
        pipeline: str,
        current: tuple[EventTimeSettings, tuple[Branch, ...]],
        settings: IngestSettings,
    ) -> None:
        self._root, self._pipeline = root, pipeline
        (self._given, self._branches), self._settings = current, settings
        definition = definition_of(root, pipeline, current, settings)
        self._session = root.newSession()
        self._records = records(self._session, decode_settings(settings), ())
        schema = from_arrow_schema(definition.input, prefer_timestamp_ntz=False)
        # Windows are compared by their settings; the plan of a session window contains the zone.
        self._window = _window_of(self._given, schema)
        schema = StructType([*schema.fields, *(StructField(name, _EDGES) for name in self._window)])
        self._rows = self._session.range(0, 0, 1, 1).mapInArrow(nothing, schema)

    def differing(self, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
        texts = [key for key in ("transform", "aggregates") if stored[key] != now[key]]
        if not self._can_compute(stored):
            yield from texts
            return
        plans: dict[str, Callable[[Any, str], _Plan]] = {"transform": self._transformed}
        if self._given.aggregates:
            plans["aggregates"] = self._aggregated
        zones = self._zone(stored["zone"]), self._zone(now["zone"])
        for key, plan in plans.items():
            yield from _differing(plan, key, (stored[key], now[key]), zones)

    def _can_compute(self, stored: Mapping[str, Any]) -> bool:
        """Return whether the stored query can run over the present columns."""
        given = self._given.model_copy(update={"aggregates": stored["aggregates"]})
        sql = replace(self._settings.sql, transform=stored["transform"])
        settings = replace(self._settings, sql=sql)
        try:
            definition_of(self._root, self._pipeline, (given, self._branches), settings)
        except ConfigError:
            return False
        return True

    def _zone(self, name: str) -> str:
        """Return the zone's canonical name: ``Etc/UTC`` is ``UTC``."""
        jvm: Any = self._session.sparkContext._jvm  # noqa: SLF001  # no public name
        zones = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
        return str(zones.getZoneId(name).normalized().getId())

    def _transformed(self, statement: str, zone: str) -> _Plan:
        self._session.conf.set(SESSION_ZONE, zone)
        # Names go into the table only if rows pass unchanged.
        ignores_case = bool(self._given.aggregates) or self._given.join is not None
        with transformed(self._session, self._records, statement) as frame:
            return _Plan(frame, ignores_case=ignores_case)

    def _aggregated(self, aggregates: Mapping[str, str], zone: str) -> _Plan:
        self._session.conf.set(SESSION_ZONE, zone)
        groups = [*self._given.group_by, *self._window]
        changed = {"aggregates": aggregates, "window": None, "group_by": groups}
        frame = aggregate_columns(self._rows, self._given.model_copy(update=changed), "")
        return _Plan(frame, ignores_case=False)


def _window_of(given: EventTimeSettings, schema: StructType) -> list[str]:
    """Return the name by which an aggregate may use its row's window."""
    if given.window is None:
        return []
    name = "window" if given.window.gap is None else "session_window"
    return [] if name in map(str.lower, schema.names) else [name]


def _differing(
    plan: Callable[[Any, str], _Plan], key: str, texts: tuple[Any, Any], zones: tuple[str, str]
) -> Iterator[str]:
    """Yield the key, or ``zone``, that makes two spellings compute different results."""
    (before, now), (zone_before, zone_now) = texts, zones
    if before == now and zone_before == zone_now:
        return
    current_plan = plan(now, zone_now)
    try:
        was, between = plan(before, zone_before), plan(before, zone_now)
    except AnalysisException:  # it uses columns that no longer exist
        yield key
        return
    if was.is_same(current_plan):
        return
    if not between.is_same(current_plan):
        yield key
    if not was.is_same(between):
        yield "zone"

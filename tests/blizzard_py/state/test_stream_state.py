"""A stream's part of the checkpoint: in and out of JSON, one batch on, changed queries refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_core.settings.event_time import Branch, EventTimeSettings
from blizzard_core.watermark.progress import Progress
from blizzard_py.job import FieldSpec, IngestSettings, OutputLayout, Place, RowSchema, SqlSteps
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.event_times import EventTimes, merge_buckets, merge_times
from blizzard_py.state.source_state import KindState, Position, SourceState, Summary, Totals
from blizzard_py.state.stream_query import check_query, fingerprint, resume, spelling_changes
from blizzard_py.state.stream_state import (
    HISTORY,
    OperatorState,
    Packed,
    QueryBatch,
    StreamState,
    add_query_batch,
)
from tests.support.flat_settings import nested

GIVEN: dict[str, Any] = {
    "column": "ts",
    "delay": "10 seconds",
    "window": "5 seconds",
    "group_by": ["page"],
    "aggregates": {"n": "count(*)"},
}
FIELDS = (FieldSpec("ts", "timestamp", nullable=False), FieldSpec("page", "string", nullable=True))


def query(
    fields: tuple[FieldSpec, ...] = FIELDS, transform: str = "", zone: str = "UTC", **changed: Any
) -> Any:
    ingest = IngestSettings(
        source=Place("a"),
        sink=Place("b"),
        schema=RowSchema(fields),
        layout=OutputLayout("snappy", file_bytes=1),
        sql=SqlSteps(transform=transform),
    )
    branches = changed.pop("branches", None)
    given = EventTimeSettings.model_validate(nested(EventTimeSettings, GIVEN | changed))
    return fingerprint(given, branches or (Branch("web", given.column, 0),), ingest, zone)


PACKS = {"metadata": Packed("state/1.tar", 45, "d")}
TIMES = EventTimes(2, 90_000, 107_000, 98_500.5, (1, 0, 0, 1, *[0] * 9))


def batch(number: int, **values: int) -> QueryBatch:
    told = {"files": 1, "rows": 2, "used_watermark_ms": 0, "watermark_ms": 0, **values}
    return QueryBatch(batch=number, **told)


def after(state: StreamState, one: QueryBatch, newest: int | None = None) -> StreamState:
    operator = OperatorState("stateStoreSave", one.state_rows, 10, updated_rows=2)
    return add_query_batch(
        state,
        replace(one, operators=(operator,), times=TIMES),
        PACKS,
        judged_ms=one.used_watermark_ms,
        max_event_time_ms=newest,
    )


def test_a_saved_state_is_read_as_it_was() -> None:
    stream = after(StreamState(query=query()), batch(1, watermark_ms=97_000, late_rows=3), 107_000)
    state = SourceState(kind=KindState(stream=stream))
    document = json.loads(json.dumps(state_to_json(state, 5.0)))
    assert state_from_json(document, "here").kind.stream == stream


def test_a_checkpoint_without_a_query_has_nothing_of_it() -> None:
    assert "stream" not in state_to_json(SourceState(), 5.0)


def test_counts_add_up_and_the_newest_time_never_falls() -> None:
    state = after(StreamState(query={}), batch(1, late_rows=1, ahead_rows=2), 500)
    state = after(state, batch(2, late_rows=4, partly_late_rows=1), 300)
    state = after(state, batch(3), None)
    assert (state.late_rows, state.ahead_rows, state.partly_late_rows) == (5, 2, 1)
    assert (state.batch, state.max_event_time_ms) == (3, 500)


def test_times_of_parts_are_those_of_all_rows() -> None:
    other = EventTimes(1, 80_000, 80_000, 80_000.0, (0, 0, 0, 0, 1, *[0] * 8))
    assert merge_times([TIMES, None, other]) == EventTimes(
        3, 80_000, 107_000, 92_333.667, (1, 0, 0, 1, 1, *[0] * 8)
    )
    assert merge_times([None]) is None
    assert merge_buckets([]) == (0,) * 13


def test_spark_drops_are_unaccounted_unless_rows_are_partly_late() -> None:
    state = after(StreamState(query={}), batch(1, dropped_by_spark=2))
    assert state.unaccounted_rows == 2
    assert after(state, batch(2, dropped_by_spark=1, partly_late_rows=3)).unaccounted_rows == 2


def test_the_history_is_bounded() -> None:
    state = StreamState(query={})
    for number in range(1, HISTORY + 5):
        state = after(state, batch(number))
    assert [one.batch for one in state.history] == list(range(5, HISTORY + 5))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"column": "other"}, "event_time.column"),
        ({"window": "6 seconds"}, "event_time.window"),
        ({"window": {"size": "5 seconds", "slide": "1 second"}}, "event_time.window"),
        ({"group_by": []}, "event_time.group_by"),
        ({"aggregates": {"m": "count(*)"}}, r"event_time\.aggregates were n and are m"),
        ({"aggregates": {}, "deduplicate": ["page"]}, r"aggregates were n and are absent"),
        ({"deduplicate": ["page"]}, "event_time.deduplicate"),
        ({"partitions": 3}, "event_time.partitions"),
    ],
)
def test_a_changed_query_is_refused_by_name(changed: dict[str, Any], named: str) -> None:
    state = SourceState(kind=KindState(stream=StreamState(query=json.loads(json.dumps(query())))))
    with pytest.raises(StateError, match=named):
        check_query(state, query(**changed), "here")


def test_aggregates_in_another_order_are_refused() -> None:
    before, now = {"n": "count(*)", "m": "sum(1)"}, {"m": "sum(1)", "n": "count(*)"}
    state = SourceState(
        kind=KindState(stream=StreamState(query=json.loads(json.dumps(query(aggregates=before)))))
    )
    with pytest.raises(StateError, match=r"event_time\.aggregates were n, m and are m, n"):
        check_query(state, query(aggregates=now), "here")


def test_texts_and_zone_are_for_spark_to_judge() -> None:
    kept = query()
    state = SourceState(kind=KindState(stream=StreamState(query=kept)))
    now = query(transform="SELECT 1", zone="Etc/UTC", aggregates={"n": "COUNT(*)"})
    check_query(state, now, "here")
    assert spelling_changes(kept, now) == {
        "transform": "transform was absent and is 'SELECT 1'",
        "aggregates": "event_time.aggregates.n was 'count(*)' and is 'COUNT(*)'",
        "zone": "spark.conf: spark.sql.session.timeZone was 'UTC' and is 'Etc/UTC'",
    }
    assert spelling_changes(kept, kept) == {}


def test_an_older_checkpoint_adopts_the_zone() -> None:
    now = query(zone="Europe/Berlin")
    old = StreamState(query={k: v for k, v in query().items() if k != "zone"}, packs=PACKS)
    assert spelling_changes(old.query, now) == {}
    check_query(SourceState(kind=KindState(stream=old)), now, "here")
    assert resume(old, now).query == now


def test_the_next_batch_takes_over_the_spelling_and_nothing_else() -> None:
    old = StreamState(query=query(policy="min"), packs=PACKS, batch=3)
    now = query(policy="max", aggregates={"n": "COUNT(*)"}, fields=FIELDS[:1])
    assert resume(old, now) == replace(old, query=old.query | {"aggregates": {"n": "COUNT(*)"}})
    assert resume(replace(old, packs={}), now).query == now
    assert resume(None, now) == StreamState(query=now)


def test_a_changed_type_is_refused_by_name() -> None:
    state = SourceState(kind=KindState(stream=StreamState(query=query())))
    fields = (FIELDS[0], FieldSpec("page", "int64", nullable=True))
    with pytest.raises(StateError, match=r"schema.fields: page was string and is int64"):
        check_query(state, query(fields=fields), "here")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"delay": "1 hour"},
        {"max_ahead": "1 hour"},
        {"late_rows": "count"},
        {"emit": "next_batch"},
        {"policy": "max"},
        {"window": "5000 milliseconds"},
    ],
)
def test_settings_that_the_state_does_not_depend_on_may_change(changed: dict[str, Any]) -> None:
    check_query(
        SourceState(kind=KindState(stream=StreamState(query=query()))), query(**changed), "here"
    )


@pytest.mark.promise("G-080")
def test_new_query_is_refused_after_uncounted_plain_output() -> None:
    check_query(SourceState(), query(), "here")
    made_again = SourceState(
        position=Position(Progress("Active", "a.ndjson"))
    )  # of a checkpoint that was lost
    for state in (made_again, SourceState(summary=Summary(totals=Totals(batches=1)))):
        check_query(state, None, "here")
        with pytest.raises(StateError, match="published rows as they came"):
            check_query(state, query(), "here")


SEVERAL = (Branch("app", "ts", 1), Branch("web", "seen", 2))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, SEVERAL, "sources: there was one, and there are 2"),
        (SEVERAL, None, "sources: were app, web"),
        (SEVERAL, (*SEVERAL, Branch("bus", "ts", 0)), "were app, web and are app, web, bus"),
        (SEVERAL, (SEVERAL[0], Branch("www", "seen", 2)), "were app, web and are app, www"),
        (SEVERAL, (SEVERAL[0], Branch("web", "ts", 2)), "sources.web was 'seen' and is 'ts'"),
    ],
)
def test_the_sources_of_a_query_stay_what_they_were(before: Any, now: Any, said: str) -> None:
    state = SourceState(
        kind=KindState(stream=StreamState(query=json.loads(json.dumps(query(branches=before)))))
    )
    with pytest.raises(StateError, match=said):
        check_query(state, query(branches=now), "here")


JOIN: dict[str, Any] = {
    "left": "app",
    "right": "web",
    "on": ["page"],
    "lower": "0 seconds",
    "upper": "1 minute",
    "columns": {"page": "app.page"},
}
JOINED: dict[str, Any] = {
    "window": None,
    "group_by": [],
    "aggregates": {},
    "branches": SEVERAL,
    "join": JOIN,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"left": "web", "right": "app"}, r"event_time\.join\.left was 'app' and is 'web'"),
        ({"type": "left"}, r"event_time\.join\.type was 'inner' and is 'left_outer'"),
        ({"on": ["page", "ts"]}, r"event_time\.join\.on was"),
        ({"upper": "2 minutes"}, r"event_time\.join\.upper_us was 60000000 and is 120000000"),
        ({"lower": "-1 second"}, r"event_time\.join\.lower_us was 0 and is -1000000"),
        ({"columns": {"page": "web.page"}}, r"event_time\.join\.columns was"),
    ],
)
def test_a_changed_join_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    state = SourceState(
        kind=KindState(stream=StreamState(query=json.loads(json.dumps(query(**JOINED)))))
    )
    check_query(state, query(**JOINED | {"join": JOIN | {"upper": "60 seconds"}}), "here")
    with pytest.raises(StateError, match=said):
        check_query(state, query(**JOINED | {"join": JOIN | changed}), "here")


def test_the_order_of_fields_that_are_compared_stays() -> None:
    two = JOINED | {"join": JOIN | {"on": ["page", "ts"]}}
    state = SourceState(
        kind=KindState(stream=StreamState(query=json.loads(json.dumps(query(**two)))))
    )
    with pytest.raises(StateError, match=r"event_time\.join\.on"):
        check_query(state, query(**JOINED | {"join": JOIN | {"on": ["ts", "page"]}}), "here")


def test_a_join_neither_comes_nor_goes() -> None:
    windows = query(branches=SEVERAL)
    state = SourceState(kind=KindState(stream=StreamState(query=windows)))
    with pytest.raises(StateError, match=r"event_time\.window was"):
        check_query(state, query(**JOINED), "here")
    state = SourceState(kind=KindState(stream=StreamState(query=query(**JOINED))))
    with pytest.raises(StateError, match=r"event_time\.join was .* and is absent"):
        check_query(state, windows, "here")


def test_the_delay_of_a_source_may_change() -> None:
    state = SourceState(kind=KindState(stream=StreamState(query=query(branches=SEVERAL))))
    later = tuple(replace(each, delay_us=9, idle_us=5) for each in SEVERAL)
    check_query(state, query(branches=later), "here")


def test_a_field_may_be_added() -> None:
    fields = (*FIELDS, FieldSpec("more", "string", nullable=True))
    check_query(
        SourceState(kind=KindState(stream=StreamState(query=query()))), query(fields=fields), "here"
    )


def test_a_pipeline_neither_becomes_a_query_nor_stops_being_one() -> None:
    running = SourceState(summary=Summary(totals=replace(Totals(), batches=1)))
    with pytest.raises(StateError, match="as they came"):
        check_query(running, query(), "here")
    with pytest.raises(StateError, match="the configuration has none"):
        check_query(SourceState(kind=KindState(stream=StreamState(query=query()))), None, "here")
    check_query(SourceState(), query(), "here")
    check_query(running, None, "here")

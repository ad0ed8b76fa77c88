"""Joins of two sources on real Spark: every pair once, rows without one in time, late ones told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import ConfigError, StateError
from blizzard_py.app.event_state import event_state, operators_ending_by
from blizzard_py.app.wiring import ingest_settings, query_columns
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.kernels.lateness import Rule
from tests.support.event_time_harness import FIELDS, TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import row
from tests.support.join_oracle import BOTH, LEFT, TWO, JoinOracle, joined_rows, joining
from tests.support.stream_deaths import DEATHS, drain_and_die

MILLI = 0.001
MICRO = 0.000001

Rows = list[dict[str, Any]]


def world_of(
    folder: Path, engine: SparkEngine, settings: dict[str, Any], sources: Any = None
) -> tuple[EventTimeHarness, JoinOracle]:
    sources = TWO if sources is None else sources
    return EventTimeHarness(folder, engine, settings, sources=sources), JoinOracle(
        settings, sources
    )


def step(
    world: EventTimeHarness, oracle: JoinOracle, web: Rows | None = None, app: Rows | None = None
) -> None:
    """A batch: a file of each source that has rows; told to the oracle, and not drained yet."""
    files = {world.put(web): web} if web is not None else {}
    if app is not None:
        files[world.put(app, "app")] = app
    oracle.add_batch(files, whose=world.whose)


def check(world: EventTimeHarness, oracle: JoinOracle) -> None:
    """Check that the rows equal brute force, and that no unnamed object is left."""
    stream = world.stream()
    assert joined_rows(world.table()) == oracle.emitted
    assert world.late() == oracle.late
    assert [one.watermark_ms for one in stream.history] == oracle.watermarks
    assert [one.late_rows for one in stream.history] == oracle.late_counts
    assert stream.unaccounted_rows == 0
    assert len(set(world.output_ids())) == len(world.output_ids())
    assert world.packs() == stream.objects


@pytest.mark.promise("G-082")
def test_rows_come_with_their_match_or_once_there_will_be_none(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    """On both edges of the bounds and of the watermark, to the microsecond.

    Of this type alone: the random streams, deaths and transforms below have the others.
    """
    world, oracle = world_of(tmp_path, spark_engine, joining("right_outer"))
    # Between -3 and +5 seconds: 1 and 2 are on the edges, 3 and 4 a microsecond beyond.
    web = [row(100, id_=one) for one in (1, 2, 3, 4, 1, 7)]
    app = [
        row(105, id_=1),
        row(97, id_=2),
        row(105 + MICRO, id_=3),
        row(97 - MICRO, id_=4),
        row(101, id_=8),
    ]
    step(world, oracle, web, app)
    # The watermark comes to 105, at which a row of 100 may still have a match, and later not.
    step(world, oracle, [row(115, id_=20)], [row(115, id_=21)])
    step(world, oracle, [row(115 + MILLI, id_=20)], [row(115 + MILLI, id_=21)])
    # What is not above it is late.
    late = [row(105 + MILLI, id_=20), row(105 + MILLI + MICRO, id_=20)]
    step(world, oracle, late, [row(105, id_=20), row(106, id_=20)])
    step(world, oracle, [row(160, id_=30)], [row(160, id_=31)])
    step(world, oracle, [row(200, id_=30)], [row(200, id_=31)])
    world.drain()
    check(world, oracle)
    assert sum(oracle.late.values()) == 2


@pytest.mark.promise("G-072")
def test_each_side_may_have_fields_and_a_time_of_its_own(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    user = {"name": "user", "type": "string", "nullable": False}
    at = {"name": "at", "type": "timestamp", "nullable": False}
    amount = {"name": "amount", "type": "int64", "nullable": False}
    sources = {
        "web": {"schema": {"fields": [user]}},
        "app": {"schema": {"fields": [at, amount]}, "event_time": {"column": "at"}},
    }
    settings = joining("left_outer")
    settings["join"]["columns"] = {"id": "web.id", "user": "web.user", "amount": "app.amount"}
    world = EventTimeHarness(tmp_path, spark_engine, settings, sources=sources)
    world.pipeline_settings["error_handling"] = {"max_bad_fraction": 0.9}

    def web(second: float, id_: int) -> dict[str, Any]:
        return row(second, id_=id_) | {"user": f"u{id_}", "amount": 99}  # that one is app's

    def app(second: float, id_: int) -> dict[str, Any]:
        one = row(0, id_=id_)  # its ``ts`` is a field like others
        return one | {"at": row(second)["ts"], "amount": id_ * 10}

    world.put([web(100, 1), web(101, 2), row(102, id_=3)])  # 3 has no user
    world.put([app(104, 1), {**app(104, 2), "amount": None}], "app")
    world.drain()  # a process of its own
    world.put([web(200, 8), web(85, 9)])  # 9 is late
    world.put([app(200, 8)], "app")
    world.put([web(300, 7)])
    world.put([app(300, 6)], "app")
    world.drain()
    rows = [(one["id"], one["user"], one["amount"]) for one in world.table()]
    assert sorted(rows) == [(1, "u1", 10), (2, "u2", None), (8, "u8", 80)]
    assert dict(world.late()) == {("0003.ndjson", 2): 1}
    bad = [letter["line"] for letter in world.letters() if letter["stage"] != "late"]
    assert bad == [3, 2]
    [own, other] = (letter["error"] for letter in world.letters() if letter["stage"] != "late")
    assert "user" in own
    assert "amount" in other


def test_full_outer_join_publishes_when_no_match_can_come(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    """Unmatched rows come once the watermark passed their bounds."""
    world, oracle = world_of(tmp_path, spark_engine, joining("full_outer"))
    a, b, c, d, e, f = range(6)
    steps = [
        ([row(100, id_=a), row(100, id_=b)], [row(105, id_=a), row(101, id_=c)]),
        ([row(115, id_=d)], [row(115, id_=d)]),
        ([row(115.001, id_=e)], [row(115.001, id_=e)]),
        ([row(104, id_=f)], [row(107, id_=f)]),
    ]
    for web, app in steps:
        step(world, oracle, web, app)
    world.drain()
    check(world, oracle)
    table = {(one["_emitted_batch"], one["id"], one["other_id"]) for one in world.table()}
    assert table == {(1, a, a), (2, d, d), (2, None, c), (3, e, e), (3, b, None)}
    base = 1_706_450_400_000
    marks = [one.watermark_ms - base for one in world.stream().history]
    assert marks == [90_000, 105_000, 105_001, 105_001]


@pytest.mark.promise("G-082")
@pytest.mark.parametrize(
    "settings",
    [
        joining("full", emit="next_batch"),
        joining("left", lower="-9 seconds", upper="-4 seconds", partitions=2),
        joining("semi", policy="max"),
    ],
    ids=["later", "before", "semi"],
)
@pytest.mark.timeout(900)  # a loaded machine takes ten times as long
def test_random_streams_are_as_brute_force_has_them(
    tmp_path: Path, spark_engine: SparkEngine, settings: dict[str, Any]
) -> None:
    draw = random.Random(repr({key: settings[key] for key in settings if key != "partitions"}))
    sources = {"web": {}, "app": {"event_time": {"column": "seen", "delay": "4 seconds"}}}
    world, oracle = world_of(tmp_path, spark_engine, settings, sources)
    now = 100.0
    for _ in range(2):
        oracle.restart()
        for _ in range(3):
            found: dict[str, Rows] = {"web": [], "app": []}
            for rows in found.values():
                for _ in range(draw.choice([0, 3, 12])):
                    now += draw.choice([0, 0.5, 1, 3])
                    behind = draw.choice([0, 0, 1, 3.25, 9, 10, 14, 30, 90])
                    edge = draw.choice([0, 0, MICRO, -MICRO, MILLI, -MILLI])
                    id_ = draw.choice([None, 0, 1, 2, 3])
                    rows.append(row(now - behind + edge, bytes_=draw.randint(1, 9), id_=id_))
            step(world, oracle, found["web"], found["app"])
        world.drain()
    check(world, oracle)
    assert oracle.late
    assert len(oracle.emitted) > 3


@pytest.mark.promise("G-082")
def test_spark_drops_the_very_rows_that_are_late_by_our_rule(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With our own rule out of the way: Spark counts as many, and gives the same rows."""
    world, oracle = world_of(tmp_path, spark_engine, joining("full_outer"))
    step(world, oracle, [row(130, id_=1)], [row(130, id_=1)])
    times = (120, 120 - MILLI, 120 + MICRO, 120 + MILLI, 121)
    step(world, oracle, *([row(one, id_=2) for one in times] for _ in range(2)))
    step(world, oracle, [row(170, id_=1)], [row(170, id_=1)])
    never = Rule("ts", "never")
    monkeypatch.setattr(
        "blizzard_py.streaming.jobs.rules_of",
        lambda _, branches: {branch.source: never for branch in branches},
    )
    world.drain()
    assert joined_rows(world.table()) == oracle.emitted
    assert world.stream().unaccounted_rows == sum(oracle.late.values()) == 4


@pytest.mark.promise("G-082")
def test_a_null_matches_nothing_and_moves_the_watermark(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, joining("inner"))
    step(world, oracle, [row(100, id_=None)], [row(100, id_=None)])
    step(world, oracle, [row(95, id_=1), row(140, id_=None)], [row(94, id_=1), row(140, id_=None)])
    world.drain()
    check(world, oracle)
    assert world.stream().watermark_ms == oracle.watermarks[-1] > oracle.watermarks[0] > 0
    assert len(world.table()) == 1


def test_operator_and_idle_source_move_the_watermark_of_a_join(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    sources = {"web": {}, "app": {"event_time": {"idle_after": "1 millisecond"}}}
    world, oracle = world_of(tmp_path, spark_engine, joining("left"), sources)
    step(world, oracle, [row(100, id_=1), row(101, id_=2)], [row(100, id_=1)])
    world.drain()
    oracle.restart()
    step(world, oracle, [row(130, id_=3)])  # of app nothing comes
    world.drain()
    assert world.stream().sources["app"].idle
    to_ms = world.advance(150)
    oracle.restart()
    oracle.add_batch({}, to_ms)
    world.drain()
    check(world, oracle)
    assert world.stream().watermark_ms == to_ms
    assert world.stream().state_rows == 0
    assert sum(one["other_id"] is None for one in world.table()) == 2


@pytest.mark.promise("G-071", "G-082")
@pytest.mark.timeout(900)  # a loaded machine takes ten times as long
def test_a_join_survives_deaths(tmp_path: Path, spark_engine: SparkEngine) -> None:
    world, oracle = world_of(tmp_path, spark_engine, joining("full"))
    step(world, oracle, [row(100, id_=1)], [row(99, id_=1)])
    world.drain()
    planned = []
    for number, point in enumerate(DEATHS):
        now, id_ = 112 + 7 * number, number + 10
        web = [row(now, id_=id_), row(now, id_=id_ + 100), row(now - 25, id_=id_)]
        app = [row(now - 1, id_=id_), row(now - 4, id_=id_ - 1), row(60, id_=id_)]
        planned.append({world.put(web): web, world.put(app, "app"): app})
        assert drain_and_die(world, point), point
    world.drain()
    for files in planned:
        if oracle.number in world.starts:
            oracle.restart()
        oracle.add_batch(files, whose=world.whose)
    check(world, oracle)
    assert sum(oracle.late.values()) > len(DEATHS)


def test_event_state_shows_rows_waiting_on_both_sides(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: spark_engine)
    monkeypatch.setattr(spark_engine, "stop", lambda: None)
    world, oracle = world_of(tmp_path, spark_engine, joining("left"))
    step(world, oracle, [row(107, id_=2), row(100 + MICRO, id_=1)], [row(101, id_=1)])
    world.drain()
    config = world.config()
    told = event_state(config, "pages", 5)["pipelines"]["pages"]
    assert told["source"] == "app, web"
    web, app = told["operators"]
    assert (web["name"], web["rows"]) == ("join, web", 2)
    assert (app["name"], app["rows"]) == ("join, app", 1)
    first, second = web["first"]
    assert first["key"] == {"id": 1}
    assert first["value"] == {"bytes": 1, "ts": "2024-01-28T14:01:40.000Z"}
    # A match may come until five seconds later; the watermark has to be behind that.
    assert first["ends"] == "2024-01-28T14:01:45.002Z"
    assert second["ends"] == "2024-01-28T14:01:52.001Z"
    assert first["let_go_by_a_row_after"] == "2024-01-28T14:01:55.002Z"
    assert app["first"][0]["ends"] == "2024-01-28T14:01:44.001Z"
    base = 1_706_450_400_000
    for until, ending in ((105_001, (0, 1)), (105_002, (1, 1)), (112_001, (2, 1))):
        found = operators_ending_by(config, ("pages", "web"), base + until)
        assert tuple(each.ending for each in found) == ending
    # It is so: a millisecond before the first row's end it is there, and then it is not.
    for moment, left in ((105.001, 2), (105.002, 1)):
        to_ms = world.advance(moment)
        oracle.restart()
        oracle.add_batch({}, to_ms)
        world.drain()
        assert world.stream().watermark_ms == to_ms
        assert world.stream().state_rows == oracle.waiting() == left
    check(world, oracle)


@pytest.mark.parametrize("type_", ["inner", "full", "semi"])
def test_the_columns_of_a_join_are_those_that_are_named(
    tmp_path: Path, spark_engine: SparkEngine, type_: str
) -> None:
    """Any of them may be null: in each type but two a match may be missing."""
    world, _ = world_of(tmp_path, spark_engine, joining(type_))
    pipeline = world.config().pipelines["pages"]
    settings = ingest_settings(pipeline, pipeline.sources["web"])
    columns = query_columns(spark_engine, pipeline)("pages", settings)
    named = LEFT if type_ == "semi" else BOTH
    assert columns.names == [*named, "_emitted_batch"]
    assert all(columns.field(name).nullable for name in named)


@pytest.mark.parametrize("kind", ["join", "sessions"])
def test_a_time_may_have_any_name(tmp_path: Path, spark_engine: SparkEngine, kind: str) -> None:
    odd = "event.time of `it`"
    settings = joining("left") if kind == "join" else TUMBLING | {"window": {"gap": "4 seconds"}}
    if kind == "join":
        settings["join"] |= {"columns": {"at": f"web.{odd}", "other": f"app.{odd}"}}
    world = EventTimeHarness(
        tmp_path,
        spark_engine,
        settings | {"column": odd},
        {"schema": {"fields": [FIELDS[0] | {"name": odd}, *FIELDS[1:]]}},
        sources=TWO if kind == "join" else {"web": {}},
    )
    pipeline = world.config().pipelines["pages"]
    given = ingest_settings(pipeline, pipeline.sources["web"])
    columns = query_columns(spark_engine, pipeline)("pages", given)
    assert columns.names[0] == ("at" if kind == "join" else "window_start")


def test_another_join_over_the_same_state_is_refused_by_name(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, joining("inner"))
    step(world, oracle, [row(100, id_=1)], [row(101, id_=1)])
    world.drain()
    world.event_time = joining("left", upper="6 seconds")
    with pytest.raises(StateError, match=r"event_time\.join\.type was 'inner' and is 'left_outer'"):
        world.drain()
    world.event_time = joining("inner", delay="1 minute", upper="5000 milliseconds")
    world.drain()
    check(world, oracle)


def test_a_transform_before_a_join_must_keep_its_columns(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, joining("inner"))
    handed = "SELECT ts, id, bytes, _source_file, _source_line FROM source WHERE bytes < 5"
    world.pipeline_settings["transform"] = handed
    step(world, oracle, [row(100, id_=1), row(120, id_=2)], [row(101, id_=1), row(120, id_=2)])
    step(world, oracle, [row(99, id_=1)], [row(105, id_=1)])
    gone = [row(121, id_=2, bytes_=9)]
    world.put(gone)
    oracle.add_batch({})
    world.drain()
    check(world, oracle)
    for gives, said in (
        ("bytes", r"join\.on: 'id' is not a column of the transform's result"),
        ("id, bytes, bytes AS _blizzard_mark", "names beginning with _blizzard_ are reserved"),
    ):
        world.pipeline_settings["transform"] = handed.replace("id, bytes", gives)
        pipeline = world.config().pipelines["pages"]
        settings = ingest_settings(pipeline, pipeline.sources["web"])
        with pytest.raises(ConfigError, match=said):
            query_columns(spark_engine, pipeline)("pages", settings)


def test_fields_that_are_required_are_compared_as_well(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, joining("full"))
    fields = [dict(one) for one in FIELDS]
    for one in fields:
        one["nullable"] = False
    world.pipeline_settings["schema"] = {"fields": fields}
    step(world, oracle, [row(100, id_=1), row(101, id_=0)], [row(102, id_=1)])
    step(world, oracle, [row(140, id_=3)], [row(141, id_=0)])
    world.drain()
    oracle.restart()
    oracle.add_batch({}, world.advance(170))
    world.drain()
    check(world, oracle)
    assert len(world.table()) == 4

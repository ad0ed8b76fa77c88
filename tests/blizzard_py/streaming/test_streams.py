"""A pipeline over event time on real Spark: what is emitted, what is late, what a restart keeps."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from blizzard_core.errors import ConfigError, StateError
from blizzard_core.settings.document import Config
from blizzard_py.__main__ import main
from blizzard_py.app.event_state import event_state, operators_ending_by
from blizzard_py.app.explaining import explain
from blizzard_py.app.page_history import SourceHistory
from blizzard_py.app.wiring import ingest_settings, query_columns
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.streaming.query import StreamQuery
from tests.support.event_time_harness import FIELDS, TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import BASE, Oracle, row, windows_of

SLIDING = TUMBLING | {
    "window": {"size": "10 seconds", "slide": "4 seconds", "offset": "1 seconds"},
    "partitions": 2,
}
SESSIONS = TUMBLING | {"window": {"gap": "4 seconds"}}
LAZY = TUMBLING | {"emit": "next_batch"}
UPDATES = TUMBLING | {"mode": "update"}
EVERYTHING = SLIDING | {"mode": "complete", "partitions": 3}
ALL_SESSIONS = SESSIONS | {"mode": "complete"}
GROUPS = {key: value for key, value in TUMBLING.items() if key != "window"}
MOMENTS = GROUPS | {"group_by": ["ts", "page"]}
# Each kind of result, each mode, and both ways to emit. Random rows through windows that are all
# kept, or come with the next batch, are in the test of a state that is reset.
QUERIES = [
    SLIDING,
    SESSIONS,
    UPDATES,
    ALL_SESSIONS,
    GROUPS | {"mode": "update"},
    MOMENTS | {"mode": "update", "emit": "next_batch"},
]
PAGE = {"name": "page", "type": "string", "nullable": False}
UNIQUE: dict[str, Any] = {"column": "ts", "delay": "6 seconds", "deduplicate": ["id"]}

Rows = list[dict[str, Any]]


@pytest.fixture
def world(tmp_path: Path, spark_engine: SparkEngine) -> EventTimeHarness:
    return EventTimeHarness(tmp_path, spark_engine)


def run_batches(world: EventTimeHarness, oracle: Oracle, batches: list[Rows]) -> None:
    """The batches, each a file, through the world and the oracle."""
    for rows in batches:
        oracle.add_batch({world.put(rows): rows})
    world.drain()


def agree(world: EventTimeHarness, oracle: Oracle) -> None:
    stream = world.stream()
    assert world.late() == oracle.late
    assert [one.watermark_ms for one in stream.history] == oracle.watermarks
    assert [one.late_rows for one in stream.history] == oracle.late_counts
    assert stream.late_rows == sum(oracle.late_counts)
    assert stream.unaccounted_rows == 0
    assert world.packs() == stream.objects
    assert len(set(world.output_ids())) == len(world.output_ids())


def random_batches(draw: random.Random, batches: int) -> list[Rows]:
    """Rows around a time that goes on, some far behind it, on the edges of windows or not."""
    found: list[Rows] = []
    now = 0.0
    for _ in range(batches):
        rows = []
        for _ in range(draw.choice([0, 3, 8, 20])):
            now += draw.choice([0, 0.5, 1, 5, 11])
            behind = draw.choice([0, 0, 1, 3.25, 9, 10, 14, 30])
            edge = draw.choice([0, 0, 0.000001, -0.000001, 0.001, -0.001])
            second = 100 + now - behind + edge
            rows.append(row(second, draw.choice("ab"), draw.randint(1, 9), draw.randint(0, 12)))
        found.append(rows)
    return found


@pytest.mark.promise("G-074")
def test_windows_come_out_when_the_watermark_has_passed_them(world: EventTimeHarness) -> None:
    oracle = Oracle(TUMBLING)
    run_batches(
        world,
        oracle,
        [
            [row(107), row(101, bytes_=5), row(103, "b")],
            [row(118)],
            [row(101), row(104, "b"), row(119)],  # the first two are late: their window is over
            [],
            [row(140, "b")],
        ],
    )
    agree(world, oracle)
    assert windows_of(world.table()) == oracle.emitted
    told = explain(world.config(), str(world.root / "raw" / "0003.ndjson"))
    assert told.verdict == "ingested"
    assert told.out_of_time == {"late": 2, "ahead": 0}
    assert told.reason.endswith(".records.ndjson: 2 late")
    journal = sorted((world.root / "table" / "_blizzard" / "journal" / "pages_web").glob("*.json"))
    lines = [json.loads(path.read_text())["event_time"] for path in journal]
    stream = world.stream()
    assert lines == json.loads(json.dumps([asdict(line) for line in stream.history]))
    base = 1_706_450_400_000
    told_times = [line["times"] for line in lines if line["times"]]
    assert [(t["count"], t["min_ms"] - base, round(t["avg_ms"] - base)) for t in told_times] == [
        (3, 101_000, 103_667),
        (1, 118_000, 118_000),
        (3, 101_000, 108_000),
        (1, 140_000, 140_000),
    ]
    # 17, 14 and -1 s behind the newest of the batches before.
    assert told_times[2]["behind"][:5] == [1, 0, 0, 1, 1]
    operators = [operator for line in lines for operator in line["operators"]]
    changes = [(one["updated_rows"], one["removed_rows"]) for one in operators]
    assert changes == [(3, 0), (1, 2), (1, 0), (0, 0), (1, 2)]
    assert {one["name"] for one in operators} == {"stateStoreSave"}
    assert all(one["state_bytes"] for one in operators)
    # Of the rows that are late ours is the only count: Spark is not given them.
    assert [one["dropped_rows"] for one in operators] == [0] * 5
    assert [line["max_event_time_ms"] for line in lines] == [
        1_706_450_400_000 + 1000 * newest for newest in (107, 118, 119, 119, 140)
    ]
    past = SourceHistory(world.pipeline().parts, time.time).look()["batches"]
    assert [each["event_time"]["watermark_ms"] for each in past] == oracle.watermarks[::-1]
    letter = next(one for one in world.letters() if one["line"] == 1)
    assert letter["path"].endswith("/raw/0003.ndjson")
    assert letter["raw"].startswith('{"ts": "2024-01-28T14:01:41')
    assert "waited for until 2024-01-28T14:01:45" in letter["error"]
    assert "the watermark was 2024-01-28T14:01:48" in letter["error"]
    # The last window stays open: nobody knows yet that nothing more comes for it.
    assert world.stream().state_rows == 1


def test_a_machine_that_stands_still_adds_no_micro_batch(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = StreamQuery._check  # noqa: SLF001  # behind it lies what Spark tells of a batch

    def stalled(query: StreamQuery) -> None:
        check(query)
        time.sleep(0.5)  # Spark asks for the next batch all the while, and there is none

    monkeypatch.setattr(StreamQuery, "_check", stalled)
    for second in (107, 118, 140):
        world.put([row(second)])
    world.drain()
    told = [(one.watermark_ms // 1000 % 1000, one.micro_batches) for one in world.stream().history]
    start = round(BASE.timestamp()) % 1000
    assert told == [(start + second, 2) for second in (97, 108, 130)]


@pytest.mark.promise("G-062", "G-073")
@pytest.mark.parametrize("settings", QUERIES, ids=str)
def test_random_streams_equal_brute_force_over_restarts(
    world: EventTimeHarness, settings: dict[str, Any]
) -> None:
    draw = random.Random(str({key: settings[key] for key in settings if key != "partitions"}))
    world.event_time = dict(settings)
    oracle = Oracle(settings)
    for _ in range(2):  # a drain is a process's life
        run_batches(world, oracle, random_batches(draw, 3))
    agree(world, oracle)
    assert windows_of(world.table()) == oracle.emitted
    is_kept = settings.get("mode") == "complete" and settings is not ALL_SESSIONS
    forgets = not is_kept and ("window" in settings or "ts" in settings["group_by"])
    assert (sum(oracle.late_counts) > 0) == forgets


@pytest.mark.promise("G-062")
def test_deduplication_emits_one_row_within_the_watermark(world: EventTimeHarness) -> None:
    world.event_time = dict(UNIQUE)
    oracle = Oracle(UNIQUE)
    draw = random.Random(7)
    for _ in range(2):
        run_batches(world, oracle, random_batches(draw, 3))
    agree(world, oracle)
    found = Counter((one["id"], one["_emitted_batch"]) for one in world.table())
    assert found == oracle.emitted
    assert set(world.table()[0]) == {"ts", "seen", "id", "page", "bytes", "_emitted_batch"}


def test_duplicates_are_removed_before_windows_count(world: EventTimeHarness) -> None:
    world.event_time = TUMBLING | {"deduplicate": ["id"]}
    world.put([row(101, id_=1), row(101, id_=1), row(102, id_=2)])
    world.put([row(103, id_=2), row(120, id_=3)])
    world.put([row(109, id_=4), row(140, id_=5)])  # 109 is behind 110, so it is late at once
    world.drain()
    found = {(one["window_start"].second, one["n"]) for one in world.table()}
    assert found == {(40, 2), (0, 1)}
    assert world.late() == Counter({("0003.ndjson", 1): 1})
    assert world.stream().unaccounted_rows == 0


@pytest.mark.promise("G-083")
def test_a_row_of_the_far_future_is_a_letter_and_moves_nothing(world: EventTimeHarness) -> None:
    far = row(101) | {"ts": "2999-01-01T00:00:00Z"}
    oracle = Oracle(TUMBLING)
    world.put([row(101), far])
    oracle.add_batch({"0001.ndjson": [row(101)]})
    run_batches(world, oracle, [[row(102)]])
    stream = world.stream()
    assert (stream.ahead_rows, stream.late_rows) == (1, 0)
    assert stream.watermark_ms == oracle.watermark_ms
    [letter] = world.letters()
    assert (letter["stage"], letter["line"]) == ("ahead", 2)
    assert "max_ahead" in letter["error"]


def test_late_rows_may_only_be_counted(world: EventTimeHarness) -> None:
    world.event_time = TUMBLING | {"late_rows": "count"}
    for rows in ([row(150)], [row(101), row(151)]):
        world.put(rows)
    world.drain()
    assert world.stream().late_rows == 1
    assert world.letters() == []


def test_bad_lines_and_late_rows_of_a_file_have_separate_letters(
    world: EventTimeHarness,
) -> None:
    world.pipeline_settings = {"error_handling": {"max_bad_fraction": 1}}
    world.put([row(150)])
    world.put(["{nonsense", row(101), "", row(152)])
    world.drain()
    assert [(one["stage"], one["line"]) for one in world.letters()] == [("parse", 1), ("late", 2)]


def test_a_transform_comes_first_and_keeps_the_rows_origin(world: EventTimeHarness) -> None:
    world.pipeline_settings = {
        "transform": (
            "SELECT ts, upper(page) AS `pa.ge`, bytes * 2 AS bytes, _source_file, _source_line"
            " FROM source WHERE bytes > 0"
        )
    }
    world.event_time["group_by"] = ["pa.ge"]  # no field of a struct
    world.put([row(101, bytes_=4), row(102, bytes_=0)])
    world.put([row(150)])
    world.put([row(101)])
    world.drain()
    [one] = world.table()
    assert (one["pa.ge"], one["n"], one["bytes"]) == ("A", 1, 8)
    assert world.late() == Counter({("0003.ndjson", 1): 1})


def test_partitions_and_order_are_of_what_comes_out(world: EventTimeHarness) -> None:
    world.pipeline_settings = {
        "sink": {
            "table_uri": str(world.root / "table"),
            "partition_by": {"columns": [{"column": "window_start", "transform": "date"}]},
            "sort_by": ["-n"],
        }
    }
    world.put([row(101), row(102), row(101, "b"), row(103, "c"), row(104, "c"), row(104, "c")])
    world.put([row(150)])
    world.drain()
    paths = {p.parent.name for p in (world.root / "table").glob("*/*.parquet")}
    assert paths == {"date=2024-01-28"}
    assert sum(one["n"] for one in world.table()) == 6


def test_the_number_of_the_batch_is_a_column_like_any_other(world: EventTimeHarness) -> None:
    by = {"columns": [{"column": "_emitted_batch", "name": "batch"}]}
    sink = world.config().pipelines["pages"].sink.model_dump(exclude_unset=True)
    world.event_time["mode"] = "complete"
    world.pipeline_settings = {"sink": sink | {"partition_by": by, "sort_by": ["-_emitted_batch"]}}
    assert columns_of(world).field("_emitted_batch").type == pa.int64()
    for second in (101, 150):
        world.put([row(second)])
    world.drain()
    paths = {p.parent.name for p in (world.root / "table").glob("*/*.parquet")}
    assert paths == {"batch=1", "batch=2"}


@pytest.mark.parametrize("name", ["_emitted_batch", "_Emitted_Batch"])
def test_a_transform_that_returns_the_batch_number_is_refused(
    world: EventTimeHarness, name: str
) -> None:
    world.event_time = dict(UNIQUE)
    given = f"SELECT ts, id, bytes AS {name}, _source_file, _source_line FROM source"
    world.pipeline_settings = {"transform": given}
    with pytest.raises(ConfigError, match=f"gives column '{name}' twice"):
        columns_of(world)


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        (
            "max(current_timestamp())",
            r"aggregates\.n: 1 problem\s+must not call current_timestamp\(\)",
        ),
        ("max(date'today')", r"n: 1 problem\s+must not convert a constant text to a time"),
        ("max((SELECT 1))", r"aggregates\.n: 1 problem\s+must not hold a subquery"),
        ("count(*)) FROM source; SELECT (1", "PARSE_SYNTAX_ERROR"),
        ("sum(rand())", "(?i)nondeterministic"),
        ("count(DISTINCT page)", "(?i)distinct"),
    ],
)
def test_an_aggregate_of_more_than_its_rows_is_refused(
    world: EventTimeHarness, aggregate: str, reason: str
) -> None:
    world.event_time = TUMBLING | {"aggregates": {"n": aggregate}}
    with pytest.raises(ConfigError, match=reason) as caught:
        columns_of(world)
    assert "event_time" in str(caught.value)


def columns_of(world: EventTimeHarness) -> pa.Schema:
    """Return the problems that a start and `validate` report about the query."""
    pipeline = world.config().pipelines["pages"]
    settings = ingest_settings(pipeline, pipeline.sources["web"])
    return query_columns(world.engine, pipeline)("pages", settings)  # type: ignore[arg-type]  # it is Spark's


@pytest.mark.promise("G-066")
def test_state_that_is_missing_stops_the_pipeline_and_names_it(world: EventTimeHarness) -> None:
    world.put([row(101)])
    world.drain()
    [lost, *_] = sorted(world.packs())
    (world.root / "table" / lost).unlink()
    world.put([row(102)])
    with pytest.raises(StateError, match=lost):
        world.drain()


def test_a_snapshot_of_the_state_is_packed_and_restored(world: EventTimeHarness) -> None:
    """Spark makes one after some changes, and a thread of its own uploads it some time later."""
    oracle = Oracle(TUMBLING)
    batches = ([row(100 + 20 * n, page) for page in "abc"] for n in range(30))
    worker = world.pipeline()
    found = False
    while not found:
        rows = next(batches)
        oracle.add_batch({world.put(rows): rows})
        world.drain(worker)
        found = any("/SSTs/" in path for path in world.stream().packs)
    worker.close()
    oracle.restart()
    run_batches(world, oracle, list(itertools.islice(batches, 2)))
    agree(world, oracle)
    assert windows_of(world.table()) == oracle.emitted


@pytest.mark.promise("G-066")
def test_a_changed_query_is_refused_before_anything_runs(world: EventTimeHarness) -> None:
    world.put([row(101)])
    world.drain()
    world.event_time["window"] = "6 seconds"
    world.put([row(102)])
    with pytest.raises(StateError, match=r"event_time\.window.* checkpoint reset --event-time"):
        world.drain()
    world.event_time |= {"window": "5 seconds", "delay": "20 seconds"}
    world.drain()
    assert [one.watermark_ms for one in world.stream().history] == [1_706_450_491_000] * 2


@pytest.mark.promise("G-070")
@pytest.mark.parametrize("settings", [LAZY, UNIQUE], ids=str)
def test_the_watermark_is_advanced_without_a_row(
    world: EventTimeHarness, settings: dict[str, Any]
) -> None:
    world.event_time = dict(settings)
    # Also where a column may not be null a tick is no row.
    fields = [PAGE if field["name"] == "page" else field for field in FIELDS]
    world.pipeline_settings = {"schema": {"fields": fields}}
    oracle = Oracle(settings)
    run_batches(world, oracle, [[row(107, id_=1), row(101, "b", id_=2)], [row(118, id_=3)]])
    oracle.add_batch({}, world.advance(130))
    world.drain()
    assert world.stream().watermark_ms == 1_706_450_530_000
    assert world.stream().max_event_time_ms == 1_706_450_518_000
    assert not world.stream().is_to_advance
    to_ms = world.advance(150)
    rows = [row(129, id_=1), row(140, "b", id_=2), row(170, id_=3)]
    oracle.add_batch({world.put(rows): rows}, to_ms)  # it comes with the files that there are, once
    run_batches(world, oracle, [[row(152, id_=4)], [row(300, id_=5)]])
    agree(world, oracle)
    if "deduplicate" in settings:
        found = Counter((one["id"], one["_emitted_batch"]) for one in world.table())
        assert found == oracle.emitted
    else:
        assert windows_of(world.table()) == oracle.emitted
    # With the next batch only, a row is judged by the watermark before.
    assert (sum(oracle.late_counts) > 0) == (settings is not LAZY)


@pytest.mark.promise("G-081")
@pytest.mark.parametrize(
    ("settings", "later"),
    [
        # What judges by the watermark before the last, and after it what judges by the last.
        (EVERYTHING, SLIDING | {"window": {"size": "20 seconds", "slide": "5 seconds"}}),
        (SLIDING | {"emit": "next_batch"}, SLIDING | {"emit": "next_batch", "partitions": 1}),
        (UNIQUE, UNIQUE),
    ],
    ids=str,
)
def test_a_query_with_reset_state_publishes_nothing_again(
    world: EventTimeHarness, settings: dict[str, Any], later: dict[str, Any]
) -> None:
    draw = random.Random(str(later))
    world.event_time = dict(settings)
    oracle = Oracle(settings)
    run_batches(world, oracle, [*random_batches(draw, 3), [row(150, id_=1), row(144, "b", id_=2)]])
    before = world.stream()
    world.forget()
    assert world.stream().objects == frozenset()
    assert (world.stream().watermark_ms, world.stream().state_rows) == (before.watermark_ms, 0)
    oracle.forget(later)
    world.event_time = dict(later)
    # Of each kind: for windows that are published, partly so, and that were open.
    batch = [
        row(second, page, 1, id_) for id_, second in enumerate(range(110, 162)) for page in "ab"
    ]
    run_batches(world, oracle, [batch, *random_batches(draw, 2), [row(400, id_=3)]])
    agree(world, oracle)
    if "deduplicate" in later:
        found = Counter((one["id"], one["_emitted_batch"]) for one in world.table())
        assert found == oracle.emitted
    else:
        assert windows_of(world.table()) == oracle.emitted
    assert world.packs() == world.stream().objects  # what was forgotten is gone
    stream = world.stream()
    assert stream.history[4].used_watermark_ms == before.watermark_ms


@pytest.mark.promise("G-081")
def test_event_time_reset_shows_the_state_it_removes(
    world: EventTimeHarness, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: spark_engine)
    monkeypatch.setattr(spark_engine, "stop", lambda: None)
    world.put([row(101), row(107), row(118)])
    world.drain()
    asked = ["checkpoint", "reset", _written(world), "--pipeline", "pages", "--source", "web"]
    done = CliRunner().invoke(main, [*asked, "--event-time", "--dry-run"])
    assert done.exit_code == 0, done.output
    told = "pages/web: 2 rows of state are forgotten; watermark 2024-01-28T14:01:48Z stays"
    assert told in done.stdout
    assert "2024-01-28T14:01:50Z" in done.stdout  # the window of 107
    assert world.stream().state_rows == 2
    # Without an object of it the pipeline stops, and this is the way on.
    (world.root / "table" / min(world.packs())).unlink()
    world.put([row(108), row(121), row(140)])
    with pytest.raises(StateError, match="checkpoint reset --event-time"):
        world.drain()
    done = CliRunner().invoke(main, [*asked, "--event-time", "--yes"])
    assert done.exit_code == 0, done.output
    assert "They cannot be shown: " in done.stderr
    assert "stateStoreSave: 2 rows of state" in done.stdout
    world.drain()
    ends = {(one["window_end"].second, one["n"], one["_emitted_batch"]) for one in world.table()}
    assert ends == {(45, 1, 1), (50, 1, 2), (5, 1, 2)}  # without 107 and 118, and 101 once
    done = CliRunner().invoke(main, ["checkpoint", "log", *asked[2:]])
    assert "event time: 2 rows of state forgotten" in done.stdout


def test_event_state_reads_a_separate_copy_of_the_state(
    world: EventTimeHarness, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: spark_engine)
    monkeypatch.setattr(spark_engine, "stop", lambda: None)
    # A field may have the name that Spark gives a window.
    fields = [*FIELDS, {"name": "window", "type": "string"}]
    world.pipeline_settings = {"schema": {"fields": fields}}
    world.event_time = TUMBLING | {"deduplicate": ["id"], "group_by": ["page", "window"]}
    before = event_state(world.config(), None, 5)["pipelines"]["pages"]
    assert (before["batch"], before["operators"]) == (0, [])
    running = world.pipeline()
    world.put([row(107), row(101, "b", bytes_=5, id_=1), row(131, id_=2), row(137, id_=3)])
    world.drain(running)
    found = event_state(world.config(), "pages", 1)["pipelines"]["pages"]
    windows, keys = found["operators"]
    assert (windows["rows"], keys["rows"]) == (2, 2)
    # The first one to end, alone: 14:02:10 to 14:02:15, and the watermark is ten seconds behind.
    [first] = windows["first"]
    assert first["key"]["page"] == "a"
    assert first["key"]["window_of_time"]["end"] == "2024-01-28T14:02:15.000Z"
    assert first["value"] == {"count": 1, "sum": 1}
    assert first["ends"] == "2024-01-28T14:02:15Z"
    assert first["let_go_by_a_row_after"] == "2024-01-28T14:02:25Z"
    assert keys["first"][0]["key"] == {"id": 2}
    ends = operators_ending_by(world.config(), ("pages", "web"), 1_706_450_535_000)  # 14:02:15
    assert [(one.name, one.count, one.ending) for one in ends] == [
        ("stateStoreSave", 2, 1),
        ("dedupeWithinWatermark", 2, 0),
    ]
    # The query that runs was not disturbed, and goes on.
    world.put([row(150, id_=4)])
    world.drain(running)
    running.close()
    assert world.stream().batch == 2
    done = CliRunner().invoke(main, ["state", _written(world)])
    assert done.exit_code == 0, done.output
    assert "pages/web: batch 2, watermark 2024-01-28T14:02:20Z" in done.stdout
    assert "dedupeWithinWatermark: 3 rows of state" in done.stdout
    world.put([row(160, id_=5)])
    lost = min(world.packs())
    (world.root / "table" / lost).unlink()
    with pytest.raises(StateError, match=lost):
        event_state(world.config(), None, 5)


def test_a_configuration_without_event_time_has_no_state_to_show() -> None:
    with pytest.raises(ConfigError, match="has no query over event_time"):
        event_state(Config(), None, 5)
    with pytest.raises(ConfigError, match=r"pipelines\.other: 1 problem"):
        event_state(Config(), "other", 5)


def _written(world: EventTimeHarness) -> str:
    path = world.root / "config.yaml"
    path.write_text(world.config().model_dump_json(exclude_none=True, by_alias=True))
    return str(path)

"""Several sources behind one watermark: whom it follows, who is late, and nothing twice.

Deaths of two sources are those of a join, in `test_joins`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import ColdStartRefused, StateError
from blizzard_py.app.event_state import event_state
from blizzard_py.app.explaining import explain
from blizzard_py.app.inspection import plan, status
from blizzard_py.app.operations import list_dead_letters
from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.captured_logs import captured_logs
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of

TWO: dict[str, dict[str, Any]] = {"web": {}, "app": {}}


def world_of(
    folder: Path, engine: SparkEngine, policy: str = "min", sources: Any = None
) -> tuple[EventTimeHarness, Oracle]:
    settings = TUMBLING | {"policy": policy}
    sources = TWO if sources is None else sources
    return EventTimeHarness(folder, engine, settings, sources=sources), Oracle(settings, sources)


def check(world: EventTimeHarness, oracle: Oracle) -> None:
    """Check that the rows equal brute force, and that no unnamed object is left."""
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert world.late() == oracle.late
    assert windows_of(world.table()) == oracle.emitted
    assert world.stream().unaccounted_rows == 0
    assert len(set(world.output_ids())) == len(world.output_ids())
    assert world.packs() == world.stream().objects


def put(world: EventTimeHarness, oracle: Oracle, **rows: list[dict[str, Any]]) -> dict[str, str]:
    """Bring the files of the next batch: one of each source that is named."""
    files = {world.put(some, source): some for source, some in rows.items()}
    oracle.add_batch(files, whose=world.whose)
    return {world.whose[name]: name for name in files}


@pytest.mark.promise("G-071")
@pytest.mark.parametrize("policy", ["min", "max"])
def test_the_watermark_follows_one_of_them(
    tmp_path: Path, spark_engine: SparkEngine, policy: str
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, policy)
    steps = [
        ([row(107)], [row(101, "b")]),
        ([row(130), row(131)], [row(112)]),
        ([row(150)], [row(113), row(140)]),
        ([row(118), row(170)], [row(160)]),
    ]
    for web, app in steps:
        put(world, oracle, web=web, app=app)
    world.drain()
    check(world, oracle)
    late = {"min": 1, "max": 2}[policy]
    assert sum(oracle.late.values()) == late


def step(world: EventTimeHarness, oracle: Oracle, **rows: list[dict[str, Any]]) -> None:
    """A batch as of `put`, drained by a process of its own."""
    oracle.restart()
    put(world, oracle, **rows)
    world.drain()


@pytest.mark.promise("G-072")
def test_column_of_one_source_is_null_in_rows_of_others(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    amount = {"name": "amount", "type": "int64", "nullable": False}
    path = {"source_uri": str(tmp_path), "path_columns": {"shop": "int32"}}
    path["path_template"], path["include"] = "raw-{shop}", ["raw-3/**"]
    sources: dict[str, Any] = {"web": {}, "app": {"schema": {"fields": [amount]}}, "3": path}
    world, _ = world_of(tmp_path, spark_engine, "max", sources)
    values = {"n": "count(*)", "paid": "count(amount)", "amount": "sum(amount)"}
    values |= {"shops": "count(shop)", "shop": "max(shop)"}
    world.event_time = TUMBLING | {"policy": "max", "aggregates": values}
    world.put([row(100), row(101) | {"amount": 1_000}])  # no field of web
    world.put([row(102) | {"amount": 3}, row(103) | {"amount": 4}], "app")
    world.put([row(104)], "3")
    world.put([row(200)])
    world.drain()
    [found] = world.table()
    assert (found["n"], found["paid"], found["amount"]) == (5, 2, 7)
    assert (found["shops"], found["shop"]) == (1, 3)
    assert world.letters() == []
    told = status(world.config())[0]["pipelines"]["pages"]["sources"]
    assert {name: each["unexpected"] for name, each in told.items()} == {
        "web": ["amount"],
        "app": [],
        "3": [],
    }


@pytest.mark.promise("G-071")
def test_each_source_has_own_column_delay_letters_and_journal(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    sources = {"web": {}, "app": {"event_time": {"column": "seen", "delay": "2 seconds"}}}
    world, oracle = world_of(tmp_path, spark_engine, "max", sources)
    # Of app it is the time seen that counts, which is two seconds later where bytes are 3.
    put(world, oracle, web=[row(100)], app=[row(104, bytes_=3)])
    names = put(
        world, oracle, web=[row(90), row(120)], app=[row(95, bytes_=3), row(98, bytes_=3), row(110)]
    )
    put(world, oracle, app=[row(140), row(141)])
    world.drain()
    check(world, oracle)
    config = world.config()
    assert oracle.late == {(names["web"], 1): 1, (names["app"], 1): 1}
    for source, line in (("web", "ts"), ("app", "seen")):
        told = explain(config, str(world.raw(source) / names[source]))
        assert told.verdict == "ingested"
        assert told.out_of_time == {"late": 1, "ahead": 0}
        folder = tmp_path / "table" / "_blizzard"
        [letters] = (folder / "dlq" / f"pages_{source}").glob("*.records.ndjson")
        [letter] = map(json.loads, letters.read_text().splitlines())
        assert letter["path"] == str(world.raw(source) / names[source])
        assert letter["error"].startswith(f"{line} 2024-01-28T14:01:3")
        journal = sorted((folder / "journal" / f"pages_{source}").glob("*.json"))
        files = [[f["path"] for f in json.loads(p.read_text())["files"]] for p in journal]
        assert [n for some in files for n in some] == [
            name for name, whose in world.whose.items() if whose == source
        ]
    # Outputs are of no source: they stand with the first one, which has each settled batch.
    folder = tmp_path / "table" / "_blizzard" / "journal"
    told_ = [json.loads(p.read_text()) for p in sorted((folder / "pages_app").glob("*.json"))]
    history = json.loads(json.dumps([asdict(x) for x in world.stream().history]))
    assert [one["event_time"] for one in told_] == history
    web = [json.loads(p.read_text()) for p in (folder / "pages_web").glob("*.json")]
    assert len(web) == 2
    assert all(one["event_time"] and not one["outputs"] for one in web)
    letters_ = list_dead_letters(config, [("pages", "web"), ("pages", "app")], replayed=False)
    assert Counter(name for name, _, _ in letters_) == {"pages/web": 1, "pages/app": 1}


def test_status_and_plan_tell_of_each_source(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: spark_engine)
    monkeypatch.setattr(spark_engine, "stop", lambda: None)
    sources = {"web": {}, "app": {"event_time": {"column": "seen", "idle_after": "1 hour"}}}
    world, oracle = world_of(tmp_path, spark_engine, "max", sources)
    config = world.config()
    before, errors = status(config)
    assert errors == []
    block = before["pipelines"]["pages"]["event_time"]
    nothing = {"max_event_time_ms": None, "idle": False}
    counts = {"late_rows": 0, "partly_late_rows": 0, "ahead_rows": 0}
    assert block["sources"] == {"app": nothing | counts, "web": nothing | counts}
    put(world, oracle, web=[row(100), row(101)], app=[row(107)])
    put(world, oracle, web=[row(50), row(130)])
    world.drain()
    world.put([row(1)], "app")
    told, errors = status(config)
    assert errors == []
    pages = told["pipelines"]["pages"]
    event_time = pages["event_time"]
    assert event_time["columns"] == ["seen", "ts"]
    assert (event_time["policy"], event_time["batch"]) == ("max", 2)
    start = 1_706_450_400_000
    assert event_time["sources"] == {
        "app": {"max_event_time_ms": start + 107_000, "idle": False} | counts,
        "web": {"max_event_time_ms": start + 130_000, "idle": False} | counts | {"late_rows": 1},
    }
    assert event_time["late_rows"] == 1
    totals = {name: each["totals"] for name, each in pages["sources"].items()}
    assert {name: each["files"] for name, each in totals.items()} == {"app": 1, "web": 2}
    assert {name: each["watermark"] for name, each in pages["sources"].items()} == {
        "app": "0002.ndjson",
        "web": "0003.ndjson",
    }
    assert {name: each["state"] for name, each in pages["sources"].items()} == dict.fromkeys(
        ("app", "web"), "Idle"
    )
    assert pages["sources"]["app"]["lag"]["files"] == 1
    planned, errors = plan(config)
    assert errors == []
    found = planned["pipelines"]["pages"]["sources"]
    assert [f["path"] for f in found["app"]["files"]] == ["0004.ndjson"]
    assert found["web"]["files"] == []
    assert {each["event_time"]["batch"] for each in found.values()} == {2}
    told_state = event_state(config, "pages", 5)["pipelines"]["pages"]
    assert told_state["source"] == "app, web"
    assert told_state["operators"][0]["rows"] == world.stream().state_rows


@pytest.mark.promise("G-071")
def test_min_waits_for_a_source_unless_it_is_idle(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    sources = {"web": {}, "app": {"event_time": {"idle_after": "1 millisecond"}}}
    world, oracle = world_of(tmp_path, spark_engine, "min", sources)
    # Never seen, and nobody has waited for it yet: the first batch moves nothing.
    step(world, oracle, web=[row(100)])
    assert world.stream().watermark_ms == 0
    step(world, oracle, web=[row(130)])
    assert world.stream().sources["app"].idle
    step(world, oracle, app=[row(125), row(101)])
    assert not world.stream().sources["app"].idle
    step(world, oracle, web=[row(160)], app=[row(141)])
    check(world, oracle)
    assert oracle.late == {("0003.ndjson", 2): 1}


def test_a_restart_forgets_what_each_source_has_brought(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine)
    worker = world.pipeline()
    seen = []
    for rows in ({"web": 100, "app": 101}, {"web": 130}, {"app": 131}):
        files = {}
        for source, second in rows.items():
            files[world.put([row(second)], source)] = [row(second)]
        world.drain(worker)
        oracle.add_batch(files, whose=world.whose)
        seen.append(world.stream().watermark_ms // 1000 - 1_706_450_400)
    worker.close()
    assert seen == [90, 91, 120]  # min of what each has brought, while the process lives
    step(world, oracle, web=[row(160)])
    assert world.stream().watermark_ms // 1000 - 1_706_450_400 == 120  # of app nothing is known
    step(world, oracle, web=[row(161)], app=[row(150)])
    check(world, oracle)


def test_the_sources_of_a_query_are_neither_more_nor_fewer(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine)
    step(world, oracle, web=[row(100)], app=[row(101)])
    world.sources = {"web": {}}
    with pytest.raises(StateError, match="neither their number nor their names may change"):
        world.drain()
    world.sources = {"web": {}, "app": {}, "bus": {}}
    with pytest.raises(StateError, match="is of the sources app, web, and"):
        world.drain()
    alone = EventTimeHarness(tmp_path / "alone", spark_engine)
    alone.put([row(100)])
    alone.drain()
    alone.sources = TWO
    with pytest.raises(ColdStartRefused, match="is of the source alone"):
        alone.drain()


def test_missing_shared_checkpoint_stops_the_pipeline(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine)
    step(world, oracle, web=[row(100)], app=[row(101)])
    (tmp_path / "table" / "_blizzard" / "pages~sources_checkpoint.json").unlink()
    with pytest.raises(ColdStartRefused, match=r"pages~sources_checkpoint\.json is missing"):
        world.drain()
    _, errors = status(world.config())
    assert len(errors) == 2
    assert all("which is gone" in error for error in errors)


@pytest.mark.promise("G-210")
def test_a_journal_of_one_that_lacks_a_batch_is_refused(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine)
    for second in (100, 120):
        put(world, oracle, web=[row(second)], app=[row(second)])
    world.drain()
    world.drain()  # each batch is counted once
    check(world, oracle)
    min((tmp_path / "table/_blizzard/journal/pages_app").iterdir()).unlink()
    with pytest.raises(StateError, match=r"pages_app: holds 1 batch.*not the 2 .*Restore the jour"):
        world.drain()


def test_a_policy_stays_what_the_first_batch_had(tmp_path: Path, spark_engine: SparkEngine) -> None:
    world, oracle = world_of(tmp_path, spark_engine, "max")
    step(world, oracle, web=[row(100)], app=[row(130)])
    world.event_time["policy"] = "min"
    with captured_logs("warning") as lines:
        step(world, oracle, web=[row(150)], app=[row(131)])
    [line] = [one for one in lines if one["event"] == "policy_kept"]
    assert (line["policy"], line["asked"]) == ("max", "min")
    check(world, oracle)
    assert status(world.config())[0]["pipelines"]["pages"]["event_time"]["policy"] == "max"


def test_of_duplicates_the_longest_delay_remembers(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    settings = {"column": "ts", "delay": "0 seconds", "deduplicate": ["id"], "policy": "min"}
    sources = {"app": {}, "web": {"event_time": {"delay": "10 seconds"}}}
    world = EventTimeHarness(tmp_path, spark_engine, settings, sources=sources)
    oracle = Oracle(settings, sources)
    put(world, oracle, web=[row(100, id_=1)], app=[row(100, id_=2)])
    put(world, oracle, web=[row(115, id_=8)], app=[row(106, id_=9)])
    # The watermark is at 105: a delay of nothing would have forgotten both.
    put(world, oracle, web=[row(120, id_=1)], app=[row(121, id_=2)])
    world.drain()
    assert Counter((one["id"], one["_emitted_batch"]) for one in world.table()) == oracle.emitted
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert len(world.table()) == 4

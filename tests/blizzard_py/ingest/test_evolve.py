"""Fields without a column: told once, or made columns, exactly once whenever somebody dies."""

from __future__ import annotations

import gzip
import json
import threading
from functools import reduce
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from click.testing import CliRunner, Result

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import ConfigError
from blizzard_core.log import configure
from blizzard_core.settings.load import load_config
from blizzard_core.signals import INTERRUPTED
from blizzard_py import metrics
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.workers import build
from blizzard_py.job import IngestJob, IngestResult
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.mortal_disk import Mortal
from tests.support.scenario import Scenario, ndjson

DAY = "date=2024-01-0"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    # All types of the schema are read by the fast path; what follows holds for both.
    schema(found, evolve="add")
    return found


def schema(scenario: Scenario, **more: Any) -> None:
    given = scenario.document["pipelines"]["events"]["schema"]
    given.update(more)
    scenario.write_config()


def call(*arguments: str, command: Any = blizzard) -> Result:
    return CliRunner().invoke(command, arguments)


def commit(scenario: Scenario) -> pl.DataFrame:
    """Return the table that Penguin commits, read by polars."""
    done = call("run", str(scenario.config), "--once", command=penguin)
    assert done.exit_code == 0, done.output
    return pl.read_delta(f"{scenario.place}/lake/events").sort("id")


def stored_schema(scenario: Scenario) -> dict[str, Any]:
    path = scenario.folder / "lake/events/_blizzard/events_schema.json"
    return json.loads(path.read_bytes())


def logged(scenario: Scenario, capsys: pytest.CaptureFixture[str], event: str) -> list[Any]:
    configure("info")
    scenario.ingest()
    lines = map(json.loads, capsys.readouterr().err.splitlines())
    return [line for line in lines if line["event"] == event]


def versions(scenario: Scenario) -> list[list[dict[str, Any]]]:
    log = scenario.folder / "lake/events/_delta_log"
    return [
        [json.loads(line) for line in path.read_bytes().splitlines()]
        for path in sorted(log.glob("*.json"))
    ]


# --- told -----------------------------------------------------------------------------------


def test_new_field_is_logged_once_even_after_a_restart(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    schema(scenario, evolve="never")
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1}, {"id": 2, "new": 1, "é\u202e": 2}))
    [told] = logged(scenario, capsys, "fields_not_taken")
    assert told["fields"] == ["new", "é\u202e"]
    assert told["file"] == f"{DAY}1/1.ndjson.gz"
    gauge = metrics.UNEXPECTED_FIELDS.labels("events/main")
    assert gauge._value.get() == 2  # noqa: SLF001  # the client has no other way
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 3, "new": 1}))
    assert logged(scenario, capsys, "fields_not_taken") == []
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 4, "new": 1, "other": 1}))
    [told] = logged(scenario, capsys, "fields_not_taken")
    assert told["fields"] == ["other"]
    status = json.loads(call("status", str(scenario.config), "--json").stdout)
    source = status["pipelines"]["events"]["sources"]["main"]
    assert source["unexpected"] == ["new", "é\u202e", "other"]
    # Once it is a column it is no longer among them, and would be told anew.
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    schema(scenario, fields=[*fields, {"name": "new", "type": "int64"}])
    scenario.put(f"{DAY}1/4.ndjson.gz", ndjson({"id": 5, "new": 1}))
    assert logged(scenario, capsys, "fields_not_taken") == []
    assert gauge._value.get() == 2  # noqa: SLF001  # as above


# --- added ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True], ids=["fast", "exact"])
def test_a_new_field_is_a_column_from_its_first_rows_on(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], *, nested: bool
) -> None:
    if nested:
        fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
        schema(scenario, fields=[*fields, {"name": "l", "type": "list", "items": "int64"}])
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
    scenario.ingest()
    commit(scenario)
    many = [{"id": n, "text": "x"} for n in range(10, 500)]
    scenario.put(f"{DAY}2/1.ndjson.gz", ndjson(*many, {"id": 2, "price": 1, "o": {"a": [1]}}))
    scenario.put(f"{DAY}2/2.ndjson.gz", ndjson({"id": 3, "price": 1.5}))
    [told] = logged(scenario, capsys, "schema_evolved")
    assert [(field["name"], field["type"]) for field in told["fields"]] == [
        ("price", "float64"),
        ("o", "struct"),
    ]
    found = commit(scenario).filter(pl.col("id") < 10).select("id", "text", "price", "o")
    assert found.rows() == [
        (1, "t1", None, None),
        (2, None, 1.0, {"a": [1]}),
        (3, None, 1.5, None),
    ]
    # One entry brings the columns and their first rows.
    [entry] = [v for v in versions(scenario)[1:] if any("metaData" in action for action in v)]
    assert any("add" in action for action in entry)
    assert stored_schema(scenario)["added"].keys() == {"price", "o"}
    # What is to be declared where `evolve` is left out again.
    printed = call("schema", str(scenario.config)).stdout
    assert "evolve: add" in printed
    assert "{name: price, type: float64}" in printed
    checkpoint = scenario.folder / "lake/events/_blizzard/events_main_checkpoint.json"
    assert "unexpected" not in json.loads(checkpoint.read_bytes())


def test_a_later_value_of_another_type_is_a_dead_letter(scenario: Scenario) -> None:
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "n": 1}))
    scenario.ingest()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson(*({"id": n, "n": n} for n in range(2, 30))))
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson(*({"id": n} for n in range(40, 60)), {"n": "x"}))
    scenario.put(
        f"{DAY}1/4.ndjson.gz", ndjson(*({"id": n} for n in range(60, 80)), {"id": 99, "n": "x"})
    )
    scenario.ingest()
    found = commit(scenario)
    assert len(found) == 69
    status = json.loads(call("status", str(scenario.config), "--json").stdout)
    assert status["pipelines"]["events"]["sources"]["main"]["totals"]["bad_rows"] == 2


def test_fields_of_letters_alone_and_nulls_alone_are_not_added(scenario: Scenario) -> None:
    good = [{"id": n, "always": None} for n in range(20)]
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson(*good, {"id": "x", "bad": 1}))
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": "x", "worse": 1}))
    scenario.ingest()
    assert commit(scenario).columns == ["id", "text", "date"]
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 50, "always": "now"}))
    scenario.ingest()
    assert commit(scenario).filter(pl.col("id") == 50)["always"].to_list() == ["now"]


@pytest.mark.parametrize(
    "odd",
    [
        '{"id": 1, "d": 1, "d": "x"}',
        '{"id": 1, "d": "x", "\\u0064": 1}',
        '{"id": 1, "d": null, "d": 3}',
        '{"id": 1, "d": {"a": 1}, "d": 2}',
        '{"id": 1, "d": [{"a": 1, "a": "x"}]}',
    ],
)
@pytest.mark.parametrize("kind", ["number", "alone"])
def test_a_field_that_a_record_has_twice_decides_no_type(
    scenario: Scenario, odd: str, kind: str
) -> None:
    others = [] if kind == "alone" else [json.dumps({"id": n, "d": n}) for n in range(2, 30)]
    scenario.put(f"{DAY}1/1.ndjson.gz", gzip.compress("\n".join([odd, *others]).encode()))
    scenario.ingest()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 99, "d": 7}))
    scenario.ingest()
    found = commit(scenario)
    assert found.schema["d"] == pl.Int64
    assert found.filter(pl.col("id") == 99)["d"].to_list() == [7]
    # It is in as long as its field is no column, and a letter like any misfit after that.
    assert (1 in found["id"].to_list()) == (kind == "alone")
    letters = call("dlq", "list", str(scenario.config), "--json").stdout
    assert ("1.ndjson.gz" in letters) == (kind != "alone")


def test_an_impossible_column_is_left_out_once(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"id": 1, "Text": "x", "date": "y", "()": 1, "fine": 1}
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson(record))
    told = logged(scenario, capsys, "field_left_out")
    assert {line["field"] for line in told} == {"Text", "date", "()"}
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({**record, "id": 2, "TEXT": 1}))
    assert [line["field"] for line in logged(scenario, capsys, "field_left_out")] == ["TEXT"]
    assert stored_schema(scenario)["left_out"].keys() == {"Text", "date", "()", "TEXT"}
    assert commit(scenario).columns == ["id", "text", "fine", "date"]


def test_evolve_leaves_out_a_column_with_another_table_type(scenario: Scenario) -> None:
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    schema(scenario, fields=[*fields, {"name": "n", "type": "int32"}])
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "n": 1}))
    scenario.ingest()
    commit(scenario)
    schema(scenario, fields=fields)
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, "n": 2**40, "m": 1}))
    scenario.ingest()
    assert "int64" in stored_schema(scenario)["left_out"]["n"]
    assert commit(scenario).filter(pl.col("id") == 2).select("n", "m").rows() == [(None, 1)]


def test_more_columns_than_a_commit_adds_wait_for_it(scenario: Scenario) -> None:
    scenario.document["tables"] = {
        "events": {"table_uri": f"{scenario.place}/lake/events", "max_new_columns": 2}
    }
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
    scenario.write_config()
    scenario.ingest()
    commit(scenario)
    for number in (2, 3):
        record = {"id": number, "a": 1, "b": 1, "c": 1}
        scenario.put(f"{DAY}1/{number}.ndjson.gz", ndjson(record))
        scenario.ingest()
        commit(scenario)
    found = commit(scenario).select("id", "a", "b", "c")
    assert found.rows() == [(1, None, None, None), (2, 1, 1, None), (3, 1, 1, 1)]


def test_one_record_of_any_form_has_no_file_refused(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Penguin takes so many levels and columns of a file; a field that brings more is no column."""
    # Of a tenth; `test_footers` has a file of as many columns as are taken.
    monkeypatch.setattr("blizzard_core.table.extent.FILE_COLUMNS", 1000)
    deep = {"id": 2, "deep": reduce(lambda inner, _: {"a": [inner]}, range(30), cast(Any, 1))}
    wide = {f"f{n}": {f"k{m}": 1 for m in range(25)} for n in range(60)}
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1}, deep, {"id": 3, **wide}))
    scenario.ingest()
    found = commit(scenario)
    assert found["id"].to_list() == [1, 2, 3]
    assert "deep" in found.columns
    assert "at most 1,000" in stored_schema(scenario)["left_out"]["f59"]
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 4}))
    scenario.ingest()
    assert commit(scenario)["id"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["a\\b", 'a"b', "a\\u0041"])
def test_names_that_json_escapes_stop_nothing(scenario: Scenario, name: str) -> None:
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, name: 1, "o": {name: 1}}))
    scenario.ingest()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, name: 2}))
    scenario.ingest()
    assert stored_schema(scenario)["left_out"].keys() == {name}
    # One that an earlier release has made a column, or that somebody has declared.
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    schema(scenario, fields=[*fields, {"name": name, "type": "int64"}])
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 3, name: 3, "more": 1}))
    scenario.ingest()
    assert commit(scenario)[name].to_list() == [None, None, 3]


def test_a_cancelled_batch_does_not_rerun_for_new_columns(scenario: Scenario) -> None:
    class Engine(DirectEngine):
        jobs = 0

        def ingest(self, job: IngestJob) -> IngestResult:
            self.jobs += 1
            found = super().ingest(job)
            workers[0].cancel()  # too late for this job, and there is no other yet
            return found

    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "new": 7}))
    engine = Engine()
    workers = build(load_config(scenario.config), engine)
    once = Loop(once=True, jitter_secs=0, grace_secs=0)
    assert run(workers, once, threading.Event()) == INTERRUPTED
    assert engine.jobs == 1
    scenario.ingest()
    assert commit(scenario)["new"].to_list() == [7]


def test_a_stored_schema_lost_at_runtime_loses_no_column(scenario: Scenario) -> None:
    """Else the next value decides anew what the table has long decided, and may differ from it."""
    scenario.document["pipelines"]["events"]["schema"] = {"infer": True, "evolve": "add"}
    scenario.write_config()
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "price": 1.5}))
    [worker] = build(load_config(scenario.config), DirectEngine())
    worker.cycle(threading.Event())
    commit(scenario)
    (scenario.folder / "lake/events/_blizzard/events_schema.json").unlink()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, "price": 2, "new": 1}))
    worker.cycle(threading.Event())
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 3, "price": 3.5}))
    scenario.ingest()
    found = commit(scenario).select("id", "price", "new")
    assert found.rows() == [(1, 1.5, None), (2, 2.0, 1), (3, 3.5, None)]
    assert list(stored_schema(scenario)["added"]) == ["new"]


@pytest.mark.parametrize("older", [False, True], ids=["gone", "older"])
def test_without_a_stored_schema_types_come_from_the_table(
    scenario: Scenario, *, older: bool
) -> None:
    path = scenario.folder / "lake/events/_blizzard/events_schema.json"
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "first": 1}))
    scenario.ingest()
    copy = path.read_bytes()
    record = {"price": 1.5, "o": {"a": [0.5], "b": 1}, "word": "x"}
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, **record}))
    scenario.ingest()
    commit(scenario)
    if older:
        path.write_bytes(copy)
    else:
        path.unlink()
    again = {"price": 2, "o": {"a": [1], "b": 2, "c": 3}, "word": "y", "first": 2}
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 3, **again}))
    scenario.ingest()
    assert stored_schema(scenario)["left_out"] == {}
    found = commit(scenario).select("price", "o", "word", "first")
    assert found.rows()[1:] == [
        (1.5, {"a": [0.5], "b": 1, "c": None}, "x", None),
        (2.0, {"a": [1.0], "b": 2, "c": 3}, "y", 2),
    ]


def test_sources_of_a_pipeline_and_inference_share_the_columns(scenario: Scenario) -> None:
    sources = scenario.document["pipelines"]["events"]["sources"]
    sources["second"] = {"source_uri": f"{scenario.place}/raw2"}
    scenario.document["pipelines"]["events"]["schema"] = {"infer": True, "evolve": "add"}
    scenario.write_config()
    second = scenario.folder / "raw2" / f"{DAY}1"
    second.mkdir(parents=True)
    (second / "1.ndjson.gz").write_bytes(ndjson({"id": 1}))
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 2}))
    scenario.ingest()
    # Both are one daemon's, each with what it knew of the schema when the other adds to it.
    workers = build(load_config(scenario.config), DirectEngine())

    def once() -> None:
        assert run(workers, Loop(once=True, jitter_secs=0, grace_secs=0), threading.Event()) == 0

    once()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 3, "x": 1}))
    once()
    (second / "2.ndjson.gz").write_bytes(ndjson({"id": 4, "x": 2, "y": 1}))
    once()
    scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 5, "x": 3, "y": 2}))
    once()
    found = commit(scenario).select("id", "x", "y")
    assert found.rows() == [(1, None, None), (2, None, None), (3, 1, None), (4, 2, 1), (5, 3, 2)]


# --- deaths ---------------------------------------------------------------------------------


def test_whoever_dies_with_a_new_column_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Death at each change of the batch that brings the column, by two files of other values."""
    disk = Mortal()
    disk.patch(monkeypatch)
    for steps in range(100):
        folder = tmp_path / str(steps)
        folder.mkdir()
        scenario = Scenario(folder, str(folder))
        schema(scenario, evolve="add")
        scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
        scenario.ingest()
        scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, "n": 1}, {"id": 3}))
        [worker] = build(load_config(scenario.config), DirectEngine())
        died = disk.dies(steps, lambda worker=worker: worker.cycle(threading.Event()))
        has_kept = (folder / "lake/events/_blizzard/events_schema.json").exists()
        published = sorted(folder.glob("lake/events/date=*/*.parquet"))
        # Nothing with the column is there before the column is kept.
        assert has_kept or len(published) == 1
        # What comes until the next start does not change what was decided.
        scenario.put(f"{DAY}1/3.ndjson.gz", ndjson({"id": 4, "n": 2.5}))
        before = stored_schema(scenario) if has_kept else None
        scenario.ingest()
        assert before is None or stored_schema(scenario) == before
        found = commit(scenario).select("id", "n")
        assert found.rows()[:3] == [(1, None), (2, 1), (3, None)]
        if not died:
            assert steps > 8
            return
    raise AssertionError


# --- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"transform": "SELECT * FROM source"}, "add does not go with transform"),
        ({"schema": {"infer": True, "evolve": "add", "unexpected_fields": "fail"}}, "contradict"),
    ],
)
def test_evolve_refuses_conflicting_settings(
    scenario: Scenario, changes: dict[str, Any], told: str
) -> None:
    scenario.document["pipelines"]["events"].update(changes)
    scenario.write_config()
    with pytest.raises(ConfigError, match=told):
        load_config(scenario.config)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"schema_evolution": "strict"},
            r"tables.all has schema_evolution: strict.*set it to merge",
        ),
        ({"max_new_columns": 0}, "max_new_columns above 0"),
    ],
)
def test_a_table_without_evolution_is_refused_with_a_remedy(
    scenario: Scenario, settings: dict[str, Any], told: str
) -> None:
    place = f"{scenario.place}/lake/events/"
    scenario.document["tables"] = {"all": {"table_uri": place, **settings}}
    scenario.write_config()
    done = call("validate", str(scenario.config))
    assert done.exit_code == 2
    with pytest.raises(ConfigError, match=told):
        load_config(scenario.config)
    schema(scenario, evolve="never")
    load_config(scenario.config)

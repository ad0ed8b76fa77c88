"""Refused files show in Blizzard until their rows are in the table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from blizzard_core.errors import REFUSED
from blizzard_core.settings.document import Config
from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_core.settings.load import load_config
from blizzard_core.signals import INTERRUPTED
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app import wiring
from blizzard_py.app.engine import NoEngine
from blizzard_py.app.refused_watch import RefusedWatch
from blizzard_py.app.reingest import ReingestResult, bring
from blizzard_py.app.submit import RequestOrder, Waits
from blizzard_py.app.workers import build
from blizzard_py.sources.context import EventTimeQuery, SourceContext
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario, ndjson

DAY = "date=2024-01-01"
Where = tuple[str, str]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A table of a number and a text, in which two files of one day are."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    found.main_source["checkpoint"] = {"interval_files": 2}
    found.put_rows(f"{DAY}/1.json.gz", 1)
    found.put_rows(f"{DAY}/2.json.gz", 2)
    found.ingest()
    committed(found)
    return found


def committed(scenario: Scenario) -> None:
    done = CliRunner().invoke(penguin, ["run", str(scenario.config), "--once"])
    assert done.exit_code == 0, done.output


def penguins(scenario: Scenario) -> dict[str, Any]:
    """Return quarantine in Penguin's own status."""
    done = CliRunner().invoke(penguin, ["status", str(scenario.config), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["tables"]["events"]["quarantine"]


def typed(scenario: Scenario, kind: str) -> None:
    """The type of ``text`` from now on; the table has it as a string."""
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    fields[1]["type"] = kind
    scenario.write_config()


def refused(scenario: Scenario) -> None:
    """Two more files, of which Penguin refuses the Parquet."""
    typed(scenario, "int64")
    for number in (3, 4):
        row = {"id": number, "text": number}
        scenario.put(f"{DAY}/{number}.json.gz", ndjson(row))
    scenario.ingest()
    committed(scenario)
    assert scenario.ids() == [1, 2]


def mended(scenario: Scenario) -> None:
    """Configuration and files are as the table has it."""
    typed(scenario, "string")
    for number in (3, 4):
        scenario.put_rows(f"{DAY}/{number}.json.gz", number)


def run_command(scenario: Scenario, command: str, *more: str) -> Result:
    return CliRunner().invoke(blizzard, [command, str(scenario.config), *more])


@pytest.mark.promise("G-191")
def test_status_shows_refused_files_and_exits_with_5(
    scenario: Scenario,
) -> None:
    assert run_command(scenario, "status").exit_code == 0
    refused(scenario)
    done = run_command(scenario, "status", "--json")
    assert done.exit_code == REFUSED, done.output
    told = json.loads(done.stdout)["pipelines"]["events"]["sources"]["main"]["refused"]
    assert (told["files"], told["rows"]) == (1, 2)
    [output] = told["outputs"]
    assert output["path"].startswith(f"{DAY}/")
    assert "text" in output["error"]
    text = run_command(scenario, "status")
    assert "Penguin refused 1 file with 2 rows" in text.stdout
    assert "blizzard replay CONFIG --refused" in text.stdout


def test_a_run_that_drains_says_so_as_well(scenario: Scenario) -> None:
    assert run_command(scenario, "run", "--once").exit_code == 0
    refused(scenario)
    assert run_command(scenario, "run", "--once").exit_code == REFUSED


def test_explain_names_the_refused_file_and_the_command(scenario: Scenario) -> None:
    refused(scenario)
    uri = f"{scenario.place}/raw/{DAY}/3.json.gz"
    found = json.loads(run_command(scenario, "explain", uri, "--json").stdout)
    assert found["verdict"] == "refused"
    assert "blizzard replay CONFIG --refused" in found["reason"]
    [output] = found["outputs"]
    assert output["delta_status"] == "refused"
    assert "text" in output["refusal"]
    sound = f"{scenario.place}/raw/{DAY}/1.json.gz"
    assert (
        json.loads(run_command(scenario, "explain", sound, "--json").stdout)["verdict"]
        == "ingested"
    )


def test_the_page_tells_of_it_until_it_leaves_the_record(scenario: Scenario) -> None:
    refused(scenario)
    workers = build(load_config(scenario.config), NoEngine())
    watch = RefusedWatch(workers)
    assert watch.look()
    [worker] = workers
    page = worker.activity.to_json()
    assert page["level"] == "bad"
    [notice] = page["notices"]
    assert "2 rows" in notice["text"]
    assert "blizzard replay" in notice["remedy"]
    told = run_command(scenario, "status", "--json").stdout
    [output] = json.loads(told)["pipelines"]["events"]["sources"]["main"]["refused"]["outputs"]
    scenario.table.delete(output["path"])
    assert run_command(scenario, "status").exit_code == REFUSED
    assert RefusedWatch(workers).look()
    scenario.table.put_atomic("_penguin/events_quarantine.ndjson", b"")
    assert run_command(scenario, "status").exit_code == 0
    assert not RefusedWatch(workers).look()


@pytest.mark.promise("G-103")
@pytest.mark.parametrize("is_full", [True, False])
def test_a_refused_file_that_a_vacuum_took_is_replayed(
    scenario: Scenario, *, is_full: bool
) -> None:
    refused(scenario)
    told = run_command(scenario, "status", "--json").stdout
    [output] = json.loads(told)["pipelines"]["events"]["sources"]["main"]["refused"]["outputs"]
    gone = DeltaTable(scenario.table.uri).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=is_full
    )
    assert (output["path"] in gone) == is_full
    assert run_command(scenario, "status").exit_code == REFUSED
    mended(scenario)
    done = replayed(scenario)
    assert done.exit_code == 0, done.output
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4]
    assert run_command(scenario, "status").exit_code == 0
    assert "Nothing is in quarantine" in replayed(scenario).output


def test_files_of_others_on_record_are_nobodys_here(scenario: Scenario) -> None:
    name = "01920000-0000-7000-8000-000000000000.parquet"
    scenario.table.put_atomic(f"{DAY}/{name}", b"none")
    committed(scenario)
    assert scenario.table.stat("_penguin/events_quarantine.ndjson") is not None
    assert run_command(scenario, "status").exit_code == 0


def replayed(scenario: Scenario, *more: str) -> Result:
    return run_command(scenario, "replay", "--refused", *more)


def everything(scenario: Scenario) -> list[str]:
    return [e.path for page in scenario.table.list_range("", None) for e in page.entries]


@pytest.mark.promise("G-191")
def test_replay_ingests_rejected_outputs_once(scenario: Scenario) -> None:
    refused(scenario)
    mended(scenario)
    before = everything(scenario)
    dry = replayed(scenario, "--dry-run")
    assert (dry.exit_code, "2 files would replace 2 rows" in dry.stdout) == (0, True), dry.output
    assert everything(scenario) == before
    assert penguins(scenario)["count"] == 1
    done = replayed(scenario)  # Penguin is asked in a process of its own
    assert done.exit_code == 0, done.output
    assert "1 refused Parquet file with 2 rows" in done.stdout
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4]
    assert run_command(scenario, "status").exit_code == 0
    # Its file lies there still, and nobody has to do anything about it.
    assert penguins(scenario) == {"count": 0, "settled": 1, "newest": None}
    uri = f"{scenario.place}/raw/{DAY}/3.json.gz"
    assert (
        json.loads(run_command(scenario, "explain", uri, "--json").stdout)["verdict"] == "ingested"
    )
    again = replayed(scenario)
    assert (again.exit_code, again.stdout) == (0, "Nothing is in quarantine.\n")


def test_while_the_table_would_refuse_it_again_nothing_is_done(scenario: Scenario) -> None:
    refused(scenario)
    before = everything(scenario)
    done = replayed(scenario)
    assert done.exit_code == 2
    assert "text" in done.stderr
    assert everything(scenario) == before


def give_up_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penguin is asked in this process."""

    def give_up(path: Path, table: str, outputs: list[str]) -> None:
        options = [f"--output={output}" for output in outputs]
        done = CliRunner().invoke(penguin, ["discard", str(path), f"--table={table}", *options])
        assert done.exit_code == 0, done.output

    monkeypatch.setattr("blizzard_py.app.refused_files._give_up", give_up)


def spoiled(scenario: Scenario, *, named: bool) -> str:
    """A batch of two files on two days, of which one day's Parquet is not one; its path."""
    sink = scenario.document["pipelines"]["events"]["sink"]
    sink["metadata_columns"] = ["_source_file"] if named else []
    scenario.write_config()
    before = set(everything(scenario))
    scenario.put_rows(f"{DAY}/5.json.gz", 5, 6)
    scenario.put_rows("date=2024-01-02/7.json.gz", 7, 8)
    scenario.ingest()
    fresh = sorted(p for p in set(everything(scenario)) - before if p.endswith(".parquet"))
    assert len(fresh) == 2
    scenario.table.put_atomic(fresh[1], b"this is no Parquet")
    committed(scenario)
    assert scenario.ids() == [1, 2, 5, 6]
    return fresh[1]


@pytest.mark.promise("G-191")
@pytest.mark.parametrize("named", [True, False])
def test_files_whose_rows_are_split_are_replaced_exactly(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    give_up_here(monkeypatch)
    path = spoiled(scenario, named=named)
    done = replayed(scenario)
    assert done.exit_code == 0, done.output
    committed(scenario)
    assert scenario.ids() == [1, 2, 5, 6, 7, 8]
    # Whoever mends the Parquet file now brings nothing.
    sound = next(p for p in everything(scenario) if p.startswith(f"{DAY}/") and "unit" not in p)
    scenario.table.put_atomic(path, scenario.table.read(sound))
    done = CliRunner().invoke(penguin, ["reconcile", str(scenario.config)])
    assert scenario.ids() == [1, 2, 5, 6, 7, 8], done.output


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_refused_concurrent_output_blocks_no_replay(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A backfill brings a refused file again, before the replay or after what it gave up."""
    give_up_here(monkeypatch)
    other = "date=2024-01-02"

    def broken(*command: str) -> None:
        before = set(everything(scenario))
        done = run_command(scenario, *command)
        assert done.exit_code == 0, done.output
        [path] = {p for p in everything(scenario) if p.endswith(".parquet")} - before
        scenario.table.put_atomic(path, b"this is no Parquet")

    names = ("--pipeline=events", "--source=main", f"--from={other}", f"--to={other}")
    backfill = ("backfill", *names, "--again", "--once-more")
    scenario.put_rows(f"{other}/3.json.gz", 3)
    broken("run", "--once")
    committed(scenario)

    def bring_and_break(
        config: Config, where: Where, order: RequestOrder, how: Waits | None
    ) -> ReingestResult:
        if how is not None:
            broken(*backfill)
        return bring(config, where, order, how)

    if moment == "before":
        broken(*backfill)  # and Penguin has not looked at it yet
        assert replayed(scenario).exit_code == 0
    else:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("blizzard_py.app.refused_files.bring", bring_and_break)
            assert replayed(scenario).exit_code == 0
        committed(scenario)
        assert scenario.ids() == [1, 2]
        assert replayed(scenario).exit_code == 0
    committed(scenario)
    assert scenario.ids() == [1, 2, 3]
    assert run_command(scenario, "status").exit_code == 0


def test_replay_names_missing_files_and_changes_nothing(scenario: Scenario) -> None:
    refused(scenario)
    mended(scenario)
    scenario.source.delete(f"{DAY}/4.json.gz")
    before = everything(scenario)
    done = replayed(scenario)
    assert done.exit_code == 1
    assert f"{DAY}/4.json.gz" in done.stderr
    assert everything(scenario) == before


def explained(scenario: Scenario, name: str) -> str:
    told = run_command(scenario, "explain", f"{scenario.place}/raw/{DAY}/{name}", "--json")
    return json.loads(told.stdout)["reason"]


def test_explain_gives_the_remedy_of_a_refused_file(
    scenario: Scenario,
) -> None:
    refused(scenario)
    mended(scenario)
    scenario.source.delete(f"{DAY}/4.json.gz")
    assert "the file has to be there again, under its name" in explained(scenario, "4.json.gz")
    scenario.put(f"{DAY}/4.json.gz", b"")
    assert replayed(scenario).exit_code == 1
    told = explained(scenario, "4.json.gz")
    assert "once it is mended" in told
    assert "`blizzard replay CONFIG --refused`" in told
    scenario.put_rows(f"{DAY}/4.json.gz", 4)
    assert replayed(scenario).exit_code == 0
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4]


def second_source(scenario: Scenario) -> Path:
    """A second source of the same table with one file, whose folder is returned."""
    sources = scenario.document["pipelines"]["events"]["sources"]
    second = scenario.folder / "raw2" / DAY
    second.mkdir(parents=True)
    (second / "9.json.gz").write_bytes(ndjson({"id": 9, "text": 9}))
    scenario.document["pipelines"]["events"]["sources"] = {
        "asked": {**sources["main"], "source_uri": f"{scenario.place}/raw2"},
        **sources,
    }
    return second


def test_replay_stops_after_a_signal_and_continues_when_repeated(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_here(monkeypatch)
    second = second_source(scenario)
    refused(scenario)
    mended(scenario)
    (second / "9.json.gz").write_bytes(ndjson({"id": 9, "text": "t9"}))

    @contextmanager
    def stop_on_signals(stop: threading.Event, _grace_secs: float) -> Iterator[None]:
        stop.set()
        yield

    with monkeypatch.context() as context:
        context.setattr("blizzard_py.app.submit.stop_on_signals", stop_on_signals)
        done = replayed(scenario)
    assert done.exit_code == INTERRUPTED, done.output
    assert "events/main: interrupted before it was looked at" in done.stderr
    told = penguins(scenario)
    assert (told["count"], told["settled"]) == (1, 1)
    again = replayed(scenario)
    assert again.exit_code == 0, again.output
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4, 9]


def test_a_source_that_cannot_be_replayed_costs_itself_alone(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_here(monkeypatch)
    second = second_source(scenario)
    refused(scenario)
    mended(scenario)
    (second / "9.json.gz").unlink()
    for more in (["--dry-run"], []):
        done = replayed(scenario, *more)
        assert done.exit_code == 1, done.output
        assert f"{DAY}/9.json.gz" in done.stderr
        assert "events/main: 1 refused Parquet file" in done.stdout
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4]
    told = json.loads(replayed(scenario, "--json").stdout)
    assert (len(told["errors"]), told["sources"]) == (1, [])


@pytest.mark.parametrize("kind", ["asked", "event time"])
def test_replay_names_the_remedy_when_it_cannot_replace_outputs(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    refused(scenario)
    mended(scenario)
    if kind == "asked":
        monkeypatch.setattr(SourceContext, "has_files", property(lambda _parts: False))
    else:
        settings = EventTimeSettings.model_construct(column="t", policy="min", mode="append")
        made = wiring.context_of
        monkeypatch.setattr(
            "blizzard_py.app.refused_files.context_of",
            lambda *given: replace(made(*given), event_time=EventTimeQuery(settings, (), {})),
        )
    done = replayed(scenario)
    assert done.exit_code == 1
    assert "penguin reconcile" in done.stderr
    assert DAY in done.stderr
    if kind == "asked":
        status = run_command(scenario, "status", "--json")
        [source] = json.loads(status.stdout)["pipelines"]["events"]["sources"].values()
        assert "penguin reconcile" in source["refused"]["remedy"]


def test_a_rewritten_refused_file_is_committed_by_the_sweep(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scenario.folder)
    refused(scenario)
    status = json.loads(run_command(scenario, "status", "--json").stdout)
    [told] = status["pipelines"]["events"]["sources"]["main"]["refused"]["outputs"]
    docs = (Path(__file__).parents[3] / "docs/guides/refused-files.md").read_text()
    lines = docs.partition("```python\n")[2].partition("```")[0]
    assert lines.count("date=2024-01-01/01a2….parquet") == 1
    exec(lines.replace("date=2024-01-01/01a2….parquet", told["path"]))
    done = CliRunner().invoke(penguin, ["reconcile", str(scenario.config)])
    assert done.exit_code == 0, done.output
    assert scenario.ids() == [1, 2, 3, 4]
    assert run_command(scenario, "status").exit_code == 0
    explained = run_command(scenario, "explain", f"{scenario.place}/raw/{DAY}/3.json.gz")
    assert explained.stdout.startswith("ingested: ")
    assert "committed" in explained.stdout
    committed(scenario)
    assert scenario.ids() == [1, 2, 3, 4]

"""The command line of Blizzard: exit codes, documented JSON, signals."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
import urllib.request
from errno import EACCES, ENOSPC
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from blizzard_core import cli
from blizzard_core.log import get_logger
from blizzard_core.signals import INTERRUPTED
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.own_process import free_port
from tests.support.scenario import Scenario, scenario_on


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(blizzard, arguments)


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Scenario:
    found = scenario_on(getattr(request, "param", "local"), request)
    found.put_rows("date=2024-01-01/hour=00/1.ndjson.gz", 1, 2)
    found.put_rows("date=2024-01-01/hour=01/1.ndjson.gz", 3)
    found.put("date=2024-01-01/hour=01/_SUCCESS", b"")
    found.put("date=2024-01-01/hour=01/.2.ndjson.gz.part", b"")
    return found


def source_of(document: dict[str, Any]) -> dict[str, Any]:
    assert set(document) == {"pipelines"}
    assert set(document["pipelines"]) == {"events"}
    sources = document["pipelines"]["events"]["sources"]
    assert set(sources) == {"main"}
    return sources["main"]


@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_plan_and_status_print_the_documented_json(scenario: Scenario) -> None:
    config = str(scenario.config)
    plan = source_of(json.loads(invoke("plan", config, "--json").stdout))
    assert plan["state"] == "Initial"
    assert plan["watermark"] is None
    assert [f["path"] for f in plan["files"]] == [
        "date=2024-01-01/hour=00/1.ndjson.gz",
        "date=2024-01-01/hour=01/1.ndjson.gz",
    ]
    assert all(set(f) == {"path", "size"} for f in plan["files"])
    # A local disk is read by directories, and asked for no pages of a listing.
    assert bool(plan["list_requests"]) == (plan["directories_read"] is None)
    assert plan["keys_listed"] >= 4
    status = source_of(json.loads(invoke("status", config, "--json").stdout))
    lag = status.pop("lag")
    assert (lag["files"], lag["complete"], lag["error"]) == (2, True, None)
    assert 0 <= lag["secs"] < 300
    nobody = {"state": "unknown", "at": None, "host": None, "pid": None}
    assert status == {
        "state": "Initial",
        "watermark": None,
        "partition_watermarks": {},
        "grace_period_secs": 300,
        "notes": [],
        "last_update_ts": None,
        "last_error": None,
        "dead_letters": {
            **dict.fromkeys(("objects", "letters", "records", "bytes"), 0),
            "newest_ts": None,
            "complete": True,
        },
        "refused": {"files": 0, "rows": 0, "outputs": [], "remedy": ""},
        "daemon": nobody,
        "uncommitted": {
            **dict.fromkeys(("files", "rows", "batches"), 0),
            "complete": True,
            "oldest_secs": None,
        },
        "committer": {**nobody, "saved": None, "version": None},
        "problems": [],
        "in_flight": [],
        "requests": [],
        "totals": dict.fromkeys(
            ("batches", "files", "quarantined", "rows", "bytes", "outputs", "bad_rows"), 0
        ),
        "unexpected": [],
    }
    assert scenario.table.stat("_blizzard/events_main_checkpoint.json") is None

    scenario.ingest()
    plan = source_of(json.loads(invoke("plan", config, "--json").stdout))
    assert (plan["state"], plan["files"]) == ("Idle", [])
    status = source_of(json.loads(invoke("status", config, "--json").stdout))
    assert status["state"] == "Idle"
    assert status["watermark"] == "date=2024-01-01/hour=01/1.ndjson.gz"
    assert status["partition_watermarks"] == {
        "date=2024-01-01/hour=00": "1.ndjson.gz",
        "date=2024-01-01/hour=01": "1.ndjson.gz",
    }
    assert abs(status["last_update_ts"] - time.time()) < 300
    assert (status["totals"]["files"], status["totals"]["rows"]) == (2, 3)
    assert status["uncommitted"]["rows"] == 3
    assert status["lag"] == {
        "secs": 0,
        "files": 0,
        "complete": True,
        "apart": {"files": 0, "first": None},
        "ignored": None,
        "error": None,
    }
    ahead = "date=9999-12-31/hour=00/1.ndjson.gz"
    scenario.put_rows(ahead, 9)
    status = source_of(json.loads(invoke("status", config, "--json").stdout))
    assert (status["lag"]["files"], status["lag"]["apart"]) == (0, {"files": 1, "first": ahead})
    shown = invoke("status", config).stdout
    assert "0 (+1 skipped)" in shown
    assert f"events/main: 1 file skipped, such as {ahead}: partitions further ahead" in shown
    scenario.put("date=2024-01-01/hour=01/2.log", b"{}")
    for command in ("plan", "status", "validate"):
        shown = invoke(command, config).output
        assert "events/main: 1 file ignored, such as date=2024-01-01/hour=01/2.log" in shown


def test_tables_are_printed_for_people(scenario: Scenario) -> None:
    for command in ("plan", "status"):
        done = invoke(command, str(scenario.config))
        assert done.exit_code == 0
        assert "events/main" in done.stdout
        assert "Initial" in done.stdout


def test_validate_tells_every_problem_and_exits_with_2(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    done = invoke("validate", str(scenario.config))
    assert (done.exit_code, done.stdout) == (
        0,
        f"{scenario.config}: ok. Checked 1 pipeline, 1 source and 1 table.\n",
    )
    scenario.main_source.update(poll_interval="often", surprise=1)
    scenario.document["tables"] = {"t": {"table_uri": "${NOT_SET_ANYWHERE}"}}
    scenario.write_config()
    for program in (blizzard, penguin):
        for command in (["validate"], ["plan"], ["status"], ["run"]):
            done = CliRunner().invoke(program, [*command, str(scenario.config)])
            assert done.exit_code == 2
            for expected in (
                "3 problems",
                "sources.main.poll_interval",
                "sources.main.surprise (line",
                "tables.t.table_uri",
                "NOT_SET_ANYWHERE is not set",
            ):
                assert expected in done.stderr


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    assert invoke("run").exit_code == 2
    assert invoke("nonsense").exit_code == 2
    missing = invoke("run", str(tmp_path / "nowhere.yaml"))
    assert missing.exit_code == 2
    assert "no such file" in missing.stderr


def test_blizzard_needs_a_pipeline(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"tables": {"t": {"table_uri": str(tmp_path / "t")}}}))
    done = invoke("run", str(config), "--once")
    assert done.exit_code == 2
    assert "pipelines" in done.stderr


@pytest.mark.promise("G-185")
def test_one_process_runs_all_pipelines_and_logs_json(
    tmp_path: Path,
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    events = scenario.document["pipelines"]["events"]
    events["sources"]["second"] = {
        "path": str(tmp_path / "raw2"),
        "advanced": {"compression": "none"},
    }
    for name, folder in (("other", "raw3"), ("broken", "nowhere")):
        more = json.loads(json.dumps(events))
        more["sources"] = {"only": {"path": str(tmp_path / folder)}}
        more["sink"]["table_uri"] = str(tmp_path / "lake" / name)
        scenario.document["pipelines"][name] = more
    scenario.write_config()
    for number, folder in enumerate(("raw", "raw2", "raw3")):
        place = tmp_path / folder / "date=2024-01-01"
        place.mkdir(parents=True)
        (place / "1.ndjson").write_text(f'{{"id": {number}}}\n')
    done = scenario.call("blizzard", "run", str(scenario.config), "--once", "--log-level", "debug")
    assert (done.returncode, done.stdout) == (1, "")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = [line["event"] for line in lines]
    assert (events[:2], events[-1]) == (["machine_checked", "started"], "stopped")
    finished = [line for line in lines if line["event"] == "batch_done"]
    told = {(line["pipeline"], line["source"], line["rows"]) for line in finished}
    assert told == {("events", "main", 1), ("events", "second", 1), ("other", "only", 1)}
    assert {"debug", "info"} <= {line["level"] for line in lines}
    [failed] = [line for line in lines if line["level"] == "error"]
    assert f"{tmp_path}/nowhere" in json.dumps(failed)
    quiet = scenario.call("penguin", "run", str(scenario.config), "--once", "--log-level", "error")
    assert quiet.stderr == ""
    assert scenario.ids() == [0, 1]
    assert DeltaTable(str(tmp_path / "lake/other")).version() == 0


def wait_for(process: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """Read the process's log up to an event."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(json.loads(line))
        if seen[-1]["event"] == event:
            return seen
    raise AssertionError(f"ended without {event}: {seen}")


@pytest.mark.promise("G-184")
def test_sigterm_ends_idle_daemons_with_everything_saved(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    scenario.document["tables"] = {
        "events": {"table_uri": f"{tmp_path}/lake/events", "poll_interval": "100ms"}
    }
    scenario.write_config()
    daemons = [scenario.start(p, "run", str(scenario.config)) for p in ("blizzard", "penguin")]
    wait_for(daemons[0], "idle")
    wait_for(daemons[1], "committed")
    # A daemon that polls finds what arrives later.
    scenario.put_rows("date=2024-01-01/2.ndjson.gz", 2)
    wait_for(daemons[0], "idle")
    wait_for(daemons[1], "committed")
    for daemon in daemons:
        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=60)
        assert daemon.returncode == 0, err
        assert json.loads(err.splitlines()[-1])["event"] == "stopped"
    assert scenario.ids() == [1, 2]


def test_help_names_every_command() -> None:
    text = invoke("--help").output
    for command in ("run", "validate", "plan", "status", "explain", "backfill"):
        assert command in text


def test_metrics_are_served_where_the_configuration_says(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    scenario.ingest()
    port = free_port()
    scenario.document["metrics"] = {"address": f"127.0.0.1:{port}"}
    scenario.write_config()
    daemon = scenario.start("penguin", "run", str(scenario.config))
    wait_for(daemon, "committed")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'penguin_files_committed_total{target="events"} 1.0' in text
    assert "blizzard_late_files_total" not in text  # each daemon tells of itself
    for path in ("health", "ready"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            assert json.load(answer) == {"status": "ok", "reasons": []}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json") as answer:
        [table] = json.load(answer)["targets"]
    assert (table["name"], table["version"], table["level"]) == ("events", 0, "ok")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        assert "<!doctype html>" in answer.read().decode()
    taken = scenario.call("blizzard", "run", str(scenario.config), "--once")
    assert taken.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in taken.stderr
    daemon.terminate()
    daemon.communicate(timeout=60)


def broken_by(error: BaseException) -> Result:
    @cli.command()
    def broken() -> int:
        raise error

    return CliRunner().invoke(broken)


def test_a_command_that_is_interrupted_says_so_with_130() -> None:
    done = broken_by(KeyboardInterrupt())
    assert (done.exit_code, done.stderr) == (INTERRUPTED, "error: interrupted\n")


def test_operating_system_errors_are_not_reported_as_bugs() -> None:
    done = broken_by(OSError(ENOSPC, "No space left on device"))
    assert done.exit_code == 1
    assert "No space left on device; see to that" in done.stderr
    assert (
        "/a/b: Permission denied; see"
        in broken_by(OSError(EACCES, "Permission denied", "/a/b")).stderr
    )
    assert "bug of ours" not in done.stderr
    assert "bug of ours" in broken_by(ValueError("x")).stderr


def test_a_librarys_warning_shows_no_trace_and_no_secret() -> None:
    @cli.command(log_level=False)
    def look() -> int:
        told = FileNotFoundError(2, "No such file or directory", "/run/token?sig=geheimgeheim")
        logging.getLogger("botocore.credentials").warning("Refreshing failed", exc_info=told)
        get_logger().warning("told")
        cli.print_json({})
        return 0

    done = CliRunner().invoke(look, [])
    assert done.stdout == "{}\n"
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["library", "told"]
    assert "geheim" not in done.stderr

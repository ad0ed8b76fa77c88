"""`status` of both commands while a real daemon works, is killed and is stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import NOT_COMMITTING
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app import inspection
from penguin_py import app as penguin_app
from penguin_py.__main__ import main as penguin
from tests.support.scenario import Scenario

BOTH = (blizzard, penguin)


@contextmanager
def daemon(scenario: Scenario, program: str) -> Iterator[subprocess.Popen[str]]:
    process = scenario.start(program, "run", str(scenario.config))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], bool]) -> None:
    """Wait for it; a test that waits longer fails."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def codes(scenario: Scenario) -> list[int]:
    return [CliRunner().invoke(main, ["status", str(scenario.config)]).exit_code for main in BOTH]


def source(scenario: Scenario) -> dict[str, Any]:
    return scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]


def table(scenario: Scenario) -> dict[str, Any]:
    return scenario.status("penguin")["tables"]["events"]


def test_a_killed_penguin_is_distinguished_from_an_idle_one(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1, 2)
    scenario.ingest()
    assert codes(scenario) == [NOT_COMMITTING, NOT_COMMITTING]
    with daemon(scenario, "penguin") as process:
        until(lambda: table(scenario)["committer"]["state"] == "running")
        until(lambda: table(scenario)["uncommitted"]["rows"] == 0)
        assert codes(scenario) == [0, 0]
        process.kill()
        process.wait()
    scenario.put_rows("date=2024-01-01/2.ndjson.gz", 3)
    scenario.put_rows("date=2024-01-02/1.ndjson.gz", *range(4, 8))
    scenario.ingest()
    assert codes(scenario) == [NOT_COMMITTING, NOT_COMMITTING]
    for found in (source(scenario), table(scenario)):
        assert (found["uncommitted"]["files"], found["uncommitted"]["rows"]) == (2, 5)
        [problem] = found["problems"]
        assert problem["daemon"] == "penguin"
        assert problem["text"].startswith("2 files, 5 rows published and not committed for ")
        assert "Penguin does not run" in problem["text"]
    shown = CliRunner().invoke(blizzard, ["status", str(scenario.config)])
    assert "events/main: 2 files, 5 rows published and not committed" in shown.stderr
    scenario.once("penguin")
    assert source(scenario)["uncommitted"]["rows"] == 0
    assert scenario.ids() == [1, 2, 3, 4, 5, 6, 7]


def test_a_stopped_penguin_is_said_until_a_run_with_once(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    scenario.ingest()
    with daemon(scenario, "penguin") as process:
        until(lambda: table(scenario)["committer"]["state"] == "running")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert codes(scenario) == [NOT_COMMITTING, NOT_COMMITTING]
    assert table(scenario)["committer"]["state"] == "stopped"
    scenario.once("penguin")
    assert codes(scenario) == [0, 0]


def test_a_penguin_that_polls_hourly_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    for number in (1, 2):
        scenario.put_rows(f"date=2024-01-0{number}/1.ndjson.gz", number)
        scenario.ingest()
        if number == 1:
            scenario.commit()
    later = SimpleNamespace(time=lambda: time.time() + 1000)
    monkeypatch.setattr(inspection, "time", later)
    monkeypatch.setattr(penguin_app, "time", later)
    assert codes(scenario) == [NOT_COMMITTING, NOT_COMMITTING]
    table = {"table_uri": f"{tmp_path}/lake/events", "poll_interval": "1h"}
    scenario.document["tables"] = {"events": table}
    scenario.write_config()
    assert codes(scenario) == [0, 0]

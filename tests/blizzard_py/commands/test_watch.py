"""`blizzard watch`: what stands on a terminal of any size, and the command on a real one."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from blizzard_core.observability.peer_state import summarize_state
from blizzard_py.__main__ import main
from blizzard_py.app.pipeline_watch import Committing, PipelineSnapshot
from blizzard_py.commands.watch_screen import picture
from tests.support.scenario import Scenario

NOW = 1_700_000_000.0


def source(**given: Any) -> dict[str, Any]:
    return {
        "state": "Idle",
        "watermark": "date=2026-11-01/1.json",
        "lag": {"secs": 0.0, "files": 0, "complete": True, "apart": None, "error": None},
        "dead_letters": {"letters": 0, "complete": True},
        "refused": {"files": 0, "rows": 0, "outputs": []},
        "requests": [],
        "in_flight": [],
        "totals": {"rows": 1_234_567},
        "uncommitted": {"files": 0, "rows": 0, "complete": True},
        "problems": [],
        **given,
    }


def shown(sight: PipelineSnapshot, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    with console.capture() as captured:
        console.print(picture(sight, NOW, height))
    return captured.get().splitlines()


def snapshot_of(
    sources: dict[str, Any], *committing: Committing, errors: tuple[str, ...] = ()
) -> PipelineSnapshot:
    return PipelineSnapshot({"pipelines": {"events": {"sources": sources}}}, committing, errors)


def penguin(name: str, **told: Any) -> Committing:
    document = {
        "watermark": {"state": "Idle", "value": "a.parquet"},
        "log": {"version": 12},
        **told,
    }
    return Committing("/lake", name, NOW - 90, summarize_state(document))


def test_watch_shows_both_daemons_and_marks_problems_red() -> None:
    batch = {"phase": "running", "files": 40}
    sources = {
        "main": source(in_flight=[batch]),
        "late": source(dead_letters={"letters": 7, "complete": True}),
        "asked": source(kind="table", watermark={"id": 7}),
    }
    blocked = penguin("orders", blocked={"events/units": "group 3 is missing"})
    lines = shown(snapshot_of(sources, penguin("events"), blocked), width=120)
    text = "\n".join(lines)
    assert "running, 40 files" in text
    assert "id=7" in text
    assert "0:01:30 ago" in text
    [late] = [line for line in lines if "events/late" in line]
    assert "\x1b[31m" in late
    [red] = [line for line in lines if "blocked" in line]
    assert "\x1b[31m" in red
    torn = Committing("/lake", "torn", NOW, summarize_state({}, "is no JSON"))
    [red] = [line for line in shown(snapshot_of({}, torn)) if "is no JSON" in line]
    assert "\x1b[31m" in red
    [fine] = [line for line in lines if "events/main" in line]
    assert "\x1b[31m" not in fine


def test_a_daemon_that_is_down_is_said_below_the_tables() -> None:
    down = {"daemon": "penguin", "text": "2 files, 550 rows published and not committed"}
    waiting = {"files": 2, "rows": 550, "complete": True}
    lines = shown(snapshot_of({"main": source(uncommitted=waiting, problems=[down])}), width=120)
    [row] = [line for line in lines if "events/main" in line and "Idle" in line]
    assert "550" in row
    [said] = [line for line in lines if "events/main: 2 files, 550 rows published" in line]
    assert "\x1b[31m" in said


def test_requests_that_are_not_done_are_shown() -> None:
    asked = {"id": "7f3a9c2e.1", "state": "running", "counts": {"ingested": 1200, "left": 3}}
    [line] = [
        line
        for line in shown(snapshot_of({"main": source(requests=[asked])}))
        if "request 7f3a9c2e.1 is running (1,200 ingested, 3 left)" in line
    ]
    assert "events/main" in line


def test_names_fit_80_columns_and_foreign_text_is_escaped() -> None:
    name = "a-source-with-a-long-name\x1b[2J[red]"
    lines = shown(snapshot_of({name: source(watermark="x" * 300)}), width=80)
    assert any("events/a-source-with-a-long-name" in line for line in lines)
    assert not any("\x1b[2J" in line for line in lines)
    assert any("[red]" in line for line in lines)


def test_a_failing_source_is_shown_among_three_hundred() -> None:
    sources = {f"s{number:03}": source() for number in range(300)}
    sources["s217"] = source(dead_letters={"letters": 1, "complete": True})
    lines = shown(snapshot_of(sources, *(penguin(f"t{n}") for n in range(40)), errors=("out",) * 9))
    assert len(lines) <= 24
    assert any("events/s217" in line for line in lines)
    assert any("more are not shown" in line for line in lines)
    assert sum("out" in line.split() for line in lines) <= 4


def test_elsewhere_than_on_a_terminal_it_says_what_to_use(scenario: Scenario) -> None:
    done = CliRunner().invoke(main, ["watch", str(scenario.config)])
    assert done.exit_code == 2
    assert "blizzard status --json" in done.stderr


def test_on_a_terminal_that_cannot_be_drawn_on_it_says_so(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")  # takes any stream for a terminal
    done = CliRunner().invoke(main, ["watch", str(scenario.config)])
    assert done.exit_code == 2
    assert "can be drawn on" in done.stderr


def test_a_locale_that_is_not_utf8_is_refused_in_words(scenario: Scenario) -> None:
    command = [sys.executable, "-m", "blizzard_py", "status", str(scenario.config)]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "set PYTHONUTF8=1 or LC_ALL=C.UTF-8" in done.stderr


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path, str(tmp_path))


def test_on_a_terminal_it_draws_until_ctrl_c(scenario: Scenario) -> None:
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "blizzard_py", "watch", str(scenario.config), "--every", "1"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        drawn = b""
        while b"Initial" not in drawn:
            assert select.select([ours], [], [], 60)[0], drawn
            drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        # A terminal that nobody reads would keep it waiting.
        reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
        reader.start()
        assert process.wait(60) == 0
    assert b"events/main" in drawn


def _drain(descriptor: int) -> None:
    with os.fdopen(descriptor, "rb", buffering=0) as terminal:
        try:
            while terminal.read(65536):
                pass
        except OSError:  # the other end is closed
            return

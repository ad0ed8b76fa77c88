"""`blizzard up`: both daemons as one command, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.settings.document import MetricsSettings
from blizzard_core.signals import INTERRUPTED
from blizzard_py.__main__ import main
from blizzard_py.commands.up import page_addresses, supervise
from tests.support.own_process import free_port
from tests.support.scenario import Scenario


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    found.put_rows("date=2024-01-01/1.ndjson.gz", 1, 2)
    return found


@contextmanager
def running(scenario: Scenario) -> Iterator[subprocess.Popen[str]]:
    """Run ``blizzard up`` until both daemons have had their first poll."""
    process = scenario.start("blizzard", "up", str(scenario.config))
    pids: list[int] = []
    try:
        until(lambda: set(states(scenario)) == {"running"})
        pids = daemon_pids(scenario)
        yield process
    finally:
        for pid in (process.pid, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def until(holds: Callable[[], bool]) -> None:
    """Wait for it; a test that waits longer fails."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def daemons(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the heartbeats of Blizzard and Penguin."""
    found = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]
    return [found["daemon"], found["committer"]]


def states(scenario: Scenario) -> list[str]:
    return [each["state"] for each in daemons(scenario)]


def daemon_pids(scenario: Scenario) -> list[int]:
    return [each["pid"] for each in daemons(scenario)]


def test_rows_go_into_the_table_until_ctrl_c(scenario: Scenario) -> None:
    with running(scenario) as process:
        address = process.stdout.readline().removeprefix("status page: ").strip()
        for daemon, path in (("blizzard", ""), ("penguin", "penguin/")):
            with urllib.request.urlopen(f"{address}{path}status.json", timeout=30) as page:
                assert f'"daemon": "{daemon}"' in page.read().decode()
        until(lambda: bool(scenario.status("penguin")["tables"]["events"]["txn_version"]))
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=120)
    assert process.returncode == 0
    ends = [line for line in log.splitlines() if '"event": "stopped"' in line]
    assert sorted(json.loads(line)["daemon"] for line in ends) == ["blizzard", "penguin"]
    assert states(scenario) == ["stopped", "stopped"]
    assert scenario.ids() == [1, 2]


def test_the_death_of_one_daemon_stops_the_other(scenario: Scenario) -> None:
    with running(scenario) as process:
        _, penguin = daemon_pids(scenario)
        os.kill(penguin, signal.SIGKILL)
        _, log = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL
    assert "penguin was killed (exit code 137), by hand or for lack of memory: see `dmesg`" in log
    assert '"event": "stopped"' in log  # Blizzard, in order
    assert states(scenario) == ["stopped", "stopped"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of it")
def test_the_daemons_end_if_the_command_is_killed(scenario: Scenario) -> None:
    with running(scenario) as process:
        process.kill()
        process.wait()
        until(lambda: states(scenario) == ["stopped", "stopped"])


def test_a_wrong_configuration_starts_nothing(scenario: Scenario) -> None:
    scenario.document["pipelines"]["events"]["sink"].pop("table_uri")
    scenario.write_config()
    done = CliRunner().invoke(main, ["up", str(scenario.config)])
    assert done.exit_code == 2
    assert "table_uri" in done.stderr
    assert done.stdout == ""


def test_a_configuration_without_pipelines_starts_nothing(scenario: Scenario) -> None:
    table = scenario.document["pipelines"]["events"]["sink"]["table_uri"]
    scenario.config.write_text(f"tables: {{events: {{table_uri: {table}}}}}")
    done = CliRunner().invoke(main, ["up", str(scenario.config)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "run `penguin run` alone" in done.stderr


def test_the_second_interrupt_kills_children_that_hang() -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.05)
"""
    assert supervise({"deaf": [sys.executable, "-c", code]}, 600.0) == INTERRUPTED


def test_a_child_ignores_ctrl_c_until_it_handles_it() -> None:
    code = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(600)
"""
    assert supervise({"importing": [sys.executable, "-c", code]}, 600.0) == 0


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    commands = {
        "deaf": [sys.executable, "-c", code],
        "short": [sys.executable, "-c", "import sys; sys.exit(3)"],
    }
    assert supervise(commands, 0.0) == 3


def test_pages_have_the_configured_addresses_or_free_ports() -> None:
    given = MetricsSettings(address="0.0.0.0:9000", penguin_address="0.0.0.0:9001")
    assert page_addresses(given) == {"blizzard": "0.0.0.0:9000", "penguin": "0.0.0.0:9001"}
    port = free_port()
    beside = page_addresses(MetricsSettings(address=f"127.0.0.1:{port}"))
    assert beside["blizzard"] == f"127.0.0.1:{port}"
    assert beside["penguin"] not in (beside["blizzard"], "127.0.0.1:0")
    chosen = page_addresses(MetricsSettings(address="127.0.0.1:0"))
    assert min(int(each.rpartition(":")[2]) for each in chosen.values()) > 1023
    ipv6 = page_addresses(MetricsSettings(address="[::1]:0"))
    assert all(address.startswith("[::1]:") for address in ipv6.values())
    free = page_addresses(None)
    assert all(address.startswith("127.0.0.1:") for address in free.values())

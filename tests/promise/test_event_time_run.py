"""Event time as a user runs it: real processes, files step by step, a kill -9 between."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

from blizzard_py.__main__ import main as blizzard
from blizzard_py.engines.spark.gateway import quick_start_settings
from penguin_py.__main__ import main as penguin
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of
from tests.support.forked_process import ROOT, call_forked

STEPS: list[list[dict[str, Any]]] = [
    [row(107), row(101, bytes_=4)],
    [row(118, "b")],
    [],
    [row(102), row(119)],
    [row(140), row(131, "b")],
    [row(160)],
]


class Refused:
    """An engine that must not be used."""


def killed(kill_at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Blizzard's command in a process that is killed at the point, or whose JVM is."""
    words = (kill_at, "blizzard", *arguments)
    return call_forked("tests.support.dying_main", words, PYTHONPATH=str(ROOT))


def written(world: EventTimeHarness) -> tuple[Path, dict[str, Any]]:
    """Write the configuration to a file; return its path and content."""
    config = world.root / "config.yaml"
    document = {
        "spark": {"master": "local[2]", "conf": quick_start_settings({})},
        **world.config().model_dump(
            mode="json", by_alias=True, include={"pipelines"}, exclude_defaults=True
        ),
    }
    config.write_text(yaml.safe_dump(document))
    return config, document


@pytest.mark.promise("G-063", "G-065")
@pytest.mark.timeout(900)  # a loaded machine takes ten times as long
def test_a_killed_process_and_a_killed_jvm_change_nothing(tmp_path: Path) -> None:
    """Follow the start of docs/reference/event-time.md; the JVM dies in a micro-batch."""
    world = EventTimeHarness(tmp_path, Refused())  # type: ignore[arg-type]  # only for its files
    config, _ = written(world)
    oracle = Oracle(TUMBLING)
    for rows in STEPS[:3]:
        oracle.add_batch({world.put(rows): rows})
    died = killed("3-settled", "run", str(config), "--once")
    assert died.returncode == -signal.SIGKILL, died.stderr
    for rows in STEPS[3:]:
        oracle.add_batch({world.put(rows): rows})
    done = killed("JVM:3-in-a-micro-batch", "run", str(config), "--once")
    assert done.returncode == 0, done.stderr
    assert "cycle_failed" in done.stderr
    assert "windows_open" in done.stderr
    # Its query is stopped before Spark is, which would tell of an error.
    assert "Exception in thread" not in done.stderr
    assert CliRunner().invoke(penguin, ["run", str(config), "--once"]).exit_code == 0

    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert windows_of(found) == oracle.emitted
    assert len(set(world.output_ids())) == len(world.output_ids())
    assert world.packs() == world.stream().objects
    told = json.loads(CliRunner().invoke(blizzard, ["status", str(config), "--json"]).stdout)
    told = told["pipelines"]["pages"]["event_time"]
    assert [one["watermark_ms"] for one in told["history"]] == oracle.watermarks
    assert [one["late_rows"] for one in told["history"]] == oracle.late_counts
    assert told["unaccounted_rows"] == 0
    assert told["state_rows"] == told["history"][-1]["state_rows"] == 1
    assert "0004.ndjson" in CliRunner().invoke(blizzard, ["dlq", "list", str(config)]).stdout
    assert world.late() == Counter({("0004.ndjson", 1): 1})
    where = ("--pipeline", "pages", "--source", "web", "--all")
    replayed = CliRunner().invoke(blizzard, ["replay", str(config), *where])
    assert replayed.exit_code == 2
    assert "a replay cannot add rows to published windows" in replayed.stderr

"""Commands that a signal reaches between two steps say what is left, and not that all is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.signals import INTERRUPTED
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app import submit
from blizzard_py.job import IngestJob, IngestResult
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario, ndjson

DAY = "date=2024-01-01"


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    # Batches of one file, so that each has a letter of its own.
    found.main_source["checkpoint"] = {"interval_files": 1}
    found.write_config()
    return found


def lettered(scenario: Scenario) -> None:
    """Three files that were none are mended."""
    for number in (1, 2, 3):
        scenario.put(f"{DAY}/{number}.json.gz", b"junk")
    scenario.ingest()
    for number in (1, 2, 3):
        scenario.put_rows(f"{DAY}/{number}.json.gz", number)


def signalled(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """A signal comes once so many jobs are done; 0: as soon as it is heard."""
    heard: list[threading.Event] = []
    real = DirectEngine.ingest
    done = [0]

    @contextmanager
    def stop_on_signals(stop: threading.Event, _grace_secs: float) -> Iterator[None]:
        heard[:] = [stop]
        if not after:
            stop.set()
        yield

    def ingest(engine: DirectEngine, job: IngestJob) -> IngestResult:
        result = real(engine, job)
        done[0] += 1
        if done[0] == after:
            heard[0].set()
        return result

    monkeypatch.setattr(submit, "stop_on_signals", stop_on_signals)
    monkeypatch.setattr(DirectEngine, "ingest", ingest)


def run_command(scenario: Scenario, *arguments: str) -> Result:
    command, *more = arguments
    return CliRunner().invoke(blizzard, [command, str(scenario.config), *more])


REPLAY = ("replay", "--pipeline", "events", "--source", "main", "--all")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_replay_with_letters_left_is_not_done(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    lettered(scenario)
    with monkeypatch.context() as context:
        signalled(context, after=after)
        done = run_command(scenario, *REPLAY)
        assert done.exit_code == INTERRUPTED, done.output
        assert "is not done: interrupted; it stays" in done.stderr
        assert "No open dead letters" not in done.stdout
        assert published(scenario) == after
    assert run_command(scenario, *REPLAY).exit_code == 0
    assert published(scenario) == 3
    assert run_command(scenario, *REPLAY).stdout.startswith("No open dead letters")


@pytest.mark.promise("G-047")
def test_files_of_a_source_that_was_not_looked_at_are_not_in(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = scenario.document["pipelines"]["events"]["sources"]
    sources["second"] = {**scenario.main_source, "source_uri": f"{scenario.place}/raw2"}
    scenario.write_config()
    uris = []
    for folder in ("raw", "raw2"):
        path = scenario.folder / folder / DAY / "_1.json.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(ndjson({"id": len(uris)}))
        uris.append(str(path))
    scenario.ingest()
    with monkeypatch.context() as context:
        signalled(context, after=0)
        done = run_command(scenario, "ingest", *uris)
        assert done.exit_code == INTERRUPTED, done.output
        assert "is not done: interrupted; it stays" in done.stderr
        assert "interrupted before it was requested" in done.stdout
        assert "0 rows of 0 files are in" in done.stdout
        assert published(scenario) == 0
    assert run_command(scenario, "ingest", uris[1]).exit_code == 0
    assert published(scenario) == 1
    assert run_command(scenario, "ingest", *uris).exit_code == 0
    assert published(scenario) == 2


def published(scenario: Scenario) -> int:
    folder = scenario.folder / "lake/events"
    return len(list(folder.glob("date=*/*.parquet")))

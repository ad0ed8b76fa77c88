"""``blizzard wait`` and ``blizzard verify``, with both daemons over a local table."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_core.delta_json import commit_path
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.certificates import LOOK_SECS, certified_sources, wait_for
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import tables_of
from tests.support.direct_engine import DirectEngine

DAY = "date=2024-01-28"


@dataclass
class Lake:
    """A source and a table on a disk, and both daemons, whose clock runs ahead by ``skipped``."""

    home: Path
    pool: Executor
    skipped: float = 0.0

    def __post_init__(self) -> None:
        (self.home / "raw").mkdir()
        source = {
            "source_uri": str(self.home / "raw"),
            "complete_after": "1h",
            "late_files": "ingest",
            "advanced": {"late_sweep_interval": "1d"},
        }
        fields = [{"name": "a", "type": "string"}]
        document = {
            "pipelines": {
                "events": {
                    "sources": {"main": source, "raw": {"source_uri": str(self.home / "other")}},
                    "sink": {"table_uri": str(self.home / "lake")},
                    "schema": {"fields": fields},
                }
            }
        }
        self.config.write_text(yaml.safe_dump(document))
        self.worker = self.start_blizzard()
        self.penguin = self.start_penguin()

    @property
    def config(self) -> Path:
        return self.home / "config.yaml"

    def start_blizzard(self) -> SourcePipeline:
        context = context_of(load_config(self.config), ("events", "main"), DirectEngine())
        return source_pipeline(replace(context, monotonic=lambda: time.monotonic() + self.skipped))

    def start_penguin(self) -> TablePipeline:
        table = tables_of(load_config(self.config))[0]
        storage = open_storage(table.uri, {})
        log = DeltaLog(table, storage, self.pool)
        return TablePipeline(table, storage, log, self.pool, time.time)

    def put(self, name: str, *rows: str, partition: str = DAY) -> None:
        path = self.home / "raw" / partition / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{row}\n" for row in rows))

    def ingest(self) -> None:
        """Poll, let the grace period pass, and poll again."""
        for _ in range(2):
            while self.worker.cycle(threading.Event()):
                pass
            self.skipped += 1000

    def commit(self) -> None:
        while self.penguin.cycle(threading.Event()):
            pass

    def ask(self, command: str, *more: str, partition: str = DAY) -> Result:
        named = ["--pipeline", "events", "--partition", partition]
        return CliRunner().invoke(blizzard, [command, str(self.config), *named, *more])


@pytest.fixture
def lake(tmp_path: Path, pool: Executor) -> Lake:
    return Lake(tmp_path, pool)


def test_partition_is_followed_until_it_is_complete(lake: Lake) -> None:
    def answer() -> tuple[int, str]:
        found = lake.ask("wait", "--timeout", "0")
        return found.exit_code, found.output.strip().removeprefix(f"events/main {DAY}: ")

    assert answer() == (7, "not complete: Blizzard has counted nothing yet")
    lake.put("1.ndjson", '{"a": "x"}', '{"a": "y"}')
    while lake.worker.cycle(threading.Event()):
        pass
    assert answer() == (7, "not complete: names of it are in their grace period")
    lake.skipped += 1000
    lake.ingest()
    assert answer()[1].startswith("not complete: all of it is published; Penguin's next poll")
    lake.commit()
    assert answer() == (0, "complete in version 0, 1 file, 2 rows")
    assert lake.ask("wait", "--timeout", "0", "--print", "version").output == "0\n"
    assert lake.ask("verify").output.endswith("1 file at the source, the same as settled\n")

    lake.put("0.ndjson", '{"a": "late"}')
    lake.skipped += 3 * 86_400
    while not lake.ask("wait", "--timeout", "0").exit_code:
        lake.worker.cycle(threading.Event())
        lake.commit()
    assert answer()[0] == 7
    lake.ingest()
    lake.commit()
    assert answer() == (0, "complete in version 1, 2 files, 3 rows")


def test_dead_letters_are_not_clean(lake: Lake) -> None:
    lake.put("1.ndjson", *['{"a": "x"}'] * 20, "no JSON")
    lake.ingest()
    lake.commit()
    assert lake.ask("wait", "--timeout", "0").exit_code == 0
    found = lake.ask("wait", "--timeout", "0", "--clean")
    assert found.exit_code == 8
    assert "1 bad record, 0 files not ingested" in found.output


def test_file_below_the_scan_start_is_found_first(lake: Lake) -> None:
    """It came before the scan that shows its partition to be complete, which does not list it."""
    odd = "tenant=a"
    lake.put("5.ndjson", '{"a": "x"}', partition=odd)
    lake.ingest()
    lake.ingest()
    lake.put("0.ndjson", '{"a": "late"}', partition=odd)
    lake.skipped += 3700
    lake.ingest()
    lake.commit()
    assert lake.ask("wait", "--timeout", "0", partition=odd).exit_code == 7
    lake.skipped += 3700
    lake.ingest()
    lake.commit()
    found = lake.ask("wait", "--timeout", "0", partition=odd)
    assert found.output.endswith("complete in version 0, 2 files, 2 rows\n")


def test_removed_file_does_not_keep_it_open(lake: Lake) -> None:
    lake.put("5.ndjson", '{"a": "x"}')
    lake.put("6.ndjson", '{"a": "x"}')
    while lake.worker.cycle(threading.Event()):
        pass
    (lake.home / "raw" / DAY / "5.ndjson").unlink()
    lake.skipped += 1000
    lake.ingest()
    lake.commit()
    assert "2 files, 2 rows" in lake.ask("wait", "--timeout", "0").output


def test_partition_that_no_marker_can_name_stays_open(lake: Lake) -> None:
    long = f"tenant={'x' * 240}"
    lake.put("1.ndjson", '{"a": "x"}', partition=long)
    lake.ingest()
    lake.skipped += 3700
    lake.ingest()
    lake.commit()
    found = lake.ask("wait", "--timeout", "0", partition=long)
    assert found.exit_code == 7
    assert "longer than 200 bytes" in found.output


def test_verify_leaves_out_files_of_other_times(lake: Lake) -> None:
    lake.put("1.ndjson", '{"a": "x"}')
    lake.ingest()
    lake.put("0.ndjson", '{"a": "old"}')
    os.utime(lake.home / "raw" / DAY / "0.ndjson", (1e9, 1e9))
    document = yaml.safe_load(lake.config.read_text())
    main = document["pipelines"]["events"]["sources"]["main"]
    main["advanced"]["modified_after"] = "2020-01-01T00:00:00Z"
    lake.config.write_text(yaml.safe_dump(document))
    assert lake.ask("verify").exit_code == 0


def test_verify_says_what_differs(lake: Lake) -> None:
    assert lake.ask("verify").exit_code == 6
    lake.put("1.ndjson", '{"a": "x"}')
    lake.ingest()
    lake.put("1.ndjson", '{"a": "changed"}')
    assert "but with other names or sizes" in lake.ask("verify").output
    lake.put("0.ndjson", '{"a": "late"}')
    found = lake.ask("verify", "--json")
    assert found.exit_code == 6
    (told,) = json.loads(found.stdout)["sources"]
    assert (told["listed"], told["counted"], told["equal"]) == (2, 1, False)


def test_source_without_certificates_is_named(lake: Lake) -> None:
    found = lake.ask("wait", "--source", "raw")
    assert found.exit_code == 2
    assert "events/raw certifies no partition" in found.output


@pytest.mark.parametrize("text", ["3600", "-1s", "1 month"])
def test_timeout_needs_a_unit(lake: Lake, text: str) -> None:
    assert lake.ask("wait", "--timeout", text).exit_code == 2


def test_wait_looks_until_the_timeout(lake: Lake) -> None:
    now = 0.0
    pauses: list[float] = []

    def pause(secs: float) -> None:
        nonlocal now
        now += secs
        pauses.append(secs)

    parts = certified_sources(load_config(lake.config), "events", None)
    answers = wait_for(parts, DAY, 12.0, lambda: now, pause)
    assert pauses == [LOOK_SECS, LOOK_SECS, 2.0]
    assert [each.marker for each in answers] == [None]


@pytest.mark.promise("G-225")
def test_marker_of_another_log_is_not_believed(lake: Lake) -> None:
    lake.put("1.ndjson", '{"a": "x"}')
    lake.ingest()
    lake.commit()
    assert lake.ask("wait", "--timeout", "0").exit_code == 0
    commit = lake.home / "lake" / commit_path(0)
    commit.write_bytes(b'{"commitInfo":{}}\n' + commit.read_bytes())
    found = lake.ask("wait", "--timeout", "0")
    assert found.exit_code == 7
    assert "version 0 of another log than the table has now" in found.output
    commit.unlink()
    assert lake.ask("wait", "--timeout", "0").exit_code == 7
    (commit.parent / "_last_checkpoint").write_text('{"version": 3}')  # it was cleaned up
    assert lake.ask("wait", "--timeout", "0").exit_code == 0


@pytest.mark.promise("G-225")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("fence", ["there", "lost"])
def test_older_checkpoint_lets_its_markers_go(lake: Lake, late: bool, fence: str) -> None:
    """No batch ended between both checkpoints, so nothing else shows that one is the older."""
    lake.put("1.ndjson", '{"a": "x"}')
    while lake.worker.cycle(threading.Event()):
        pass
    checkpoint = lake.home / "lake/_blizzard/events_main_checkpoint.json"
    older = checkpoint.read_bytes()
    lake.skipped += 1000
    lake.ingest()
    lake.commit()
    assert lake.ask("wait", "--timeout", "0").exit_code == 0

    for _ in range(2):  # its epochs are behind by more than the next take-over
        lake.worker = lake.start_blizzard()
        lake.ingest()
        lake.commit()
    checkpoint.write_bytes(older)
    if fence == "lost":
        (lake.home / "lake/_blizzard_fence/events_main.json").unlink()
    lake.worker = lake.start_blizzard()
    if late:
        lake.put("0.ndjson", '{"a": "late"}')
    lake.ingest()
    assert lake.ask("wait", "--timeout", "0").exit_code == 7
    lake.ingest()
    lake.commit()
    told = lake.ask("wait", "--timeout", "0").output
    assert told.endswith("2 files, 2 rows\n" if late else "1 file, 1 row\n")

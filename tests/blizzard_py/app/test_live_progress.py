"""Progress: what is counted, what a terminal shows, what a log gets instead."""

from __future__ import annotations

import io
import json
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from blizzard_core import log
from blizzard_core.settings.document import Config
from blizzard_py.app import daemon as app
from blizzard_py.app.live_progress import show_progress, table_of
from blizzard_py.sources.meter import Meter
from tests.support.direct_engine import DirectEngine
from tests.support.pipeline_harness import PipelineHarness


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def text_of(meters: dict[str, Meter]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table_of(meters))
    return console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO above


def test_speed_and_time_left_follow_what_is_done() -> None:
    clock = Clock()
    meter = Meter(clock)
    assert not meter.read().working
    meter.start_poll(4, 40_000_000)
    assert (meter.read().working, meter.read().remaining_secs) == (True, None)
    clock.now = 5
    meter.add_published(1, 10_000_000, 700)
    reading = meter.read()
    assert (reading.bytes_per_sec, reading.remaining_secs) == (2_000_000, 15)
    clock.now = 10  # the next batch takes its time
    assert meter.read().bytes_per_sec == 1_000_000
    meter.add_published(3, 30_000_000, 300)
    clock.now = 1000  # idle: nothing changes
    reading = meter.read()
    assert (reading.working, reading.secs, reading.remaining_secs, reading.rows) == (
        False,
        10,
        0,
        1000,
    )
    meter.start_poll(1, 5)
    assert (meter.read().files, meter.read().found_files) == (0, 1)


def test_a_pipeline_counts_its_files_and_rows() -> None:
    world = PipelineHarness()
    for number in range(5):
        world.put(f"{number}.ndjson", "x", "y")
    pipeline = world.pipeline()
    pipeline.cycle(threading.Event())
    reading = pipeline.meter.read()
    assert (reading.files, reading.found_files, reading.rows) == (5, 5, 10)
    assert reading.bytes == reading.found_bytes > 0


def test_rows_of_a_running_job_count_before_publication() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.start_poll(40, 4_000)
    share: list[float | None] = [None]
    meter.start_job(3_000, lambda: share[0])
    clock.now = 3
    assert (meter.read().bytes, meter.read().remaining_secs) == (0, None)
    share[0] = 0.5
    assert (meter.read().bytes, meter.read().files, meter.read().remaining_secs) == (1_500, 0, 5)
    # The next job begins while the first one's outputs are published.
    meter.end_job()
    meter.start_job(1_000, lambda: 0.25)
    assert (meter.read().bytes, meter.read().files) == (3_250, 0)
    meter.add_published(30, 3_000, 7)
    assert (meter.read().bytes, meter.read().files, meter.read().rows) == (3_250, 30, 7)
    # It fails, and another one takes its place.
    meter.start_job(1_000, lambda: None)
    assert meter.read().bytes == 3_000
    meter.end_job()
    meter.add_published(10, 1_000, 3)
    assert (meter.read().bytes, meter.read().working) == (4_000, False)


def test_the_table_has_a_row_for_each_source_and_obeys_no_name() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.start_poll(1200, 10_000_000)
    clock.now = 2
    meter.add_published(300, 4_000_000, 1_234_567)
    shown_text = text_of({"events/[red]main": meter, "events/\x1b[2Jlate": Meter(clock)})
    assert "300/1,200" in shown_text
    assert "1,234,567" in shown_text
    assert " 2.0 " in shown_text
    assert "0:00:03" in shown_text
    assert "events/[red]main" in shown_text
    assert "\x1b[2J" not in shown_text


def test_log_lines_and_the_live_table_share_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    log.configure("info")
    meter = Meter()
    meter.start_poll(2, 20)
    with show_progress(
        {"events/main": meter}, Console(file=terminal, force_terminal=True, width=100)
    ):
        log.get_logger().info("batch_done", rows=7)
        meter.add_published(2, 20, 7)
    printed = terminal.getvalue()
    [line] = [text for text in printed.splitlines() if "batch_done" in text]
    assert line[line.index("{") :].startswith('{"rows": 7')
    # What stays is the end of the work.
    assert printed.rindex("2/2") > printed.index("batch_done")
    assert sys.stderr is terminal


def test_without_a_terminal_only_a_backlog_is_logged() -> None:
    told: list[str] = []
    busy, idle = Meter(), Meter()
    busy.start_poll(2, 20)
    written = threading.Event()

    class ProgressLines(io.StringIO):
        def write(self, text: str) -> int:
            if "progress" in text:
                told.append(text)
                written.set()
            return len(text)

    log.configure("info", ProgressLines())
    with show_progress({"events/busy": busy, "events/idle": idle}, None, interval_secs=0.01):
        assert written.wait(30)
    lines = [json.loads(text) for text in told]
    assert {line["source"] for line in lines} == {"events/busy"}
    assert lines[0] | {"files": 0, "found_files": 2, "left_secs": None} == lines[0]


@pytest.mark.parametrize("terminal", [True, False])
def test_run_once_draws_on_a_terminal_only(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    folder = f"{tmp_path}/raw"
    stream = Stream()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    monkeypatch.setattr(sys, "stderr", stream)
    log.configure("warning")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "1.ndjson").write_bytes(b'{"id":1}\n')
    config = Config.model_validate(
        {
            "pipelines": {
                "events": {
                    "sources": {"main": {"source_uri": folder}},
                    "sink": {"table_uri": f"{tmp_path}/table"},
                    "schema": {"fields": [{"name": "id", "type": "int64"}]},
                }
            }
        }
    )
    assert app.run_daemon(config, once=True) == 0
    assert ("1/1" in stream.getvalue()) == terminal

"""Warnings that repeat: told, summed up, never lost."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from blizzard_core import log
from blizzard_core.log import RepeatFilter


class LogCapture:
    """A logger over `RepeatFilter` whose clock is turned by hand."""

    def __init__(self, window_secs: float = 600) -> None:
        self.now = 0.0
        self.lines: list[dict[str, Any]] = []
        self.repeats = RepeatFilter(json.dumps, lambda: self.now, window_secs)

    def log(self, event: str = "cycle_failed", level: str = "warning", **facts: Any) -> None:
        text = self.repeats({"event": event, "level": level, "at": self.now, **facts})
        self.lines += [json.loads(line) for line in text.splitlines()]


def test_the_first_is_printed_and_one_per_window_with_the_count() -> None:
    told = LogCapture()
    for _ in range(130):
        told.log(worker="p/s", error="no answer")
        told.now += 10
    assert [(line["at"], line.get("repeated")) for line in told.lines] == [
        (0, None),
        (600, 59),
        (1200, 59),
    ]


def test_the_last_repeat_is_printed_with_the_next_line() -> None:
    told = LogCapture()
    for _ in range(5):
        told.log(error="no answer")
        told.now += 1
    told.log("idle", "info")
    assert [line["event"] for line in told.lines] == ["cycle_failed", "idle"]
    told.now += 600
    told.log("idle", "info")
    assert [(line["event"], line["at"]) for line in told.lines[2:]] == [
        ("cycle_failed", 4),
        ("idle", 605),
    ]
    assert told.lines[2]["repeated"] == 3


def test_the_last_state_is_printed_at_the_end() -> None:
    told = LogCapture()
    for number in range(3):
        told.log(error=f"request {number} failed")
    held = json.loads(told.repeats.flush())
    assert (held["error"], held["repeated"]) == ("request 2 failed", 1)
    assert told.repeats.flush() == ""


def test_every_line_is_accounted_for() -> None:
    told = LogCapture(window_secs=7)
    for number in range(500):
        told.log(error=f"id {number}", worker=f"w{number % 3}")
        told.now += 1
    printed = told.lines + [json.loads(line) for line in told.repeats.flush().splitlines()]
    assert sum(1 + line.get("repeated", 0) for line in printed) == 500


@pytest.mark.parametrize(
    "other",
    [
        {"worker": "q/s"},
        {"path": "b"},
        {"field": "b"},
        {"error": "denied"},
        {"event": "worker_failed"},
        {"level": "error"},
    ],
)
def test_lines_that_differ_in_a_fact_are_both_printed(other: dict[str, str]) -> None:
    told = LogCapture()
    facts = {"event": "e", "level": "warning", "worker": "p/s", "path": "a", "error": "no answer"}
    told.log(**facts)
    told.log(**{**facts, **other})
    assert len(told.lines) == 2


def test_the_same_file_failing_in_the_next_batch_is_the_same() -> None:
    told = LogCapture()
    for number in range(3):
        told.log("file_failed", path="1-a", error="no answer", batch=f"b{number}", attempt=number)
    assert len(told.lines) == 1


def test_facts_that_are_no_problem_are_never_held_back() -> None:
    told = LogCapture()
    for _ in range(3):
        told.log("batch_done", "info")
    assert len(told.lines) == 3


def test_memory_is_bounded_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_KINDS", 10)
    told = LogCapture()
    for number in range(100):
        for _ in range(2):
            told.log(path=str(number))
    rest = told.repeats.flush().splitlines()
    assert len(rest) <= 11  # what it has kept in memory
    assert len(told.lines) + len(rest) == 200


def test_the_log_holds_back_and_flushes() -> None:
    stream = io.StringIO()
    log.configure("info", stream)
    for number in range(4):
        log.get_logger(worker="w").warning("cycle_failed", error=f"no answer {number}")
    assert stream.getvalue().count("\n") == 1
    log.flush()
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert (last["error"], last["repeated"]) == ("no answer 3", 2)


def test_library_warnings_become_events_with_masked_secrets() -> None:
    stream = io.StringIO()
    log.configure("info", stream)
    log.configure("info", stream)  # twice is once
    logging.getLogger("botocore.x").warning("retrying %s", "https://u:geheim@host/?sig=geheim")
    logging.getLogger("botocore.x").info("nothing to see")
    [line] = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line["event"], line["logger"], line["level"]) == ("library", "botocore.x", "warning")
    assert "geheim" not in line["message"]

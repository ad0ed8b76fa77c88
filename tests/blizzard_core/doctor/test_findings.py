"""Output of `doctor`: a line as soon as it is known, and an end after an interruption."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from blizzard_core.doctor import findings
from blizzard_core.doctor.findings import CheckResult, print_findings
from blizzard_core.signals import INTERRUPTED

FOUND = CheckResult("table s3://lake", "list", "ok", "3 names on the first page")


def test_a_line_appears_before_the_next_check_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def examine(_stop: threading.Event) -> Iterator[CheckResult]:
        yield FOUND
        assert "3 names on the first page" in capsys.readouterr().out
        yield FOUND

    assert print_findings(examine, as_json=False) == 0
    assert capsys.readouterr().out.endswith("2 checks, nothing failed, 0 notes\n")


def test_a_store_that_hangs_delays_the_end_by_the_grace_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has_ended = threading.Event()
    monkeypatch.setattr(findings, "end_at_once", has_ended.set)

    def examine(stop: threading.Event) -> Iterator[CheckResult]:
        yield FOUND
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(60)
        assert has_ended.wait(60)  # a request without an answer

    assert print_findings(examine, as_json=False, grace_secs=0) == INTERRUPTED
    output = capsys.readouterr()
    assert "3 names on the first page" in output.out
    assert "a store does not answer" in output.err


def test_checks_that_end_in_time_do_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[threading.Thread] = []
    monkeypatch.setattr(findings, "end_at_once", lambda: timers.append(threading.current_thread()))

    def examine(stop: threading.Event) -> Iterator[CheckResult]:
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(60)
        timers.extend(t for t in threading.enumerate() if isinstance(t, threading.Timer))
        yield FOUND

    assert print_findings(examine, as_json=False, grace_secs=3600) == INTERRUPTED
    [timer] = timers
    timer.join(60)
    assert not timer.is_alive()

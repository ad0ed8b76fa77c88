"""Health, readiness, notices and the small memories behind them: pure, so every state by hand."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from blizzard_core.daemon import Loop, run_worker
from blizzard_core.errors import BlizzardError, PipelineStopped, StateError, Unavailable
from blizzard_core.observability.activity import Activity
from blizzard_core.observability.health import (
    ANSWER_SECS,
    CRASH,
    CRASH_REMEDY,
    JOB_SECS,
    QUIET_SECS,
    WAIT_SLACK_SECS,
    Pulse,
    alive,
    job_secs,
    ready,
)
from blizzard_core.observability.history import TimeBuckets, WaitingFiles
from blizzard_core.observability.notices import notices, worst
from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.state.batch import Batch
from tests.support.scripted_worker import InstantStop, ScriptedWorker

NOW = 1_000_000.0
WORKING = Pulse("p/s", "working", NOW, NOW + QUIET_SECS, polls=1)


class Time:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def source(time: Time) -> SourceActivity:
    return SourceActivity("p/s", "raw", time)


def test_a_loop_is_alive_until_its_next_sign_of_life_is_overdue() -> None:
    assert alive((WORKING,), NOW + QUIET_SECS).ok
    verdict = alive((WORKING, replace(WORKING, target="other", due=math.inf)), NOW + QUIET_SECS + 1)
    assert verdict.reasons == {"p/s": "no sign of life for 601 s while working; 600 s are allowed"}
    assert verdict.to_json()["status"] == "failing"


def test_waiting_allows_for_the_interval_and_backoff(source: Activity, time: Time) -> None:
    source.waiting(900)
    time.now += 900 + WAIT_SLACK_SECS
    assert alive((source.pulse,), time.now).ok
    time.now += 1
    assert not alive((source.pulse,), time.now).ok


def test_a_job_may_be_silent_longer_for_more_bytes(source: SourceActivity, time: Time) -> None:
    batch = Batch("b", 1, "running", NOW, (Entry("a", 3_600_000_000, NOW),), NOW)
    source.cycle_began()
    source.batch_began(batch)
    assert job_secs(3_600_000_000) == JOB_SECS + 3600
    time.now += JOB_SECS + 3600
    assert alive((source.pulse,), time.now).ok
    time.now += 1
    assert not alive((source.pulse,), time.now).ok
    # The job is over: from here on each request is a sign of life.
    source.batch_enters(batch, "prepare")
    time.now += QUIET_SECS
    assert alive((source.pulse,), time.now).ok
    time.now += 1
    assert not alive((source.pulse,), time.now).ok


def test_publishing_does_not_shorten_the_time_of_a_running_job(
    source: SourceActivity, time: Time
) -> None:
    source.batch_began(Batch("b", 1, "running", NOW, (), NOW))
    source.beat()
    time.now += JOB_SECS
    assert alive((source.pulse,), time.now).ok


def ended(*steps: bool | BaseException) -> Pulse:
    """The pulse of a loop that really ran and ended by this."""
    worker = ScriptedWorker(iter(steps))
    run_worker(worker, Loop(once=False, jitter_secs=0, grace_secs=0), InstantStop())
    return worker.activity.pulse


@pytest.mark.parametrize("error", [StateError("x"), PipelineStopped("x")])
def test_a_loop_that_ended_on_purpose_is_alive_and_not_ready(
    error: BlizzardError,
) -> None:
    pulse = ended(error)
    assert pulse.remedy == error.remedy != ""
    assert alive((pulse,), NOW * 2).ok
    assert ready((pulse,), NOW).reasons == {"w": f"ended: {type(error).__name__}: x"}


def test_a_loop_that_died_of_a_bug_is_restarted() -> None:
    pulse = ended(RuntimeError("a bug"))
    assert alive((pulse,), NOW).reasons == {"w": "crashed: a bug"}
    assert (pulse.kind, pulse.remedy) == (CRASH, CRASH_REMEDY)
    assert not ready((pulse,), NOW).ok


def test_ready_after_the_first_poll_and_not_while_failing(source: SourceActivity) -> None:
    assert ready((source.pulse,), NOW).reasons == {"p/s": "the first poll is not done"}
    source.cycle_failed(Unavailable("no answer"))
    assert "no answer" in ready((source.pulse,), NOW).reasons["p/s"]
    source.polled(0.1, [], [], (1, 0), NONE_SKIPPED)
    source.cycle_done()
    assert ready((source.pulse,), NOW).ok
    for _ in range(2):
        source.cycle_failed(Unavailable("no answer"))
    assert ready((source.pulse,), NOW).ok  # it may pass
    source.cycle_failed(Unavailable("no answer"))
    assert ready((source.pulse,), NOW).reasons == {"p/s": "3 cycle(s) in a row failed: no answer"}
    source.cycle_done()
    assert ready((source.pulse,), NOW).ok


def test_a_hanging_store_makes_a_loop_unready_but_a_job_does_not(
    source: SourceActivity,
) -> None:
    assert ready((WORKING,), NOW + ANSWER_SECS).ok
    assert ready((WORKING,), NOW + 45).reasons == {
        "p/s": "nothing was heard of its stores for 45 s"
    }
    assert alive((WORKING,), NOW + 45).ok
    assert ready((replace(WORKING, phase="waiting"),), NOW + 45).ok
    source.polled(0.1, [], [], (1, 0), NONE_SKIPPED)
    source.cycle_began()
    source.batch_began(Batch("b", 1, "running", NOW, (), NOW))
    assert ready((source.pulse,), NOW + 45).ok


def test_the_loop_tells_its_turns() -> None:
    steps: Iterator[bool | BaseException] = iter([Unavailable("x"), True, False])

    class Watched(ScriptedWorker):
        def cycle(self, stop: threading.Event) -> bool:  # type: ignore[override]
            assert self.activity.pulse.phase == "working"
            return super().cycle(stop)

    worker = Watched(steps)
    clock = InstantStop(stop_after=2)
    assert run_worker(worker, Loop(once=False, jitter_secs=0, grace_secs=0), clock) == 0
    pulse = worker.activity.pulse
    assert (pulse.phase, pulse.exit_code, pulse.failures) == ("ended", 0, 0)
    [problem] = worker.activity.to_json()["problems"]
    assert (problem["kind"], problem["error"], problem["times"]) == ("Unavailable", "x", 1)


def test_equal_errors_in_a_row_are_one_problem(source: SourceActivity) -> None:
    for _ in range(5):
        source.cycle_failed(Unavailable("no answer"))
    for number in range(40):
        source.cycle_failed(Unavailable(f"no answer {number}"))
    problems = source.to_json()["problems"]
    assert len(problems) == 20  # bounded
    assert problems[0]["error"] == "no answer 39"


def test_utilisation_is_the_share_of_the_last_minutes_in_batches(
    source: SourceActivity, time: Time
) -> None:
    assert source.utilization() == 0
    batch = Batch("b", 1, "running", time.now, (), time.now)
    source.batch_began(batch)
    time.now += 150
    assert source.utilization() == pytest.approx(0.5)
    time.now += 1000
    assert source.utilization() == pytest.approx(1, abs=0.01)
    source.batch_done(replace(batch, phase="publishing"))
    time.now += 361  # known to the minute
    assert source.utilization() == 0


def test_minutes_forget_what_is_older_than_their_span() -> None:
    minutes = TimeBuckets(span=3)
    minutes.add(0, {"files": 1})
    minutes.add(61, {"files": 2, "rows": 5})
    minutes.add(62, {"files": 3})
    assert minutes.series(119, "files") == [0, 1, 5]
    assert minutes.series(240, "files") == [0, 0, 0]
    minutes.add(100_000, {"files": 1})
    assert minutes.series(119, "files") == [0, 0, 0]  # nothing of then is kept
    minutes.add_interval("busy", 100_000, 100_090)
    assert sum(minutes.series(100_090, "busy")) == 90


def test_the_backlog_agrees_with_brute_force() -> None:
    chance = random.Random(7)
    for _ in range(200):
        waiting = [float(chance.randrange(20)) for _ in range(chance.randrange(30))]
        backlog = WaitingFiles(waiting)
        while waiting:
            done = [
                waiting.pop(chance.randrange(len(waiting))) for _ in range(len(waiting) // 2 + 1)
            ]
            backlog.remove(done)
            assert len(backlog) == len(waiting)
            assert backlog.oldest == min(waiting, default=None)
        backlog.remove([1.0])  # never put in
        assert (len(backlog), backlog.oldest) == (0, None)


def test_notices_say_the_worst_first_and_what_to_do() -> None:
    pulse = replace(WORKING, error="denied", kind="AccessDenied", remedy="Do it.", failures=3)
    found = notices(pulse, "", 7200, [NOW - 10, NOW - 7200], NOW)
    assert [n.level for n in found] == ["bad", "warn", "warn"]
    assert found[0].remedy == "Do it."
    assert "1 file was given up" in found[2].text
    assert worst(found) == "bad"
    assert worst(found[1:]) == "warn"
    assert worst(notices(WORKING, "", 0, [], NOW)) == "ok"
    [silent] = notices(WORKING, "no sign of life", 0, [], NOW)
    assert silent.level == "bad"

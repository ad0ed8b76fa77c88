"""The poll loop, turned by hand: no test here waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest

from blizzard_core import errors
from blizzard_core.daemon import (
    ONCE_TRIES,
    RENEWAL_SECS,
    Loop,
    StopEvent,
    backoff,
    run,
    run_worker,
)
from blizzard_core.errors import (
    DIFFERS,
    FAILING,
    NOT_COMMITTING,
    NOT_INGESTING,
    REFUSED,
    RENEWED,
    AccessDenied,
    BlizzardError,
    Cancelled,
    ConfigError,
    FencedError,
    StateError,
    Unavailable,
)
from blizzard_core.signals import INTERRUPTED
from tests.support.scenario import ROOT
from tests.support.scripted_worker import InstantStop, ScriptedWorker


def scripted(*steps: bool | BaseException) -> ScriptedWorker:
    return ScriptedWorker(iter(steps))


ONCE = Loop(once=True, jitter_secs=0, grace_secs=0)
FOREVER = Loop(once=False, jitter_secs=10, grace_secs=0, chance=lambda: 0.5)


def test_once_drains_without_waiting() -> None:
    clock = InstantStop()
    assert run_worker(scripted(True, True, False), ONCE, clock) == 0
    assert clock.waits == []


def test_the_loop_waits_interval_plus_jitter_but_not_after_work() -> None:
    clock = InstantStop(stop_after=4)
    assert run_worker(scripted(True, False, False), FOREVER, clock) == 0
    assert clock.waits == [60.0, 5.0, 60.0, 5.0]


def test_a_worker_that_is_called_looks_before_its_pause_is_over() -> None:
    clock = InstantStop(stop_after=6)
    worker = ScriptedWorker(iter([False, False]), poll_interval_secs=86_400.0, called_at=3)
    assert run_worker(worker, FOREVER, clock) == 0
    assert (clock.waits, worker.asked) == ([60.0] * 6, 5)


def test_a_worker_that_backs_off_is_called_as_well() -> None:
    clock = InstantStop(stop_after=9)
    worker = ScriptedWorker(iter([Unavailable("x")] * 9), called_at=1)
    assert run_worker(worker, FOREVER, clock) == 0
    assert clock.waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_retryable_errors_back_off_until_a_success() -> None:
    clock = InstantStop(stop_after=6)
    x = Unavailable("x")
    steps: list[bool | BaseException] = [x, x, x, False, x]
    assert run_worker(scripted(*steps), FOREVER, clock) == 0
    assert clock.waits == [1, 2, 4, 60, 5, 1]


def test_backoff_is_bounded() -> None:
    for chance in (0.5, 0.999):
        assert backoff(100, 60, chance) == 300
        assert backoff(100, 900, chance) == 900


def test_workers_retry_after_different_random_waits() -> None:
    chances = iter([0.0, 0.25, 0.999])
    loop = Loop(once=False, jitter_secs=10, grace_secs=0, chance=lambda: next(chances))
    waits = []
    for _ in range(3):
        clock = InstantStop(stop_after=1)
        assert run_worker(scripted(Unavailable("x")), loop, clock) == 0
        waits += clock.waits
    assert waits == [0.5, 0.75, 1.499]


def test_once_gives_up_after_a_bounded_number_of_tries() -> None:
    clock = InstantStop()
    assert run_worker(scripted(*[Unavailable("x")] * 99), ONCE, clock) == 1
    assert len(clock.waits) == ONCE_TRIES - 1


def test_a_store_refusal_is_retried_unless_once() -> None:
    assert run_worker(scripted(AccessDenied("x")), ONCE, InstantStop()) == 1
    clock = InstantStop(stop_after=1)
    assert run_worker(scripted(AccessDenied("x")), FOREVER, clock) == 0
    assert clock.waits == [1]


@pytest.mark.parametrize(
    ("error", "code"),
    [(StateError("x"), 1), (ConfigError("x", ["y"]), 2), (RuntimeError("a bug"), 1)],
)
def test_errors_that_stay_end_the_worker_with_their_code(error: Exception, code: int) -> None:
    assert run_worker(scripted(error), FOREVER, InstantStop()) == code


def test_cancelled_work_is_a_clean_end() -> None:
    assert run_worker(scripted(Cancelled("x")), FOREVER, InstantStop()) == 0


def test_one_failing_worker_does_not_stop_the_others() -> None:
    healthy = scripted(True, True, False)
    workers = [scripted(StateError("x")), healthy]
    assert run(workers, ONCE, threading.Event()) == 1
    assert next(healthy.script, None) is None


@pytest.mark.promise("G-190")
def test_a_fenced_worker_ends_the_daemon_after_the_others_steps() -> None:
    """Finding 26: it ended alone, `/health` stayed green, and nothing ever restarted it."""
    fencing = threading.Event()

    class Fenced(ScriptedWorker):
        def cycle(self, stop: StopEvent) -> bool:  # noqa: ARG002 (the protocol's)
            assert fencing.wait(30)
            raise FencedError("taken over")

    class Busy(ScriptedWorker):
        steps = 0

        def cycle(self, stop: StopEvent) -> bool:
            fencing.set()
            assert stop.wait(30)
            self.steps += 1
            return True

    busy, stop = Busy(iter(())), threading.Event()
    assert run([Fenced(iter(())), busy], replace(FOREVER, grace_secs=300), stop) == 3
    assert busy.steps == 1
    assert not busy.cancelled.is_set()
    assert busy.activity.pulse.exit_code == 0


def test_of_a_fenced_worker_the_others_hear_nothing_with_once() -> None:
    healthy = scripted(True, True, False)
    stop = threading.Event()
    assert run([scripted(FencedError("x")), healthy], ONCE, stop) == 3
    assert next(healthy.script, None) is None
    assert not stop.is_set()


def test_other_errors_that_stay_leave_the_others_alone() -> None:
    stop = threading.Event()

    class Last(ScriptedWorker):
        turns = 0

        def cycle(self, stop: StopEvent) -> bool:
            self.turns += 1
            assert not stop.is_set()
            if self.turns == 5:
                stop.set()
            return True

    assert run([scripted(StateError("x")), Last(iter(()))], FOREVER, stop) == 1


def test_after_the_grace_period_running_work_is_cancelled() -> None:
    class Stubborn(ScriptedWorker):
        def cycle(self, stop: StopEvent) -> bool:
            stop.set()
            assert self.cancelled.wait(30)
            raise Cancelled("as asked")

    assert run([Stubborn(iter(()))], FOREVER, threading.Event()) == 0


def test_a_stopped_worker_is_reported_while_others_work() -> None:
    told, stop = threading.Event(), threading.Event()

    class Long(ScriptedWorker):
        def cycle(self, stop: StopEvent) -> bool:
            stop.set()
            assert told.wait(30)
            return False

    idle, long = scripted(*[False] * 9), Long(iter(()))
    names: list[str] = []

    def note(worker: ScriptedWorker) -> None:
        names.append("idle" if worker is idle else "long")
        told.set()

    assert run([idle, long], FOREVER, stop, note) == 0
    assert names == ["idle", "long"]


def test_a_worker_that_an_error_ends_is_not_reported() -> None:
    names: list[str] = []
    workers = [scripted(StateError("x"))]
    assert run(workers, FOREVER, threading.Event(), lambda each: names.append(each.name)) == 1
    assert not names


def test_a_renewed_secret_ends_the_daemon_to_be_started_again() -> None:
    stop = threading.Event()
    files: list[list[str]] = [[], ["/run/secrets/key"]]
    moments = count(step=RENEWAL_SECS)
    loop = replace(FOREVER, renewed=lambda: files.pop(0), clock=lambda: next(moments))
    assert run([scripted(False)], loop, stop) == RENEWED
    assert stop.is_set()
    assert not files


def test_an_error_wins_over_a_renewed_secret() -> None:
    loop = replace(FOREVER, renewed=lambda: ["/run/secrets/key"], clock=count(step=99).__next__)
    assert run([scripted(False), scripted(ConfigError("c", []))], loop, threading.Event()) == 2
    assert run([scripted(True, False)], replace(loop, once=True), threading.Event()) == 0


@pytest.mark.promise("G-025")
def test_an_interrupt_is_an_error_only_for_once() -> None:
    stopped = threading.Event()
    stopped.set()
    assert run([scripted(True, False)], ONCE, stopped) == INTERRUPTED
    assert run([scripted(True, False)], FOREVER, stopped) == 0
    # Work that was given up within the grace period, and an error beside it.
    assert run_worker(scripted(Cancelled("x")), ONCE, InstantStop()) == INTERRUPTED
    assert run_worker(scripted(Cancelled("x")), FOREVER, InstantStop()) == 0
    workers = [scripted(Cancelled("x")), scripted(ConfigError("c", []))]
    assert run(workers, ONCE, threading.Event()) == 2


@dataclass
class StoppedInACycle(ScriptedWorker):
    """A worker that is told to stop while it looks, and so does nothing of what is there."""

    def cycle(self, stop: StopEvent) -> bool:
        stop.set()
        return super().cycle(stop)


def test_a_worker_stopped_during_its_poll_is_not_done() -> None:
    assert run_worker(StoppedInACycle(iter([False])), ONCE, InstantStop()) == INTERRUPTED
    assert run_worker(StoppedInACycle(iter([False])), FOREVER, InstantStop()) == 0


def test_every_error_of_ours_has_an_exit_code_and_a_retry_policy() -> None:
    def tree(kind: type[BlizzardError]) -> Iterator[type[BlizzardError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from tree(child)

    kinds = set(tree(BlizzardError))
    assert {k.__name__ for k in kinds if k.retryable} >= {"Unavailable", "EngineError"}
    table = (ROOT / "docs/reference/exit-codes.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert {
        0,
        RENEWED,
        REFUSED,
        DIFFERS,
        FAILING,
        INTERRUPTED,
        NOT_COMMITTING,
        NOT_INGESTING,
        *(k.exit_code for k in kinds),
    } == codes
    documented = errors.__doc__ or ""
    assert all(k.__name__ in documented for k in kinds if k.__module__.startswith("blizzard_core"))

"""The poll loop of both daemons.

`run` gives each worker its own thread and calls its cycle for ever, or with ``once`` until nothing
is left to do. Time is injected, so tests run the loop without waiting.

* After a cycle that did work the next follows at once; after an idle one the worker's poll interval
  passes, plus a random jitter. A worker with a budget says itself when the next one is due.
* A retryable error is logged and backed off: doubling with jitter, up to five minutes or the poll
  interval, whichever is longer. So is every refusal of a store, unless ``once`` is set. With
  ``once`` the number of tries is limited.
* Files that wait for another try are no failure: polls go on, and ``once`` waits for them.
* Any other error ends that worker and, in the end, the process with the error's exit code. The
  other workers go on.
* A fenced worker ends the whole daemon, as a signal does. Only a new start may take the state over
  again, and a supervisor restarts whole processes, not single workers.
* A renewed secret ends the daemon with `RENEWED`: stores, connections and workers hold the old
  one, and a restart is simpler than replacing each.
* A signal only sets the stop event. Workers check it between two steps; after the grace period
  they cancel what is running. A daemon that runs for ever is then done. With ``once`` the exit
  code is `INTERRUPTED`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from blizzard_core import log as logs
from blizzard_core.errors import (
    RENEWED,
    BlizzardError,
    Cancelled,
    FencedError,
    StorageError,
    Unfinished,
)
from blizzard_core.log import get_logger
from blizzard_core.observability.activity import Activity
from blizzard_core.signals import INTERRUPTED, spare_imports

FIRST_BACKOFF_SECS = 1.0
MAX_BACKOFF_SECS = 300.0
ONCE_TRIES = 5
# How often secret files are checked; old secrets usually stay valid longer than that.
RENEWAL_SECS = 10.0
# How often a waiting worker checks whether it is called.
CALL_SECS = 60.0
_JOIN_SECS = 0.5


class Worker(Protocol):
    """One thing that is polled: a source or a table."""

    @property
    def name(self) -> str:
        """For logs and thread names."""

    @property
    def poll_interval_secs(self) -> float:
        """Return how long to wait after a cycle that found nothing."""

    @property
    def is_paced(self) -> bool:
        """Return whether the pause follows from a budget: then jitter would be paid twice."""

    @property
    def activity(self) -> Activity:
        """Return the activity that the loop and the worker report to."""

    def cycle(self, stop: StopEvent) -> bool:
        """Do what is there to do; True if there was anything.

        Must be idempotent: it is called again after any error.
        """

    def is_called(self) -> bool:
        """Return whether somebody asks for a cycle before the pause is over. Called while it waits.

        Must not raise: the next cycle will find the same problem.
        """

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait, and return whether the pause ends before: something came, or the daemon stops."""

    def cancel(self) -> None:
        """Cancel what is running, soon. Called from another thread."""


W = TypeVar("W", bound=Worker)


class PolledWorker:
    """A worker whose pause is configured: only its polls find what is new."""

    @property
    def is_paced(self) -> bool:
        """Return False: the pause is configured."""
        return False

    def is_called(self) -> bool:
        """Return False: polls find what is new."""
        return False

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait; nothing ends the pause but the daemon."""
        return stop.wait(secs)

    def cancel(self) -> None:
        """Do nothing: a cycle is one commit, which is finished."""


class StopEvent(Protocol):
    """The part of `threading.Event` that workers and the loop use."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Loop:
    """The settings of a loop: once or for ever, jitter, grace period, and source of randomness.

    ``renewed`` returns the secret files whose content changed since the start.
    """

    once: bool
    jitter_secs: float
    grace_secs: float
    chance: Callable[[], float] = field(default=random.random)
    renewed: Callable[[], list[str]] = field(default=list)
    clock: Callable[[], float] = field(default=time.monotonic)


def run(
    workers: Sequence[W],
    loop: Loop,
    stop: StopEvent,
    ended: Callable[[W], None] = lambda _: None,
) -> int:
    """Turn every worker until it is done or ``stop`` is set. Returns the exit code.

    ``ended`` is called for each worker that ``stop`` has ended, while others may still work.
    """
    spare_imports()
    codes = [0] * len(workers)
    done = threading.Event()

    def turn(index: int, worker: W) -> None:
        try:
            codes[index] = run_worker(worker, loop, stop)
            if codes[index] == FencedError.exit_code and not loop.once:
                get_logger().warning("fenced", worker=worker.name)
                stop.set()
            if stop.is_set():
                ended(worker)
        except BaseException:
            codes[index] = 1
            raise

    threads = [
        threading.Thread(target=turn, args=(i, w), name=w.name) for i, w in enumerate(workers)
    ]
    watcher = threading.Thread(
        target=_cancel_after_grace, args=(workers, loop, stop, done), name="shutdown", daemon=True
    )
    watcher.start()
    renewal = _Renewal(loop, stop)
    for thread in threads:
        thread.start()
    for thread in threads:
        # Python runs signal handlers in this thread, and only while it executes: a signal
        # that the kernel gave to another thread would wait for ever behind a plain join.
        while thread.is_alive():
            thread.join(_JOIN_SECS)
            renewal.look()
    done.set()
    logs.flush()
    failed = max((code for code in codes if code != INTERRUPTED), default=0)
    return failed or (RENEWED if renewal.noticed else max(codes, default=0))


class _Renewal:
    """A watcher that stops the daemon when its secrets were renewed; unused with ``once``."""

    def __init__(self, loop: Loop, stop: StopEvent) -> None:
        self._loop = loop
        self._stop = stop
        self._looked = loop.clock()
        self.noticed = False

    def look(self) -> None:
        """Check the files if the last check is long ago."""
        now = self._loop.clock()
        if self._loop.once or self._stop.is_set() or now - self._looked < RENEWAL_SECS:
            return
        self._looked = now
        files = self._loop.renewed()
        if files:
            self.noticed = True
            get_logger().warning("secrets_renewed", files=files)
            self._stop.set()


def _cancel_after_grace(
    workers: Sequence[Worker], loop: Loop, stop: StopEvent, done: threading.Event
) -> None:
    while not stop.wait(1.0):
        if done.is_set():
            return
    if not done.wait(loop.grace_secs):
        get_logger().warning("grace_period_over", grace_secs=loop.grace_secs)
        for worker in workers:
            worker.cancel()


def run_worker(worker: Worker, loop: Loop, stop: StopEvent) -> int:
    """Run one worker to its end. Returns its exit code."""
    code = 1
    try:
        code = _turn(worker, loop, stop)
    finally:
        worker.activity.ended(code)
    return code


def _turn(worker: Worker, loop: Loop, stop: StopEvent) -> int:
    log = get_logger(worker=worker.name)
    activity = worker.activity
    failures = 0
    while not stop.is_set():
        activity.cycle_began()
        try:
            busy, wait_secs = _cycle(worker, stop)
        except Cancelled:
            log.info("cancelled")
            break
        except BlizzardError as error:
            failures += 1
            activity.cycle_failed(error)
            # A refusing store may be repaired while the daemon runs; with --once a person waits,
            # so the error is reported at once.
            passing = error.retryable or (isinstance(error, StorageError) and not loop.once)
            if not passing or (loop.once and failures >= ONCE_TRIES):
                log.error("worker_failed", error=str(error), kind=type(error).__name__)  # noqa: TRY400  # a trace of our own errors would hide what the text says to do
                return error.exit_code
            pause = backoff(failures, worker.poll_interval_secs, loop.chance())
            log.warning(
                "cycle_failed", error=str(error), failures=failures, retry_in_secs=round(pause, 1)
            )
            activity.waiting(pause)
            _rest(worker, pause, stop.wait)
            continue
        except Exception as error:
            # A bug: the trace is the message, and the other workers go on.
            activity.cycle_failed(error)
            log.exception("worker_crashed")
            return 1
        if failures:
            log.info("cycle_recovered", failures=failures)
        failures = 0
        activity.cycle_done()
        if busy:
            continue
        if loop.once and wait_secs is None:
            # A worker that was stopped during its poll has done nothing either.
            return INTERRUPTED if stop.is_set() else 0
        jitter = 0.0 if worker.is_paced else loop.jitter_secs * loop.chance()
        pause = worker.poll_interval_secs + jitter
        if wait_secs is not None:
            pause = wait_secs if loop.once else min(pause, wait_secs)
        activity.waiting(pause)
        _rest(worker, pause, partial(worker.rest, stop=stop))
    return INTERRUPTED if loop.once else 0


def _rest(worker: Worker, pause: float, wait: Callable[[float], bool]) -> None:
    """Wait until the pause is over, somebody calls the worker, or ``wait`` ends it."""
    while pause > CALL_SECS:
        if wait(CALL_SECS) or worker.is_called():
            return
        pause -= CALL_SECS
    wait(pause)


def _cycle(worker: Worker, stop: StopEvent) -> tuple[bool, float | None]:
    """Return whether a cycle did anything, and how long what could not be done has to wait."""
    try:
        return worker.cycle(stop), None
    except Unfinished as error:
        get_logger(worker=worker.name).info(
            "waiting_for_retry", reason=str(error), retry_in_secs=error.wait_secs
        )
        return False, error.wait_secs


def backoff(failures: int, poll_interval_secs: float, chance: float) -> float:
    """Return the seconds to wait after the n-th failure in a row (n from 1).

    They are half to one and a half of the doubled pause, by ``chance`` (0 up to 1). Workers that
    failed together, such as those of one store, must not retry together.
    """
    ceiling = max(MAX_BACKOFF_SECS, poll_interval_secs)
    return float(min(FIRST_BACKOFF_SECS * 2 ** min(failures - 1, 30) * (0.5 + chance), ceiling))

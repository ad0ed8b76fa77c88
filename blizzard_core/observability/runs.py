"""Runs for other systems: batches of Blizzard and commits of Penguin, with their steps.

A run is a batch of a source, or a commit to a table. Its activity reports it here, and each sink
gets an event at its start and at its end. Nothing depends on sinks: one that fails costs a log
line, and none may block.

A batch's key is the beginning of its outputs' ids. So Penguin, which reads the ids in the files,
can refer to the batches of a commit, and both daemons agree on a trace without exchanging anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

from blizzard_core.log import get_logger

# Names and types.
Columns: TypeAlias = tuple[tuple[str, str], ...]


# Steps of a batch past its commit point: what fails there is finished later, by this process or
# the next one, so its run completes.
_COMMITTED = frozenset({"publish", "advance"})
# A source has two runs at a time.
_RECENT = 16


@dataclass(frozen=True, slots=True)
class Job:
    """The work that runs belong to: ``name`` is ``pipeline/source``, or the table's name.

    ``source`` and ``table`` are URIs without secrets. A committer has no source.
    """

    daemon: Literal["blizzard", "penguin"]
    name: str
    source: str | None
    table: str


@dataclass(frozen=True, slots=True)
class RunStep:
    """A step of a run, in epoch seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    ``read`` and ``written`` count ``files``, ``rows`` and ``bytes``. ``batches`` are the keys of
    the batches in a commit, ``columns`` the table's names and types, as far as they are known.
    """

    read: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    bad_rows: int = 0
    batches: tuple[str, ...] = ()
    columns: Columns = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """The start or the end of a run at ``at`` (epoch seconds); ``start`` is when it started.

    A run is aborted if its batch runs again without a failure, or if its daemon stops. The next
    daemon reports it for one that was killed. ``key`` is ``pipeline/source/batch/attempt``, or a
    commit's own.
    """

    kind: Literal["start", "complete", "fail", "abort"]
    job: Job
    key: str
    at: float
    start: float
    steps: tuple[RunStep, ...] = ()
    result: RunResult = RunResult()
    error: str = ""


class RunSink(Protocol):
    """The receiver of events, such as an exporter of traces."""

    def take(self, event: RunEvent) -> None:
        """Pass an event on without blocking."""

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""


@dataclass(slots=True)
class _Open:
    start: float
    steps: list[RunStep]
    step: str
    since: float

    def until(self, at: float) -> tuple[RunStep, ...]:
        """Return all steps, of which the last ends now."""
        return (*self.steps, RunStep(self.step, self.since, at)) if self.step else ()


class RunLog:
    """The open runs of one source or table. Thread-safe.

    ``columns`` returns the names and types of what a batch reads.
    """

    def __init__(
        self,
        job: Job,
        sinks: Sequence[RunSink],
        columns: Callable[[], Columns] | None = None,
    ) -> None:
        self._job = job
        self._sinks = tuple(sinks)
        self._columns = columns
        self._open: dict[str, _Open] = {}
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._lock = threading.Lock()

    @property
    def is_reported(self) -> bool:
        """Return whether anybody receives these runs."""
        return bool(self._sinks)

    def started(self, key: str, at: float, step: str, before: Sequence[RunStep] = ()) -> None:
        """Report that a run begins with ``step``; ``before`` are steps that led to it."""
        if not self._sinks:
            return
        start = min([at, *(each.start for each in before)])
        with self._lock:
            self._open[key] = _Open(start, list(before), step, at)
            self._recent.append(key)
        self._report(RunEvent("start", self._job, key, at, start))

    def enters(self, key: str, step: str, at: float) -> None:
        """Record that a run enters its next step."""
        with self._lock:
            if (found := self._open.get(key)) is not None:
                found.steps.append(RunStep(found.step, found.since, at))
                found.step, found.since = step, at

    def completed(self, key: str, at: float, start: float, result: RunResult) -> None:
        """Report that a run is over; ``start`` counts if an earlier process began it."""
        if not self._sinks:
            return
        with self._lock:
            found = self._open.pop(key, None) or _Open(start, [], "", start)
        if self._columns is not None:
            result = replace(result, columns=self._columns())
        self._report(RunEvent("complete", self._job, key, at, found.start, found.until(at), result))

    def failed(self, error: str, at: float) -> None:
        """Report that all open runs failed, but for those past their commit point."""
        self._end(RunEvent("fail", self._job, "", at, at, error=error))

    def aborted(self, at: float, key: str | None = None) -> None:
        """Report that a run ended without a result, or that those did that `failed` reports."""
        self._end(RunEvent("abort", self._job, "", at, at), key)

    def cut_off(self, at: float, key: str, start: float) -> None:
        """Report that a run ended with the process that began it; once, and no run of our own."""
        if not self._sinks or key in self._recent:
            return
        self._recent.append(key)
        self._report(RunEvent("abort", self._job, key, at, start))

    def _end(self, event: RunEvent, key: str | None = None) -> None:
        with self._lock:
            all_open = [each for each, run in self._open.items() if run.step not in _COMMITTED]
            keys = all_open if key is None else [key] if key in self._open else []
            runs = [(each, self._open.pop(each)) for each in keys]
        for name, each in runs:
            self._report(replace(event, key=name, start=each.start, steps=each.until(event.at)))

    def _report(self, event: RunEvent) -> None:
        for sink in self._sinks:
            try:
                sink.take(event)
            except Exception as error:  # a library's; the run does not depend on it
                get_logger().warning("run_not_reported", run=event.key, error=repr(error))


NO_RUNS = RunLog(Job("blizzard", "", None, ""), ())

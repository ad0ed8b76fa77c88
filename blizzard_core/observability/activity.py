"""The live state of one target: events report it, the page and metrics show it.

The poll loop and the pipelines report to an `Activity`. Metrics, health and the status page are
views of it. Everything is in memory and limited. A report costs a lock and a few additions, so
it happens during the work. Slower steps (ages, escaping, sorting) happen on request.

Errors, names and reasons are foreign text. They are stored without credentials and shortened;
each view escapes them for its place.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_core.observability import metrics
from blizzard_core.observability.health import (
    CRASH,
    CRASH_REMEDY,
    QUIET_SECS,
    WAIT_SLACK_SECS,
    Pulse,
    silence,
)
from blizzard_core.observability.history import (
    HOUR_SECS,
    HOURS,
    TimeBuckets,
    WaitingFiles,
    WaitingFolders,
)
from blizzard_core.observability.notices import LAG_WARN_SECS, Notice, notices, worst
from blizzard_core.observability.runs import NO_RUNS, RunLog
from blizzard_core.redact import clean_text, error_text
from blizzard_core.storage.protocol import Entry
from blizzard_core.text import shortened
from blizzard_core.watermark.progress import Progress

# How many items of each kind are kept.
KEPT = 20
# The window of the utilisation gauge.
UTILIZATION_MINUTES = 5
_SUMMED = ("files", "rows")


@dataclass(frozen=True, slots=True)
class PollSummary:
    """One poll: when it ended, what it cost and found."""

    at: float
    secs: float
    files: int
    requests: int
    keys: int


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch or a commit that is done. ``id`` is the batch's id or the table's version."""

    at: float
    id: str
    files: int
    rows: int
    bytes: int
    secs: float


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that was not ingested: a dead letter of a ``batch``, or rejected by Penguin."""

    at: float
    path: str
    stage: str
    error: str
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that ended a cycle, and how often in a row since ``first``."""

    first: float
    at: float
    kind: str
    error: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """A batch in progress. ``due`` is when its job must give its next sign of life."""

    id: str
    files: int
    bytes: int
    started: float
    step: str
    since: float
    due: float = 0.0


class Activity:
    """The live view of one target. Thread-safe: the web server reads while workers report.

    ``place`` is where its files come from and go to, for people; ``clock`` gives epoch
    seconds.
    """

    daemon: str

    def __init__(self, name: str, place: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.place = place
        self.clock = clock
        self._lock = threading.RLock()
        now = clock()
        self._pulse = Pulse(name, "starting", now, now + QUIET_SECS)
        # Kept separately, because they change with every request.
        self._since, self._due = now, now + QUIET_SECS
        self._progress = Progress()
        self._backlog = WaitingFiles()
        self._folders = WaitingFolders()
        self._minutes = TimeBuckets()
        self._hours = TimeBuckets(HOUR_SECS, HOURS)
        self._poll: PollSummary | None = None
        self._running: dict[str, RunningBatch] = {}
        self._busy_since: float | None = None
        self._finished: deque[FinishedBatch] = deque(maxlen=KEPT)
        self._letters: deque[FailedFile] = deque(maxlen=KEPT)
        self._problems: deque[Problem] = deque(maxlen=KEPT)
        # A daemon replaces it if its configuration names receivers.
        self.runs: RunLog = NO_RUNS
        metrics.WORKER_UP.labels(name).set(1)
        metrics.POLL_AGE.labels(name).set_function(self._poll_age)

    # Reported by the poll loop.

    def cycle_began(self) -> None:
        """Record that a cycle begins."""
        with self._lock:
            self._pulse = replace(self._pulse, phase="working")
            self.beat()

    def waiting(self, secs: float) -> None:
        """Record that the loop waits for its next cycle."""
        with self._lock:
            self._pulse = replace(self._pulse, phase="waiting")
            self.expects(secs + WAIT_SLACK_SECS)

    def cycle_done(self) -> None:
        """Record that a cycle succeeded."""
        with self._lock:
            self._pulse = replace(self._pulse, failures=0, error="", kind="", remedy="")

    def cycle_failed(self, error: Exception) -> None:
        """Record that a cycle failed; its work starts again."""
        kind, remedy = CRASH, CRASH_REMEDY
        if isinstance(error, BlizzardError):
            kind, remedy = type(error).__name__, error.remedy
        text = error_text(error)
        metrics.CYCLE_FAILURES.labels(self.name, kind).inc()
        self.runs.failed(text, self.clock())
        with self._lock:
            now = self.clock()
            pulse = self._pulse
            self._pulse = replace(
                pulse,
                failures=pulse.failures + 1,
                error=text,
                kind=kind,
                remedy=remedy,
            )
            self._idle(now)
            self._running.clear()
            last = self._problems[-1] if self._problems else None
            if last is not None and (last.kind, last.error) == (kind, text):
                self._problems[-1] = replace(last, at=now, times=last.times + 1)
            else:
                self._problems.append(Problem(now, now, kind, text))

    def ended(self, exit_code: int) -> None:
        """Record that the loop ended, after `cycle_failed` if by an error."""
        self.runs.aborted(self.clock())
        with self._lock:
            self._pulse = replace(self._pulse, phase="ended", exit_code=exit_code)
            self.expects(math.inf)
        metrics.WORKER_UP.labels(self.name).set(int(exit_code == 0))

    def stands_by(self, reason: str) -> None:
        """Record why another replica has the target, which forgets its work; empty: this one has.

        Every replica shows all targets, so what waits is shown by the one that has it.
        """
        with self._lock:
            was_standing_by = bool(self._pulse.standby)
            self._pulse = replace(self._pulse, standby=reason)
            if was_standing_by and not reason:
                # They come again with the heartbeat of the replica that had it meanwhile.
                self._hours = TimeBuckets(HOUR_SECS, HOURS)
            if was_standing_by or not reason:
                return
            self._pulse = replace(self._pulse, polls=0)
            self._poll, self._backlog, self._folders = None, WaitingFiles(), WaitingFolders()
            self._running.clear()
            self._idle(self.clock())

    # Reported by the pipelines.

    def beat(self) -> None:
        """Record a sign of life, such as an answer of a store."""
        self.expects(QUIET_SECS)

    def expects(self, secs: float) -> None:
        """Record a sign of life; the next may take ``secs``."""
        with self._lock:
            self._since = now = self.clock()
            self._due = now + secs

    def progressed(self, progress: Progress) -> None:
        """Record the current watermarks."""
        with self._lock:
            self._progress = progress

    def _polled(self, poll: PollSummary, found: Sequence[Entry]) -> None:
        backlog = WaitingFiles(entry.modified for entry in found)
        folders = WaitingFolders(entry.path for entry in found)
        with self._lock:
            self._poll = poll
            self._backlog, self._folders = backlog, folders
            self._pulse = replace(self._pulse, polls=self._pulse.polls + 1)
            self.beat()

    def _wait_no_more(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            self._backlog.remove(entry.modified for entry in entries)
            self._folders.remove(entry.path for entry in entries)

    def _add_failed(self, letters: Iterable[FailedFile]) -> None:
        with self._lock:
            for letter in letters:
                self._letters.append(
                    replace(letter, path=shortened(letter.path), error=clean_text(letter.error))
                )

    def _remove_failed(self, is_mended: Callable[[FailedFile], bool]) -> None:
        """Forget files that were ingested after all, or that an operator closed."""
        with self._lock:
            kept = [letter for letter in self._letters if not is_mended(letter)]
            self._letters = deque(kept, maxlen=KEPT)

    def _did(self, finished: FinishedBatch) -> None:
        with self._lock:
            self._finished.append(finished)
            amounts = {"files": finished.files, "rows": finished.rows, "bytes": finished.bytes}
            self._minutes.add(finished.at, amounts)
            self._hours.add(finished.at, amounts)

    def _busy(self, now: float) -> None:
        if self._busy_since is None:
            self._busy_since = now

    def _idle(self, now: float) -> None:
        if self._busy_since is not None:
            self._minutes.add_interval("busy", self._busy_since, now)
            self._busy_since = None

    def hours_document(self) -> dict[str, dict[str, float]]:
        """Return what was done in each hour of the last week, to be kept with the heartbeat."""
        with self._lock:
            return self._hours.to_json()

    def restore_hours(self, document: Mapping[str, Mapping[str, float]]) -> None:
        """Add the hours that an earlier daemon has kept."""
        with self._lock:
            self._hours.restore(document, self.clock())

    # Read by metrics, health and the page.

    @property
    def pulse(self) -> Pulse:
        """The loop's signs of life; a running job extends when the next is due."""
        with self._lock:
            due = max((batch.due for batch in self._running.values()), default=0.0)
            return replace(self._pulse, since=self._since, due=max(self._due, due))

    def pending(self) -> float:
        """Return how many files wait."""
        with self._lock:
            return len(self._backlog)

    def lag(self) -> float:
        """Return the age in seconds of the oldest waiting file; 0 if none waits."""
        with self._lock:
            oldest = self._backlog.oldest
            return 0.0 if oldest is None else max(0.0, self.clock() - oldest)

    def utilization(self) -> float:
        """Return the share of the last minutes that was spent in batches."""
        with self._lock:
            now = self.clock()
            if self._busy_since is not None:
                self._idle(now)
                self._busy(now)
            # The current minute is not over: the first minute fills the window.
            series = self._minutes.series(now, "busy")[-UTILIZATION_MINUTES - 1 :]
            part = now % 60 / 60
            busy = sum(series[1:]) + series[0] * (1 - part)
            return min(1.0, busy / (UTILIZATION_MINUTES * 60))

    def _notices(self) -> list[Notice]:
        """Return notices of this kind of target. The lock is held."""
        return []

    def tracked(self) -> float:
        """Return how many partitions are tracked."""
        with self._lock:
            return len(self._progress.partitions)

    def _poll_age(self) -> float:
        with self._lock:
            if self._poll is None:
                return math.nan
            # Between two polls lies the work that the first one found.
            last = max(self._poll.at, self._finished[-1].at if self._finished else 0.0)
            return age(self.clock(), last)

    def brief(self) -> dict[str, Any]:
        """Return the data for an overview. Foreign text is not escaped yet."""
        with self._lock:
            now = self.clock()
            progress = self._progress
            pulse = self.pulse
            lag = self.lag()
            given_up = [letter.at for letter in self._letters]
            found = notices(pulse, silence(pulse, now), lag, given_up, now)
            found += self._notices()
            return {
                "level": worst(found),
                "notices": [asdict(notice) for notice in found],
                "name": self.name,
                "place": self.place,
                "pulse": _pulse_to_json(pulse),
                "state": progress.state,
                "watermark": progress.value,
                "pending_files": len(self._backlog),
                "lag_secs": lag,
                "lag_level": "warn" if lag > LAG_WARN_SECS else "ok",
                "poll": None if self._poll is None else asdict(self._poll),
                "running": [asdict(batch) for batch in self._running.values()],
                "last": asdict(self._finished[-1]) if self._finished else None,
                "hour": {name: sum(self._minutes.series(now, name)) for name in _SUMMED},
                "day": {name: sum(self._hours.series(now, name)[-24:]) for name in _SUMMED},
                "week": {name: sum(self._hours.series(now, name)) for name in _SUMMED},
            }

    def to_json(self) -> dict[str, Any]:
        """Return `brief` and all other facts, newest first."""
        with self._lock:
            now = self.clock()
            return {
                **self.brief(),
                "partitions": len(self._progress.partitions),
                "utilization": self.utilization(),
                "finished": [asdict(done) for done in reversed(self._finished)],
                "letters": [asdict(letter) for letter in reversed(self._letters)],
                "problems": [asdict(problem) for problem in reversed(self._problems)],
                "minutes": {
                    name: self._minutes.series(now, name) for name in ("files", "rows", "bytes")
                },
                "waiting": self._folders.to_json(),
                "hours": {name: self._hours.series(now, name) for name in _SUMMED},
            }


def _pulse_to_json(pulse: Pulse) -> dict[str, Any]:
    document = asdict(pulse)
    del document["target"], document["remedy"]  # the one beside it, the other in the notices
    if math.isinf(pulse.due):
        document["due"] = None
    return document


def age(now: float, moment: float) -> float:
    """Return the seconds since ``moment``, never below 0 if clocks disagree."""
    return max(0.0, now - moment)

"""Heartbeats: a small object beside a table that says which daemon works on it.

An idle daemon saves nothing, so its state files cannot tell it from a stopped one. Each daemon
replaces one object for each of its sources or tables every five minutes, and marks it when it
ends. On the daemon's own machine the kernel says more: whether its process still runs. Only
people read heartbeats; nothing depends on them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.writer_identity import Process, Writer, is_running, this_process
from blizzard_core.errors import NotFound, StateError, StorageError
from blizzard_core.handover.groups import COMMITTERS_FOLDER
from blizzard_core.log import get_logger
from blizzard_core.observability.health import silence
from blizzard_core.observability.peer_state import moment_of, number_of, text_of
from blizzard_core.storage.protocol import Storage
from blizzard_core.text import json_value
from blizzard_core.threads import ThreadPool, in_background

if TYPE_CHECKING:  # who only reads a heartbeat needs no metrics
    from blizzard_core.observability.activity import Activity

BEAT_SECS = 300.0
# Two beats may be missed, as by a machine that swaps.
SILENT_SECS = 2 * BEAT_SECS + 60.0
# How often a daemon checks whether a target has had its first poll.
_CHECK_SECS = 1.0
_CONCURRENCY = 8
BEAT_SUFFIX = "_heartbeat.json"

LifeState = Literal["running", "stopped", "silent", "unknown"]


@dataclass(frozen=True, slots=True)
class Life:
    """The last heartbeat at ``at`` (epoch seconds), and the state that it shows.

    ``stopped``: the daemon ended. ``silent``: it is on another machine, and no beat came in time,
    or one from the future, which a clock that was set back left behind.
    ``unknown``: no daemon has run here, only ``--once``.
    """

    state: LifeState = "unknown"
    at: float | None = None
    host: str | None = None
    pid: float | None = None

    @property
    def is_down(self) -> bool:
        """Return whether a daemon ran here and runs no more."""
        return self.state in ("stopped", "silent")

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``status --json``."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Beating:
    """A target's heartbeat: its activity, and the object in a store of its own."""

    activity: Activity
    storage: Storage
    path: str


@dataclass(frozen=True, slots=True)
class _Beat:
    """A heartbeat as it is stored: its process, when it came, and whether it was the last.

    ``hours`` is what was done in each hour of the last week; the next daemon goes on from it.
    """

    host: str
    pid: int
    started: float
    key: str
    at: float
    ended: bool = False
    hours: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def process(self) -> Process:
        return Process(self.host, self.pid, self.started, self.key)


def source_heartbeat(source_id: str) -> str:
    """Return where the heartbeat of a source is, relative to the table."""
    return f"_blizzard/heartbeats/{source_id}{BEAT_SUFFIX}"


def table_heartbeat(state_name: str) -> str:
    """Return where the heartbeat of a committer is, relative to the table."""
    return f"{COMMITTERS_FOLDER}/{state_name}{BEAT_SUFFIX}"


@contextmanager
def heartbeats(
    targets: Sequence[Beating], *, once: bool, clock: Callable[[], float] = time.time
) -> Iterator[None]:
    """Write heartbeats while the block runs; mark them at its end.

    A target's first beat follows its first poll: until then another daemon may own it. A target
    that gives no sign of life has no beats, and one that stands by for another replica has a last
    one. A run with ``once`` writes none, and deletes the beat
    of a daemon that is down.
    """
    if once:
        yield
        _each(partial(_delete_if_down, now=clock()), targets)
        return
    beats = _Beats(targets, clock)
    try:
        with in_background("heartbeats", beats.run):
            yield
    finally:
        beats.end()


class _Beats:
    def __init__(self, targets: Sequence[Beating], clock: Callable[[], float]) -> None:
        self._targets = targets
        self._clock = clock
        self._last: dict[str, float] = {}
        self._ended: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(_CHECK_SECS):
            _each(self._beat, [each for each in self._targets if self._is_due(each)])

    def end(self) -> None:
        """Mark the targets that still carry a beat of this process."""
        _each(
            self._mark_ended,
            [each for each in self._targets if each.activity.name in self._last],
        )

    def _is_due(self, target: Beating) -> bool:
        name, pulse = target.activity.name, target.activity.pulse
        if pulse.standby:
            return name in self._last
        if not pulse.polls or name in self._ended:
            return False
        if pulse.phase == "ended":
            return True
        if silence(pulse, self._clock()):
            return False
        last = self._last.get(name)
        # A clock that was set back must not stop the beats.
        return last is None or not 0 <= self._clock() - last < BEAT_SECS

    def _beat(self, target: Beating) -> None:
        name = target.activity.name
        if target.activity.pulse.phase == "ended":
            self._ended.add(name)
            self._mark_ended(target)
            return
        if target.activity.pulse.standby:
            self._mark_ended(target)
            del self._last[name]
            return
        found = _read(target.storage, target.path)
        if name not in self._last and found is not None:
            target.activity.restore_hours(found.hours)
        self._last[name] = self._clock()
        if found is None or not _is_of_running_other(found):
            _put(target, self._clock(), ended=False)

    def _mark_ended(self, target: Beating) -> None:
        # Another daemon may have taken the target over.
        found = _read(target.storage, target.path)
        if found is not None and found.process == this_process():
            _put(target, self._clock(), ended=True)


def read_life(storage: Storage, path: str, now: float) -> Life:
    """Return what the heartbeat at ``path`` shows; one GET. Raises `StorageError`."""
    found = _read(storage, path)
    at = None if found is None else moment_of(found.at)
    if found is None or at is None:
        return Life()
    return Life(_state_of(found, now - at), at, text_of(found.host), number_of(found.pid))


def most_alive(lives: Iterable[Life]) -> Life:
    """Return the life of the daemon that runs, or else of the last one."""
    return max(lives, key=lambda life: (life.state == "running", life.at or 0.0), default=Life())


def _state_of(found: _Beat, age: float) -> LifeState:
    if found.ended:
        return "stopped"
    runs = found.process == this_process() or is_running(Writer("", 0, found.process))
    if runs is None:
        return "silent" if abs(age) > SILENT_SECS else "running"
    return "running" if runs else "stopped"


def _is_of_running_other(found: _Beat) -> bool:
    """Return whether a beat is of another process of this machine that runs.

    Two committers of a table may run at once; the one that ends must not hide the other.
    """
    return not found.ended and is_running(Writer("", 0, found.process)) is True


def _read(storage: Storage, path: str) -> _Beat | None:
    """Return a heartbeat; None if there is none, or one that somebody broke."""
    try:
        document = json_value(storage.read(path))
        return decode_document(_Beat, document, path, open_=True)
    except (NotFound, StateError, ValueError):
        return None


def _put(target: Beating, now: float, *, ended: bool) -> None:
    hours = target.activity.hours_document()
    beat = _Beat(**asdict(this_process()), at=round(now, 3), ended=ended, hours=hours)
    target.storage.put_atomic(target.path, json.dumps(asdict(beat)).encode())


def _delete_if_down(target: Beating, now: float) -> None:
    if read_life(target.storage, target.path, now).is_down:
        target.storage.delete(target.path)


def _each(do: Callable[[Beating], None], targets: Sequence[Beating]) -> None:
    """Do it for all of them; a store that refuses costs only the beat."""

    def tried(target: Beating) -> None:
        try:
            do(target)
        except StorageError as error:
            get_logger().debug("heartbeat_failed", target=target.activity.name, error=str(error))

    if targets:
        with ThreadPool(min(_CONCURRENCY, len(targets))) as pool:
            list(pool.map(tried, targets))

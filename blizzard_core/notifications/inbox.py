"""The hints of one source: from the thread that receives messages to the one that scans.

A message is deleted once every source that it went to has acknowledged its hints. A source
acknowledges a hint by an event that began after the hint had come: a save of its checkpoint that
landed, or a scan that covered the file's partition and found nothing to do there. A save proves
that this process owned the checkpoint then, and whoever takes over begins with a scan of
everything. So a hint that is lost in memory costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from blizzard_core.limits import OPEN_HINTS
from blizzard_core.notifications.messages import ObjectReference, path_below, place_of
from blizzard_core.storage.environment import AZURE_SCHEMES
from blizzard_core.storage.opening import scheme_of

if TYPE_CHECKING:  # commands that look at a source need no loop
    from blizzard_core.daemon import StopEvent

HintKind: TypeAlias = Literal["fresh", "doubled", "passed", "ignored", "foreign", "unreadable"]
HINT_KINDS: tuple[HintKind, ...] = get_args(HintKind)
# Of object stores: in bytes, on Azure in characters.
_LONGEST_NAME = 1024
# How often a waiting source checks whether the daemon stops.
_CHECK_SECS = 1.0


class Delivery:
    """A received message on its way to sources, deleted once all have acknowledged it."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._open = 1  # the receiver, until it has handed out all hints

    def expect(self) -> None:
        """Wait for one acknowledgement more."""
        with self._lock:
            self._open += 1

    def acknowledge(self) -> None:
        """Note one acknowledgement."""
        with self._lock:
            self._open -= 1
            is_done = not self._open
        if is_done:
            self._done()


@dataclass(frozen=True, slots=True, eq=False)
class Hint:
    """A file's path below its source, and when its message was sent; see `Message`.

    ``came`` is the time of its receipt by the clock that never jumps. Hints of an inbox are
    numbered as they come.
    """

    path: str
    sent: float | None
    came: float
    number: int
    delivery: Delivery


class HintInbox:
    """The hints of one source. Thread-safe."""

    def __init__(
        self,
        uri: str,
        monotonic: Callable[[], float],
        count: Callable[[HintKind, int], None] = lambda _kind, _number: None,
    ) -> None:
        """``uri`` is the source's; ``count`` counts hints and messages by kind."""
        self._place = place_of(uri)
        self._is_azure = scheme_of(uri) in AZURE_SCHEMES
        self._monotonic = monotonic
        self.count = count
        self._arrived = threading.Condition()
        self._new: list[Hint] = []
        # By number, in the order in which they came.
        self._open: dict[int, Hint] = {}
        self._last = 0
        self._not_before = 0.0
        self._wanted = False
        self.problem: str | None = None
        self.messages: int | None = None
        self.is_paused = False

    # -- for the thread that receives ----------------------------------------------

    def path_of(self, found: ObjectReference) -> str | None:
        """Return the object's path below the source; None if it lies elsewhere, or nowhere."""
        size = len(found.key if self._is_azure else found.key.encode())
        # To ask for a name that the store cannot have would be an error.
        is_possible = not found.bucket or size <= _LONGEST_NAME
        return path_below(self._place, found) if is_possible else None

    def has_bucket(self, found: ObjectReference) -> bool:
        """Return whether the source is in the object's bucket."""
        return found.bucket == self._place[0]

    @property
    def is_full(self) -> bool:
        """Return whether no message is to be received until others are acknowledged."""
        return len(self._open) >= OPEN_HINTS

    def put(self, path: str, sent: float | None, delivery: Delivery) -> None:
        """Add a hint, and wake the source."""
        delivery.expect()
        with self._arrived:
            self._last += 1
            hint = Hint(path, sent, self._monotonic(), self._last, delivery)
            self._open[hint.number] = hint
            self._new.append(hint)
            self._arrived.notify_all()

    def report(self, problem: str | None) -> None:
        """Say why no hints come; None: they do. A new problem wakes the source."""
        with self._arrived:
            is_new = problem is not None and self.problem is None
            self.problem = problem
            if is_new:
                self._arrived.notify_all()

    def want_scan(self) -> None:
        """Ask for a complete scan: messages were deleted unread."""
        with self._arrived:
            self._wanted = True
            self._arrived.notify_all()

    def pause(self) -> None:
        """Leave messages to another process, and those that are open to their next delivery."""
        with self._arrived:
            self.is_paused = True
            self._new.clear()
            self._open.clear()

    def resume(self) -> None:
        """Take messages again."""
        self.is_paused = False

    # -- for the source ------------------------------------------------------------

    def take(self) -> list[Hint]:
        """Return the hints that have come since the last call."""
        with self._arrived:
            found, self._new = self._new, []
            return found

    def take_wanted(self) -> bool:
        """Return whether a complete scan was wanted since the last call."""
        with self._arrived:
            wanted, self._wanted = self._wanted, False
            return wanted

    def mark(self) -> int:
        """Return the number of the last hint, before a save begins."""
        with self._arrived:
            return self._last

    def saved(self, mark: int) -> None:
        """Acknowledge all hints up to a mark, after the save that began with it has landed."""
        with self._arrived:
            acknowledged = []
            for number in self._open:
                if number > mark:
                    break
                acknowledged.append(self._open[number])
        self.acknowledge(acknowledged)

    def acknowledge(self, hints: Iterable[Hint]) -> None:
        """Acknowledge hints; those that are acknowledged already are left out."""
        with self._arrived:
            found = [hint for hint in hints if self._open.pop(hint.number, None) is not None]
        for hint in found:
            hint.delivery.acknowledge()

    def is_open(self, hint: Hint) -> bool:
        """Return whether a hint is not acknowledged."""
        return hint.number in self._open

    def lag(self, now: float) -> float:
        """Return the age of the oldest message that is not acknowledged; ``now`` is the time."""
        elapsed = self._monotonic()
        with self._arrived:
            ages = (
                elapsed - hint.came if hint.sent is None else now - hint.sent
                for hint in self._open.values()
            )
            return max(ages, default=0.0)

    def hold_until(self, at: float) -> None:
        """Let hints wake the source from ``at`` on, by the clock that never jumps."""
        self._not_before = at

    def wait(self, secs: float, stop: StopEvent) -> bool:
        """Wait; return whether a hint may be followed or the daemon stops before."""
        due = self._monotonic() + secs
        with self._arrived:
            was_up = self.problem is None
            while not stop.is_set():
                now = self._monotonic()
                is_called = bool(self._new) or self._wanted or (self.problem is None) != was_up
                until = min(due, max(self._not_before, now)) if is_called else due
                if now >= until:
                    return is_called and now >= self._not_before
                self._arrived.wait(min(until - now, _CHECK_SECS))
        return True

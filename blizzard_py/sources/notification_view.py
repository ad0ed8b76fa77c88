"""The live view of a source's notifications, with its metrics."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from blizzard_core.observability.notices import Notice
from blizzard_py import metrics

if TYPE_CHECKING:
    from blizzard_core.notifications.inbox import HintInbox, HintKind


class NotificationView:
    """The notifications of one source. Empty without an inbox. Thread-safe."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._inbox: HintInbox | None = None
        self._is_asleep = False

    def show(self, inbox: HintInbox) -> None:
        """Show a source's inbox from now on."""
        # Most sources have none, and need nothing that reads messages.
        from blizzard_core.notifications.inbox import HINT_KINDS  # noqa: PLC0415  # see above

        name = self._name
        with self._lock:
            self._inbox = inbox
        # Series that exist from the start let a rule see the first event.
        for kind in HINT_KINDS:
            metrics.HINTS.labels(name, kind)
        metrics.UNHINTED_FILES.labels(name)
        metrics.NOTIFICATIONS_UP.labels(name).set_function(lambda: float(self.is_up))
        metrics.HINT_LAG.labels(name).set_function(self._lag)
        metrics.QUEUE_MESSAGES.labels(name).set_function(
            lambda: math.nan if inbox.messages is None else inbox.messages
        )

    @property
    def is_up(self) -> bool:
        """Return whether hints decide about scans; otherwise the source polls."""
        with self._lock:
            inbox, is_asleep = self._inbox, self._is_asleep
        return inbox is not None and inbox.problem is None and not is_asleep

    def hinted(self, kind: HintKind, number: int) -> None:
        """Count hints of a kind."""
        metrics.HINTS.labels(self._name, kind).inc(number)

    def unhinted(self, files: int) -> None:
        """Count files that no hint had named."""
        metrics.UNHINTED_FILES.labels(self._name).inc(files)

    def sleeps(self, *, is_asleep: bool) -> None:
        """Note whether files come without hints, so that polls find them instead."""
        with self._lock:
            self._is_asleep = is_asleep

    def notices(self) -> Iterator[Notice]:
        """Yield what people should know."""
        if self._inbox is None or self.is_up:
            return
        problem = self._inbox.problem
        if problem is None:
            what = "Files come without notifications, so polls go on"
            yield Notice("warn", what, "Check the notifications of the bucket.")
        else:
            yield Notice("warn", "Notifications fail, so polls go on", problem)

    def to_json(self) -> dict[str, Any] | None:
        """Return plain data; None without notifications."""
        inbox = self._inbox
        if inbox is None:
            return None
        return {
            "up": self.is_up,
            "problem": inbox.problem,
            "lag_secs": self._lag(),
            "messages": inbox.messages,
        }

    def _lag(self) -> float:
        # Clocks may disagree.
        return 0.0 if self._inbox is None else max(0.0, self._inbox.lag(self._clock()))

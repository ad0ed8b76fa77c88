"""What a daemon shows of itself: the status document, health, readiness.

The document is ``/status.json`` and what the status page is drawn from. Everything in
it that came from outside is escaped as for a terminal, so a name cannot reorder or
hide what stands beside it, wherever the document is looked at.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from blizzard_core.observability.activity import Activity
from blizzard_core.observability.health import Verdict, alive, ready
from blizzard_core.observability.metrics import BUILD
from blizzard_core.text import printable

DISTRIBUTION = "blizzard-penguin"


class Panel:
    """All targets of one daemon; ``clock`` gives epoch seconds."""

    def __init__(
        self, daemon: str, activities: Sequence[Activity], clock: Callable[[], float]
    ) -> None:
        self._activities = tuple(activities)
        self._clock = clock
        self._started = clock()
        self._build = {
            "daemon": daemon,
            "version": version(DISTRIBUTION),
            "python": platform.python_version(),
        }
        BUILD.info(self._build)

    def alive(self) -> Verdict:
        """Whether the loops turn; see `blizzard_core.observability.health`."""
        return alive(tuple(a.pulse for a in self._activities), self._clock())

    def ready(self) -> Verdict:
        """Whether the loops do their work."""
        return ready(tuple(a.pulse for a in self._activities))

    def to_json(self) -> dict[str, Any]:
        """The status document: plain data, without NaN, foreign text escaped."""
        document: dict[str, Any] = escaped(
            {
                **self._build,
                "now": self._clock(),
                "started": self._started,
                "health": self.alive().to_json(),
                "readiness": self.ready().to_json(),
                "targets": [activity.to_json() for activity in self._activities],
            }
        )
        return document


def escaped(value: Any) -> Any:
    """Plain data with each text printable and each number one that JSON has."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {printable(str(key)): escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escaped(item) for item in value]
    return value

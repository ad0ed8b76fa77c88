"""The protocol of a queue of notifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from blizzard_core.errors import BlizzardError

# A received message comes again after this time, unless it was deleted.
HIDDEN_SECS = 300
CONNECT_SECS = 10.0
READ_SECS = 40.0  # between two bytes: longer than any queue waits for a message
_REMEDIES = {
    401: "Check the credentials in storage_options.",
    403: "`blizzard notifications CONFIG` prints the rights that it needs.",
    404: "Check notifications.uri.",
}


class QueueError(BlizzardError):
    """A queue does not answer, or refuses. Sources poll meanwhile."""


def refused(status: int, code: str) -> QueueError:
    """Return the error of a request that was refused; ``code`` is the service's own word."""
    return QueueError(f"{status} {code}. {_REMEDIES.get(status, '')}".strip())


@dataclass(frozen=True, slots=True)
class Message:
    """A received message: what deletes it, and when it was sent (epoch seconds).

    Without a ``handle`` it does not come again. ``sent`` is by the clock of the store that sent it;
    None: it was received at once, and only a machine of ours knows when.
    """

    body: bytes
    handle: str
    sent: float | None


class Queue(Protocol):
    """A queue. It is used by one thread. Every method raises `QueueError`, and nothing else."""

    def receive(self, wait_secs: float) -> Sequence[Message]:
        """Return messages; wait at most so long for the first one, if the queue can wait."""

    def delete(self, handles: Sequence[str]) -> None:
        """Delete received messages. One that is gone is no error."""

    def count(self) -> int | None:
        """Return about how many messages wait; None if the queue cannot tell."""

    def purge(self) -> None:
        """Delete everything that is in the queue."""

    def close(self) -> None:
        """Close connections."""

"""The contract of queues: a suite that the tests of each kind inherit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from blizzard_core.notifications.messages import ObjectReference, objects_of
from blizzard_core.notifications.protocol import Message, Queue, QueueError

KEY = "events/date=2026-11-24/a b+ü.gz"


def received(queue: Queue, number: int) -> list[Message]:
    """Return so many messages, which may come in several answers."""
    found: list[Message] = []
    for _ in range(50):
        found += queue.receive(0.2)
        if len(found) >= number:
            break
    return found


class QueueContract(ABC):
    """Every queue receives, hides, deletes, counts, is emptied, and fails with `QueueError`."""

    # Whether the queue can tell how many messages wait.
    counts = True

    @abstractmethod
    @contextmanager
    def opened(self, bodies: Sequence[bytes]) -> Iterator[Queue]:
        """Open a new queue with these messages."""

    @abstractmethod
    def broken(self) -> list[Queue]:
        """Return queues that are not there, or refuse."""

    def test_message_is_received_once_until_it_is_hidden_no_more(self) -> None:
        with self.opened([b'{"paths": []}']) as queue:
            (message,) = received(queue, 1)
            assert message.body == b'{"paths": []}'
            assert message.sent is not None
            assert message.sent > 1_500_000_000
            assert not queue.receive(0)

    def test_deleted_message_is_gone_and_deleting_again_no_error(self) -> None:
        with self.opened([b"a", b"b"]) as queue:
            handles = [message.handle for message in received(queue, 2)]
            queue.delete(handles)
            queue.delete(handles)
            assert queue.count() in {0, None}

    def test_many_messages_are_received_and_deleted(self) -> None:
        bodies = [str(number).encode() for number in range(25)]
        with self.opened(bodies) as queue:
            found = received(queue, 25)
            assert sorted(message.body for message in found) == sorted(bodies)
            queue.delete([message.handle for message in found])
            assert not queue.receive(0)

    def test_queue_counts_what_waits(self) -> None:
        with self.opened([b"a", b"b"]) as queue:
            assert queue.count() == (2 if self.counts else None)

    def test_emptied_queue_has_nothing(self) -> None:
        with self.opened([b"a", b"b"]) as queue:
            queue.purge()
            queue.purge()
            assert not queue.receive(0)

    def test_failures_are_errors_of_the_queue(self) -> None:
        for queue in self.broken():
            requests: list[Callable[[], object]] = [
                lambda queue=queue: queue.receive(0),  # type: ignore[misc]  # bound now
                lambda queue=queue: queue.delete(["x"]),  # type: ignore[misc]  # bound now
            ]
            for request in requests:
                with pytest.raises(QueueError):
                    request()
            queue.close()


def names_object(message: Message, bucket: str) -> bool:
    """Return whether a message is about the object with `KEY`."""
    return objects_of(message.body) == (ObjectReference(bucket, KEY),)

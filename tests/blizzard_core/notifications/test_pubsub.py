"""Pub/Sub, by a server that keeps its reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from blizzard_core.notifications.protocol import Queue, QueueError
from blizzard_core.notifications.pubsub import PubSubQueue
from blizzard_core.notifications.receiver import open_queue
from tests.support.pubsub_server import PubSubServer, pubsub_server
from tests.support.queue_contract import KEY, QueueContract, names_object, received


@pytest.fixture(scope="module")
def server() -> Iterator[PubSubServer]:
    with pubsub_server() as found:
        yield found


class TestPubSub(QueueContract):
    counts = False

    @pytest.fixture(autouse=True)
    def _use(self, server: PubSubServer) -> None:
        self.server = server

    @contextmanager
    def opened(self, bodies: Sequence[bytes]) -> Iterator[Queue]:
        name = self.server.new_subscription()
        for body in bodies:
            self.server.publish(name, body)
        queue = PubSubQueue(name, {}, self.server.environment)
        yield queue
        queue.close()

    def broken(self) -> list[Queue]:
        return [
            PubSubQueue("projects/p/subscriptions/none", {}, self.server.environment),
            PubSubQueue("projects/p/subscriptions/s", {}, {"PUBSUB_EMULATOR_HOST": "127.0.0.1:9"}),
        ]


def test_bucket_names_its_object_in_attributes(
    server: PubSubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = server.new_subscription()
    event = {"eventType": "OBJECT_FINALIZE", "bucketId": "raw", "objectId": KEY}
    server.publish(name, b"{}", **event)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.host)
    queue = open_queue(f"pubsub://{name}", "gs://raw", {})
    (message,) = received(queue, 1)
    assert names_object(message, "raw")
    # Its deadline was ten seconds.
    assert min(server.visible.values()) > 0
    queue.close()


def test_unusable_key_file_is_not_shown() -> None:
    options = {"GOOGLE_SERVICE_ACCOUNT": '{"private_key": "secret-secret"}'}
    with pytest.raises(QueueError, match="cannot be used") as caught:
        PubSubQueue("projects/p/subscriptions/s", options, {})
    assert "secret" not in str(caught.value)

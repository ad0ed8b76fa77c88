"""Azure Storage queues, by Azurite."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.sax.saxutils import escape

import pytest
import requests

from blizzard_core.notifications.azure_queue import AzureQueue, signer_of, string_to_sign
from blizzard_core.notifications.opening import open_queue
from blizzard_core.notifications.protocol import Queue, QueueError
from tests.fuzz.targets.notifications import FORMS
from tests.support.azurite_server import AzuriteServer, azurite_server
from tests.support.queue_contract import QueueContract, received


@pytest.fixture(scope="module")
def server() -> Iterator[AzuriteServer]:
    with azurite_server("queue") as found:
        yield found


def sender(url: str, server: AzuriteServer) -> tuple[requests.Session, dict[str, str]]:
    """Return a session that signs requests as the queue's own does."""
    session = requests.Session()
    session.auth = signer_of(url, server.options)
    return session, {"x-ms-version": "2021-12-02", "x-ms-date": "Fri, 27 Nov 2026 10:00:00 GMT"}


def new_queue(server: AzuriteServer, bodies: Sequence[bytes]) -> str:
    url = f"{server.endpoint}/raw-{uuid.uuid4().hex[:8]}"
    session, headers = sender(url, server)
    assert session.put(url, headers=headers).status_code == 201
    for body in bodies:
        text = f"<QueueMessage><MessageText>{escape(body.decode())}</MessageText></QueueMessage>"
        sent = session.post(f"{url}/messages", data=text.encode(), headers=headers)
        assert sent.status_code == 201, sent.text
    session.close()
    return url


class TestAzureQueue(QueueContract):
    @pytest.fixture(autouse=True)
    def _use(self, server: AzuriteServer) -> None:
        self.server = server

    @contextmanager
    def opened(self, bodies: Sequence[bytes]) -> Iterator[Queue]:
        queue = open_queue(new_queue(self.server, bodies), "az://raw", self.server.options)
        yield queue
        queue.close()

    def broken(self) -> list[Queue]:
        key = base64.b64encode(b"another key of others").decode()
        wrong = {**self.server.options, "AZURE_STORAGE_ACCOUNT_KEY": key}
        url = new_queue(self.server, [])
        return [
            AzureQueue(f"{url}x", self.server.options),
            AzureQueue(url, wrong),
            AzureQueue("http://127.0.0.1:9/account/raw", self.server.options),
        ]

    def test_empty_queue_is_read_once_a_second(self) -> None:
        slept: list[float] = []
        queue = AzureQueue(new_queue(self.server, []), self.server.options, slept.append)
        assert not queue.receive(3.0)
        assert slept == [1.0, 1.0, 1.0]
        queue.close()

    def test_event_in_base64_arrives_as_it_was_sent(self) -> None:
        body = base64.b64encode(json.dumps(FORMS["event grid"]).encode())
        with self.opened([body]) as queue:
            (message,) = received(queue, 1)
            assert message.body == body


def test_signature_has_headers_and_query_in_order() -> None:
    headers = {"x-ms-version": "1", "Content-Type": "a", "X-Ms-Date": "now", "Accept": "*/*"}
    url = "https://account.queue.x/raw/messages?visibilitytimeout=300&numofmessages=32"
    assert string_to_sign("account", "GET", url, headers) == (
        "GET\n\n\n\n\na\n\n\n\n\n\n\nx-ms-date:now\nx-ms-version:1\n"
        "/account/raw/messages\nnumofmessages:32\nvisibilitytimeout:300"
    )


def test_sas_is_never_part_of_an_error() -> None:
    options = {"AZURE_STORAGE_SAS_TOKEN": "?sv=2021&sig=c2VjcmV0LXNpZ25hdHVyZQ=="}
    queue = AzureQueue("http://127.0.0.1:9/account/raw", options)
    with pytest.raises(QueueError) as caught:
        queue.receive(0)
    assert "c2Vjcm" not in str(caught.value)
    queue.close()


def test_key_that_is_none_is_refused() -> None:
    with pytest.raises(QueueError, match="is no key"):
        AzureQueue("http://127.0.0.1:9/account/raw", {"AZURE_STORAGE_ACCOUNT_KEY": "no key!"})

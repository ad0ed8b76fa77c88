"""Azure Storage queues, by Azurite."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient, StorageErrorCode

from blizzard_core.notifications import azure_queue
from blizzard_core.notifications.azure_queue import AzureQueue
from blizzard_core.notifications.protocol import Queue, QueueError
from blizzard_core.notifications.receiver import open_queue
from tests.fuzz.targets.notifications import FORMS
from tests.support.azurite_server import AzuriteServer, azurite_server
from tests.support.queue_contract import QueueContract, received


@pytest.fixture(scope="module")
def server() -> Iterator[AzuriteServer]:
    with azurite_server("queue") as found:
        yield found


def new_queue(server: AzuriteServer, bodies: Sequence[bytes]) -> str:
    url = f"{server.endpoint}/raw-{uuid.uuid4().hex[:8]}"
    key = server.options["AZURE_STORAGE_ACCOUNT_KEY"]
    with QueueClient.from_queue_url(url, credential=key) as client:
        client.create_queue()
        for body in bodies:
            client.send_message(body.decode())
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


def test_codes_are_spelled_as_azure_does() -> None:
    error = HttpResponseError("x")
    error.error_code = StorageErrorCode.AUTHENTICATION_FAILED  # type: ignore[attr-defined]  # as the client sets it
    assert azure_queue._code(error) == "AuthenticationFailed"  # noqa: SLF001  # errors of some stores need it


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

"""``POST /notify``: who may post, and what becomes of it."""

from __future__ import annotations

import http.client
import io
from collections.abc import Iterator

import pytest

from blizzard_core.limits import MESSAGE_BYTES, WEBHOOK_MESSAGES
from blizzard_core.log import configure
from blizzard_core.notifications.webhook import WebhookQueue
from blizzard_core.observability.posts import Posts
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server

TOKEN = "sesame-sesame-sesame"


@pytest.fixture
def queue() -> WebhookQueue:
    return WebhookQueue(TOKEN)


@pytest.fixture
def port(queue: WebhookQueue) -> Iterator[int]:
    other = WebhookQueue("another-token-of-others")
    with Server(
        "127.0.0.1:0", Panel("blizzard", [], lambda: 0.0, recipients=[queue, other])
    ) as server:
        yield server.port


def post(port: int, body: bytes, token: str | None = TOKEN, method: str = "POST") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request(method, "/notify", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_posted_message_is_received(port: int, queue: WebhookQueue) -> None:
    assert post(port, b"x" * 100_000) == 202
    (message,) = queue.receive(0)
    assert (message.body, message.sent) == (b"x" * 100_000, None)
    assert not queue.receive(0)


@pytest.mark.parametrize("token", [None, "", "sesame-sesame-sesamf", f"{TOKEN}x", "\xff"])
def test_wrong_token_is_refused(port: int, queue: WebhookQueue, token: str | None) -> None:
    assert post(port, b"{}", token) == 401
    assert not queue.receive(0)


def test_token_needs_its_scheme(queue: WebhookQueue) -> None:
    assert not Posts([queue]).admits(TOKEN)
    assert Posts([queue]).admits(f"Bearer {TOKEN}")


def test_large_message_is_refused(port: int, queue: WebhookQueue) -> None:
    assert post(port, b"x" * (MESSAGE_BYTES + 1)) == 413
    assert not queue.receive(0)


def test_full_webhook_answers_503(port: int, queue: WebhookQueue) -> None:
    for _ in range(WEBHOOK_MESSAGES):
        assert queue.post(b"{}")
    assert post(port, b"{}") == 503
    queue.purge()
    assert post(port, b"{}") == 202


def test_reading_the_path_is_no_request_of_it(port: int) -> None:
    assert post(port, b"", method="GET") == 405


def test_page_without_webhook_takes_no_post() -> None:
    with Server("127.0.0.1:0", Panel("blizzard", [], lambda: 0.0)) as server:
        assert post(server.port, b"{}") == 404


def test_body_that_cannot_be_decompressed_is_refused(port: int, queue: WebhookQueue) -> None:
    text = io.StringIO()
    configure("INFO", text)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Encoding": "gzip"}
    connection.request("POST", "/notify", b"no gzip", headers)
    assert connection.getresponse().status == 400
    connection.close()
    assert not queue.receive(0)
    assert not text.getvalue()

"""Uploads to a store that takes connections and nothing else end, at each store."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator

import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.storage import objects
from blizzard_core.storage.objects import Patience
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage

PATIENCE = Patience(connect_secs=0.1, read_secs=0.1, retry_secs=0.1)
# More than the buffers of both ends of a connection take.
LARGE = b"x" * (16 << 20)


@pytest.fixture
def endpoint() -> Iterator[str]:
    """Connections are made by the system, and nobody reads from them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(params=["s3", "gs", "az"])
def deaf(request: pytest.FixtureRequest, endpoint: str) -> Storage:
    key = base64.b64encode(b"k" * 32).decode()
    options = {
        "s3": {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        },
        "gs": {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true"},
        "az": {
            "AZURE_STORAGE_ACCOUNT_NAME": "test",
            "AZURE_STORAGE_ACCOUNT_KEY": key,
            "AZURE_STORAGE_ENDPOINT": f"{endpoint}/test",
        },
    }
    return open_storage(f"{request.param}://bucket/x", options[request.param], PATIENCE)


@pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
@pytest.mark.timeout(60)
def test_upload_fails_when_the_server_never_answers(
    deaf: Storage, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "SLOWEST_BYTES_A_SEC", 1 << 30)
    with pytest.raises(Unavailable, match=deaf.uri):
        deaf.put_if("name", data, None)
    with pytest.raises(Unavailable, match=deaf.uri):
        deaf.put_atomic("name", data)

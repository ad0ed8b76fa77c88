"""Azure Storage queues.

The service cannot wait for a message, so an empty queue is read once a second.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient, QueueMessage

from blizzard_core.notifications.protocol import (
    CONNECT_SECS,
    HIDDEN_SECS,
    READ_SECS,
    Message,
    QueueError,
    refused,
)
from blizzard_core.redact import redacted
from blizzard_core.storage.protocol import StorageOptions

_AT_ONCE = 32
_EMPTY_SECS = 1.0


class AzureQueue:
    """A queue of a storage account. A `Queue`."""

    def __init__(
        self, url: str, options: StorageOptions, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """``options`` are those of the source's store, in upper case. Raises `QueueError`."""
        self._sleep = sleep
        # Who reads the queue tries again itself.
        self._client = QueueClient.from_queue_url(
            url,
            _credential(url, options),
            retry_total=0,
            permit_redirects=False,
            connection_timeout=CONNECT_SECS,
            read_timeout=READ_SECS,
        )

    def receive(self, wait_secs: float) -> Sequence[Message]:
        waited = 0.0
        while True:
            found = self._receive()
            if found or waited >= wait_secs:
                return found
            self._sleep(_EMPTY_SECS)
            waited += _EMPTY_SECS

    def _receive(self) -> list[Message]:
        with _errors():
            found = self._client.receive_messages(
                messages_per_page=_AT_ONCE, max_messages=_AT_ONCE, visibility_timeout=HIDDEN_SECS
            )
            return [_message(each) for each in found]

    def delete(self, handles: Sequence[str]) -> None:
        for handle in handles:
            name, _, receipt = handle.partition(" ")
            with _errors():
                try:
                    self._client.delete_message(name, receipt)
                except HttpResponseError as error:
                    # It is gone, or was received by another since.
                    if _code(error) not in {"MessageNotFound", "PopReceiptMismatch"}:
                        raise

    def count(self) -> int | None:
        with _errors():
            try:
                return self._client.get_queue_properties().approximate_message_count
            except HttpResponseError as error:
                # Who may receive messages may not always count them.
                if _code(error) != "AuthorizationPermissionMismatch":
                    raise
                return None

    def purge(self) -> None:
        with _errors():
            self._client.clear_messages()

    def close(self) -> None:
        self._client.close()


def _message(received: QueueMessage) -> Message:
    sent = received.inserted_on
    if sent is None:
        raise ValueError("a message without a time of sending")
    content: str = received.content or ""
    return Message(content.encode(), f"{received.id} {received.pop_receipt}", sent.timestamp())


def _code(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None) or error.reason or ""
    return str(getattr(code, "value", code))  # some are members of an enumeration


@contextmanager
def _errors() -> Iterator[None]:
    """Make every error of the client a `QueueError`."""
    try:
        yield
    except HttpResponseError as error:
        raise refused(error.status_code or 0, _code(error)) from error
    # Of credentials, of a proxy, of TLS, of an answer that is none: each library has its own.
    except Exception as error:
        raise QueueError(f"{type(error).__name__}: {redacted(str(error))}") from error


def _credential(url: str, options: StorageOptions) -> Any:
    """Return what the options name: a key, a signature, an identity. Raises `QueueError`."""
    key = options.get("AZURE_STORAGE_ACCOUNT_KEY")
    if key is not None:
        try:
            base64.b64decode(key, validate=True)
        except ValueError:
            raise QueueError("AZURE_STORAGE_ACCOUNT_KEY is no key: it must be base64") from None
        account = (urlsplit(url).hostname or "").partition(".")[0]
        name = options.get("AZURE_STORAGE_ACCOUNT_NAME") or account
        return {"account_name": name, "account_key": key}
    if signature := options.get("AZURE_STORAGE_SAS_TOKEN"):
        return AzureSasCredential(signature.lstrip("?"))
    return _identity(options)


def _identity(options: StorageOptions) -> Any:
    """Return a service principal, or Azure's usual chain."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415  # slow

    names = ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")
    tenant, client, secret = (options.get(f"AZURE_STORAGE_{name}") for name in names)
    if tenant and client and secret:
        return ClientSecretCredential(tenant, client, secret)
    return DefaultAzureCredential()

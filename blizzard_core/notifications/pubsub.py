"""Google Cloud Pub/Sub, by its REST interface."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import google.auth
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.service_account import Credentials

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

_SERVICE = "https://pubsub.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/pubsub",)
_AT_ONCE = 1000
_KEY_FILES = (
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


class PubSubQueue:
    """A pull subscription. A `Queue`."""

    def __init__(
        self, subscription: str, options: StorageOptions, environment: Mapping[str, str]
    ) -> None:
        """``options`` are those of the source's store, in upper case. Raises `QueueError`."""
        emulator = environment.get("PUBSUB_EMULATOR_HOST")
        self._url = f"{f'http://{emulator}' if emulator else _SERVICE}/v1/{subscription}"
        credentials = _credentials(options, is_emulator=bool(emulator))
        self._session: requests.Session = _session(credentials)

    def receive(self, wait_secs: float) -> Sequence[Message]:  # noqa: ARG002  # the service decides
        try:
            answer = self._ask("pull", maxMessages=_AT_ONCE)
        except QueueError as error:
            # Of an empty subscription that is usual.
            if isinstance(error.__cause__, requests.exceptions.ReadTimeout):
                return ()
            raise
        try:
            found = [_message(each) for each in answer.get("receivedMessages", ())]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise QueueError("the answer is none of Pub/Sub's") from error
        if found:
            # Most subscriptions have ten seconds.
            handles = [message.handle for message in found]
            self._ask("modifyAckDeadline", ackIds=handles, ackDeadlineSeconds=HIDDEN_SECS)
        return found

    def delete(self, handles: Sequence[str]) -> None:
        for first in range(0, len(handles), _AT_ONCE):
            self._ask("acknowledge", ackIds=list(handles[first : first + _AT_ONCE]))

    def count(self) -> int | None:
        """Return None: only another service counts them."""
        return None

    def purge(self) -> None:
        self._ask("seek", time=dt.datetime.now(dt.UTC).isoformat())

    def close(self) -> None:
        self._session.close()

    def _ask(self, verb: str, **body: Any) -> dict[str, Any]:
        url = f"{self._url}:{verb}"
        try:
            answer = self._session.post(
                url, json=body, timeout=(CONNECT_SECS, READ_SECS), allow_redirects=False
            )
        # Of credentials, of a proxy, of TLS: each library has its own.
        except Exception as error:
            raise QueueError(f"{type(error).__name__}: {redacted(str(error))}") from error
        try:
            document = answer.json()
            code = "" if answer.ok else str(document["error"].get("status", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            document, code = {}, ""
        if not answer.ok:
            raise refused(answer.status_code, code or answer.reason)
        return document if isinstance(document, dict) else {}


def _message(received: Mapping[str, Any]) -> Message:
    message = received["message"]
    attributes = message.get("attributes") or {}
    if "eventType" in attributes:
        body = json.dumps({"attributes": attributes}).encode()
    else:
        body = base64.b64decode(message.get("data", ""))
    sent = dt.datetime.fromisoformat(message["publishTime"]).timestamp()
    return Message(body, received["ackId"], sent)


def _session(credentials: Any) -> requests.Session:
    made: requests.Session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # of Google
    return made


def _credentials(options: StorageOptions, *, is_emulator: bool) -> Any:
    if is_emulator or options.get("GOOGLE_SKIP_SIGNATURE", "").lower() == "true":
        return AnonymousCredentials()  # type: ignore[no-untyped-call]  # of Google
    path = next((options[name] for name in _KEY_FILES if options.get(name)), None)
    try:
        if path is None:
            return google.auth.default(scopes=_SCOPES)[0]
        return Credentials.from_service_account_file(  # type: ignore[no-untyped-call]  # as above
            path, scopes=_SCOPES
        )
    except Exception as error:  # Google's, of JSON, of files: and their texts may hold the key
        reason = type(error).__name__ if path else redacted(str(error))
        raise QueueError(f"the credentials of Google cannot be used ({reason})") from None

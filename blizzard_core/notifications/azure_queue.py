"""Azure Storage queues, by their REST interface.

The service cannot wait for a message, so an empty queue is read once a second.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import parse_qsl, quote, urlsplit

import requests

from blizzard_core.notifications.http_queue import ask, check
from blizzard_core.notifications.protocol import HIDDEN_SECS, Message, QueueError
from blizzard_core.storage.protocol import StorageOptions

_VERSION = "2021-12-02"
_AT_ONCE = 32
_EMPTY_SECS = 1.0
_SCOPE = "https://storage.azure.com/.default"
# Of a message that is gone or was received by another since.
_GONE = frozenset({"MessageNotFound", "PopReceiptMismatch"})
# Who may receive messages may not always count them.
_UNREADABLE = frozenset({"AuthorizationPermissionMismatch"})
_HEADERS = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)


class AzureQueue:
    """A queue of a storage account. A `Queue`."""

    def __init__(
        self, url: str, options: StorageOptions, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """``options`` are those of the source's store, in upper case. Raises `QueueError`."""
        self._url = url
        self._sleep = sleep
        self._session = requests.Session()
        self._session.auth = signer_of(url, options)
        self._sas = dict(parse_qsl(options.get("AZURE_STORAGE_SAS_TOKEN", "").lstrip("?")))

    def receive(self, wait_secs: float) -> Sequence[Message]:
        waited = 0.0
        while True:
            found = self._receive()
            if found or waited >= wait_secs:
                return found
            self._sleep(_EMPTY_SECS)
            waited += _EMPTY_SECS

    def _receive(self) -> list[Message]:
        answer = self._ask(
            "GET", "/messages", numofmessages=str(_AT_ONCE), visibilitytimeout=str(HIDDEN_SECS)
        )
        try:
            root = ET.fromstring(answer.content)  # noqa: S314  # the store's own answer
            return [_message(each) for each in root]
        except (ET.ParseError, KeyError, ValueError) as error:
            raise QueueError("the answer is none of Azure's. Check notifications.uri.") from error

    def delete(self, handles: Sequence[str]) -> None:
        for handle in handles:
            name, _, receipt = handle.partition(" ")
            path = f"/messages/{quote(name, safe='')}"
            self._ask("DELETE", path, _GONE, popreceipt=receipt)

    def count(self) -> int | None:
        answer = self._ask("GET", "", _UNREADABLE, comp="metadata")
        if not answer.ok:
            return None
        return int(answer.headers.get("x-ms-approximate-messages-count", "0"))

    def purge(self) -> None:
        self._ask("DELETE", "/messages")

    def close(self) -> None:
        self._session.close()

    def _ask(
        self, method: str, path: str, allowed: frozenset[str] = frozenset(), **query: str
    ) -> requests.Response:
        headers = {"x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True)}
        url, query = f"{self._url}{path}", {**query, **self._sas}
        try:
            answer = ask(self._session, method, url, params=query, headers=headers)
        except requests.exceptions.ReadTimeout as error:
            raise QueueError("no answer within 40 s") from error
        code = answer.headers.get("x-ms-error-code", "")
        if code not in allowed:
            check(answer, code)
        return answer


def _message(element: ET.Element) -> Message:
    parts = {each.tag: each.text or "" for each in element}
    handle = f"{parts['MessageId']} {parts['PopReceipt']}"
    sent = parsedate_to_datetime(parts["InsertionTime"]).timestamp()
    return Message(parts["MessageText"].encode(), handle, sent)


def signer_of(
    url: str, options: StorageOptions
) -> Callable[[requests.PreparedRequest], requests.PreparedRequest] | None:
    """Return what signs requests by the options: a key, or a token of an identity.

    None: the signature is in the query (SAS). Raises `QueueError`.
    """
    key = options.get("AZURE_STORAGE_ACCOUNT_KEY")
    if key is not None:
        account = options.get("AZURE_STORAGE_ACCOUNT_NAME") or _account_of(url)
        try:
            return SharedKey(account, base64.b64decode(key, validate=True))
        except ValueError:
            raise QueueError("AZURE_STORAGE_ACCOUNT_KEY is no key: it must be base64") from None
    if options.get("AZURE_STORAGE_SAS_TOKEN"):
        return None
    return _identity(options)


def _account_of(url: str) -> str:
    return (urlsplit(url).hostname or "").partition(".")[0]


def _identity(
    options: StorageOptions,
) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Return what adds the token of a service principal, or of Azure's usual chain."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415  # slow

    names = ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")
    parts = [options.get(f"AZURE_STORAGE_{name}") for name in names]
    tenant, client, secret = parts
    credential = (
        ClientSecretCredential(tenant, client, secret)
        if tenant and client and secret
        else DefaultAzureCredential()
    )

    def with_token(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {credential.get_token(_SCOPE).token}"
        return request

    return with_token


class SharedKey:
    """The signature of requests by an account's key."""

    def __init__(self, account: str, key: bytes) -> None:
        self._account = account
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the signature."""
        headers = request.headers
        if headers.get("Content-Length") == "0":
            del headers["Content-Length"]
        texts = {name: str(value) for name, value in headers.items()}
        text = string_to_sign(self._account, request.method or "", request.url or "", texts)
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {self._account}:{base64.b64encode(digest).decode()}"
        return request


def string_to_sign(account: str, method: str, url: str, headers: Mapping[str, str]) -> str:
    """Return the text that a request's signature is of.

    https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
    """
    parts = urlsplit(url)
    own = sorted(
        (name.lower(), value) for name, value in headers.items() if name.lower()[:5] == "x-ms-"
    )
    query = sorted(parse_qsl(parts.query, keep_blank_values=True))
    lines = [method, *(headers.get(name, "") for name in _HEADERS)]
    lines += [f"{name}:{value}" for name, value in own]
    lines += [f"/{account}{parts.path}", *(f"{name.lower()}:{value}" for name, value in query)]
    return "\n".join(lines)

"""URIs of queues, and the problems of a source that reads one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from blizzard_core.storage.environment import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from blizzard_core.storage.opening import scheme_of

QueueKind: TypeAlias = Literal["sqs", "pubsub", "azure", "webhook"]

WEBHOOK = "webhook:"
_PUBSUB = re.compile(r"pubsub://projects/([^/]+)/subscriptions/([^/]+)")
_AZURE_HOST = re.compile(r"\.queue\.")
_STORES: dict[QueueKind, frozenset[str]] = {
    "sqs": S3_SCHEMES,
    "pubsub": GCS_SCHEMES,
    "azure": AZURE_SCHEMES,
}
_FORMS = (
    "must be https://sqs.REGION.amazonaws.com/ACCOUNT/NAME,"
    " pubsub://projects/PROJECT/subscriptions/NAME,"
    " https://ACCOUNT.queue.core.windows.net/NAME, or webhook:"
)


def check_queue_uri(uri: str) -> str:
    """Return the one spelling of the URI: sources that name a queue in two would be two readers.

    Raises `ValueError`, without quoting it.
    """
    if uri == WEBHOOK or _PUBSUB.fullmatch(uri):
        return uri
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.count("/") < 1:
        raise ValueError(_FORMS)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must not carry credentials; the source's storage_options have them")
    if len(parts.path) < 2 or parts.path.endswith("/"):
        raise ValueError(_FORMS)
    host = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80")
    return f"{parts.scheme}://{host}{parts.path}"


def kind_of(uri: str, source_uri: str) -> QueueKind:
    """Return the kind of a valid URI.

    An address of an emulator does not tell; then the source's store decides.
    """
    if uri == WEBHOOK:
        return "webhook"
    if uri.startswith("pubsub:"):
        return "pubsub"
    host = urlsplit(uri).hostname or ""
    if "amazonaws." in host:
        return "sqs"
    if _AZURE_HOST.search(host):
        return "azure"
    return "azure" if scheme_of(source_uri) in AZURE_SCHEMES else "sqs"


def queue_problems(uri: str, source_uri: str) -> Iterator[str]:
    """Yield the reasons why a source cannot use a queue of a valid URI."""
    kind = kind_of(uri, source_uri)
    if kind == "sqs" and uri.endswith(".fifo"):
        yield "is a FIFO queue, which S3 sends no notifications to; use a standard queue"
    stores = _STORES.get(kind)
    if stores is not None and scheme_of(source_uri) not in stores:
        names = ", ".join(sorted(stores))
        yield f"is a queue for stores of {names}; use the queue of the source's store, or webhook:"


def subscription_of(uri: str) -> str:
    """Return the full name of a Pub/Sub subscription."""
    return uri.removeprefix("pubsub://")

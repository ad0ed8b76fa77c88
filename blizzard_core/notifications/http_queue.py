"""HTTP requests to a queue, with one kind of error."""

from __future__ import annotations

from typing import Any

import requests

from blizzard_core.notifications.protocol import QueueError
from blizzard_core.redact import redacted

_SECS = (10.0, 40.0)  # to connect, between two bytes
_REMEDIES = {
    401: "Check the credentials in storage_options.",
    403: "`blizzard notifications CONFIG` prints the rights that it needs.",
    404: "Check notifications.uri.",
}


def ask(session: requests.Session, method: str, url: str, **more: Any) -> requests.Response:
    """Return the answer to a request, whatever its status. Raises `QueueError` without one."""
    try:
        return session.request(method, url, timeout=_SECS, allow_redirects=False, **more)
    except requests.exceptions.ReadTimeout:
        raise
    # Of credentials, of a proxy, of TLS: each library has its own.
    except Exception as error:
        raise QueueError(f"{type(error).__name__}: {redacted(str(error))}") from error


def check(answer: requests.Response, code: str) -> None:
    """Raise `QueueError` unless a request succeeded; ``code`` is the service's own word."""
    if answer.ok:
        return
    remedy = _REMEDIES.get(answer.status_code, "")
    raise QueueError(f"{answer.status_code} {code or answer.reason}. {remedy}".strip())

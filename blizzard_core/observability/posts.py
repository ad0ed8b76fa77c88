"""Messages by ``POST /notify`` on the address of the status page."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Protocol

_BEARER = "Bearer "


class Recipient(Protocol):
    """A recipient of messages that are posted with its token. Thread-safe."""

    token: str

    def post(self, body: bytes) -> bool:
        """Take a message; return whether there was room for it."""


class Posts:
    """All recipients of a daemon, behind one path."""

    def __init__(self, recipients: Sequence[Recipient]) -> None:
        self._recipients = tuple(recipients)

    def admits(self, authorization: str) -> bool:
        """Return whether a request's ``Authorization`` has any recipient's token."""
        return bool(self._admitting(authorization))

    def post(self, authorization: str, body: bytes) -> bool:
        """Give a message to each recipient with the token; return whether all had room for it."""
        return False not in [each.post(body) for each in self._admitting(authorization)]

    def _admitting(self, authorization: str) -> list[Recipient]:
        given = authorization.removeprefix(_BEARER).encode("utf-8", "surrogateescape")
        # Each is compared: how long it takes must not tell which one has the token.
        same = [
            each for each in self._recipients if hmac.compare_digest(given, each.token.encode())
        ]
        return same if authorization.startswith(_BEARER) else []

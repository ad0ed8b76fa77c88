"""Credentials of a request, and OAuth tokens. Pure: the client sends what is made here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import msgspec

from blizzard_core.errors import AccessDenied, SourceError
from blizzard_core.redact import MASK, redacted
from blizzard_core.settings.connections import AuthSettings, HttpConnectionSettings
from blizzard_core.settings.http_sources import RequestSettings
from blizzard_core.text import one_line, printable, shortened
from blizzard_py.connections.http.calls import is_secret
from blizzard_py.connections.http.checks import sendable

# A token is renewed so long before it expires: it must still be valid when a request arrives.
_SPARE_SECS = 30.0
# A shorter value may as well be an ordinary word of the message.
_MIN_SECRET = 4


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``ends_at`` is by the clock of the request for it."""

    value: str = field(repr=False)
    ends_at: float


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """Headers and parameters that carry credentials."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)


def request_credentials(auth: AuthSettings | None, token: Token | None) -> RequestCredentials:
    """Return the credentials of a request to the connection's own origin."""
    if token is not None:
        return RequestCredentials({"Authorization": f"Bearer {token.value}"})
    match auth:
        case AuthSettings(kind="bearer"):
            return RequestCredentials({"Authorization": f"Bearer {auth.token}"})
        case AuthSettings(username=str(user), password=str(password)):
            return RequestCredentials({"Authorization": _basic(user, password)})
        case AuthSettings(name=str(name), token=str(key)):
            carried = {name: key}
            in_query = auth.advanced.location == "query"
            return RequestCredentials(params=carried) if in_query else RequestCredentials(carried)
    return RequestCredentials()


def token_request(auth: AuthSettings) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return headers and form of the request for a token (RFC 6749, 4.4 and 2.3.1)."""
    client, secret = auth.client_id or "", auth.client_secret or ""
    wanted = {"scope": auth.advanced.scope, "audience": auth.advanced.audience}
    form = {"grant_type": "client_credentials"}
    form |= {name: value for name, value in wanted.items() if value}
    if auth.advanced.send_as == "form":
        return {}, {**form, "client_id": client, "client_secret": secret}
    return {"Authorization": _basic(quote_plus(client), quote_plus(secret))}, form


def read_token(status: int, body: bytes | bytearray, now: float, what: str) -> Token:
    """Return the token in the endpoint's answer, which came at ``now``.

    Raises `AccessDenied` if the client is refused, `SourceError` if there is no token.
    """
    answer = _object(body)
    if status != 200:  # OK
        code = answer.get("error")
        shown = f" ({shortened(printable(code), 100)})" if isinstance(code, str) else ""
        if status in {400, 401, 403}:
            raise AccessDenied(f"{what}: refuses the client, {status}{shown}")
        raise SourceError(f"{what}: answered {status}{shown} instead of a token")
    value, lasts = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(value, str) or not sendable(value):
        raise SourceError(f"{what}: the answer has no usable 'access_token'")
    if not isinstance(lasts, int | float | str) or isinstance(lasts, bool):
        return Token(value, float("inf"))
    try:
        secs = float(lasts)
    except (ValueError, OverflowError):  # no number, or one of hundreds of digits
        return Token(value, float("inf"))
    return Token(value, now + max(secs - _SPARE_SECS, secs / 2))


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return foreign text for a message: short, on one line, without sent credentials."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return shortened(printable(one_line(redacted(text))), 300)


def secrets_of(
    api: HttpConnectionSettings, request: RequestSettings, token: Token | None
) -> set[str]:
    """Return everything secret that an API could echo."""
    found = {*api.secret_values}
    found |= {str(v) for k, v in request.params.items() if is_secret(k)}
    found |= {quote_plus(secret) for secret in api.secret_values if secret}
    found.add(token.value if token else None)
    match api.auth:
        case AuthSettings(username=str(user), password=str(password)):
            found.add(_basic(user, password).removeprefix("Basic "))
    return {secret for secret in found if secret and len(secret) >= _MIN_SECRET}


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _object(body: bytes | bytearray) -> Mapping[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return answer if isinstance(answer, dict) else {}

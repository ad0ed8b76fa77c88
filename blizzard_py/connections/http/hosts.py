"""Hosts that a next page or a redirect may lead to, with credentials or without. Pure.

Credentials belong to one **origin**: scheme, host and port of the base URL. Another port is another
server, and with ``http`` instead of ``https`` others can read along. A request goes to any other
origin only if that is in ``allowed_hosts``, and then without credentials. The HTTP client's own
parser takes URLs apart: two parsers might disagree about the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from blizzard_core.errors import SourceError
from blizzard_core.settings.connections import HttpConnectionSettings
from blizzard_core.text import printable, shortened

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """A URL that may be requested; ``ours`` if it is at the base URL's origin."""

    url: str
    ours: bool


def target(api: HttpConnectionSettings, here: str, link: str, what: str) -> LinkTarget:
    """Return where ``link`` leads; a relative link counts from ``here``.

    Raises `SourceError`, beginning with ``what``, if that URL may not be requested.
    """
    try:
        url = httpx.URL(here).join(link.strip()).copy_with(fragment=None)
        is_own = _origin(api.base_url) == (origin := _origin(str(url)))
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise SourceError(f"{what}: the link to the next page is not a URL") from None
    scheme, host, port = origin
    name = shortened(printable(f"{host}:{port}"), 200)
    if scheme not in _PORTS:
        raise SourceError(f"{what}: leads to another scheme than http and https")
    if url.userinfo:
        raise SourceError(f"{what}: leads to {name} with a user and a password in the URL")
    if is_own:
        return LinkTarget(str(url), ours=True)
    if scheme == "http" and _origin(api.base_url)[0] == "https":
        raise SourceError(f"{what}: leads from https to http at {name}")
    if not any(_allows(entry, scheme, host, port) for entry in api.advanced.allowed_hosts):
        raise SourceError(
            f"{what}: leads to another host, {name}; if that is right, add it to"
            " advanced.allowed_hosts of the connection (credentials are never sent there)"
        )
    return LinkTarget(str(url), ours=False)


def _origin(url: str) -> tuple[str, str, int]:
    parsed = httpx.URL(url)
    port = _PORTS.get(parsed.scheme, 0) if parsed.port is None else parsed.port
    return parsed.scheme, parsed.host, port


def _allows(entry: str, scheme: str, host: str, port: int) -> bool:
    return _origin(f"{scheme}://{entry}")[1:] == (host, port)

"""The parts of a database URI, so that no driver quotes parts of a password it misread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from blizzard_core.errors import ConfigError
from blizzard_py.connections.sql.errors import ServerLabel
from blizzard_py.reading import Access


@dataclass(frozen=True)
class Address:
    """A server's address and user. ``hosts`` are pairs of name and port; a port may be ``""``."""

    scheme: str
    hosts: tuple[tuple[str, str], ...]
    database: str
    user: str
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)

    @property
    def label(self) -> ServerLabel:
        """The address as people may see it."""
        hosts = ",".join(host + (f":{port}" if port else "") for host, port in self.hosts)
        return ServerLabel(f"{self.scheme}://{hosts}/{self.database}", (self.password,))


def address(access: Access) -> Address:
    """Return the parts of ``access.uri``; the options ``user`` and ``password`` take precedence.

    A password may contain any character unescaped, unless the URI has an ``@`` or a slash after the
    host too. Raises `ConfigError`, which quotes nothing of the URI.
    """
    scheme, separator, rest = access.uri.partition("://")
    if not separator or not scheme.isidentifier():
        raise ConfigError("uri", [f"must begin like {access.driver}://host:5432/database"])
    credentials, _, location = rest.rpartition("@")
    location, _, query = location.partition("?")
    servers, _, database = location.partition("/")
    user, _, password = credentials.partition(":")
    options = _texts(access.options)
    settings = dict(parse_qsl(query, keep_blank_values=True))
    return Address(
        scheme,
        tuple(_host(server) for server in servers.split(",")),
        unquote(database),
        options.get("user") or settings.pop("user", "") or unquote(user),
        options.get("password") or settings.pop("password", "") or unquote(password),
        settings,
    )


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def _host(server: str) -> tuple[str, str]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):  # an IPv6 address has colons of its own
        host, port = server, ""
    if port and not port.isdecimal():
        raise ConfigError("uri", ["the port is no number; write % and @ in a password as %25, %40"])
    return unquote(host.strip("[]")), port

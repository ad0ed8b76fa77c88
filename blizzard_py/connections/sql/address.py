"""A database's URI taken apart, so that no driver quotes a piece of a password it misread."""

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
    """A server's place and the user. ``hosts`` are pairs of name and port, maybe ``""``."""

    scheme: str
    hosts: tuple[tuple[str, str], ...]
    database: str
    user: str
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)

    @property
    def label(self) -> ServerLabel:
        """Return what people may see of it."""
        hosts = ",".join(host + (f":{port}" if port else "") for host, port in self.hosts)
        return ServerLabel(f"{self.scheme}://{hosts}/{self.database}", (self.password,))


def address(access: Access) -> Address:
    """The parts of ``access.uri``; its options ``user`` and ``password`` come before the URI's.

    A password may hold any character as it is, except in a URI that has an ``@`` or a slash
    behind the host, too. Raises `ConfigError`, which quotes nothing of the URI.
    """
    scheme, separator, rest = access.uri.partition("://")
    if not separator or not scheme.isidentifier():
        raise ConfigError("uri", [f"it has to begin like {access.driver}://host:5432/database"])
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
        raise ConfigError("uri", ["the port is no number; % and @ in a password stand as %25, %40"])
    return unquote(host.strip("[]")), port

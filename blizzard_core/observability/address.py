"""Addresses of web servers, as ``host:port``; an IPv6 address stands in brackets."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import NamedTuple

from blizzard_core.errors import ConfigError

# To listen on every address is to be reached at this one.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # compared with


class WebAddress(NamedTuple):
    """A host, without brackets, and a port; 0 is any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> WebAddress:
        """Return the address that a text names. Raises `ConfigError`."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or (bare == host and ":" in host) or not (port.isascii() and port.isdecimal()):
            what = f"{text!r} is no address; give host and port: 127.0.0.1:9090, or [::]:9090"
            raise ConfigError("metrics", [what])
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> WebAddress:
        """Return where this machine reaches a server that listens here."""
        return self._replace(host=_EVERYWHERE.get(self.host, self.host))

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine reaches it; as far as the address itself says."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def listen(self, backlog: int | None = None) -> socket.socket:
        """Return a socket that listens here; on ``[::]`` for IPv4 as well. Raises `OSError`."""
        if ":" not in self.host:
            return socket.create_server(tuple(self), backlog=backlog)
        both = self.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(
            tuple(self), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=both
        )

"""The late import of the HTTP library: an installation without APIs does not need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blizzard_core.extras import optional_module
from blizzard_py.connections.http.calls import Call
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.retry import Time

if TYPE_CHECKING:
    from blizzard_py.connections.http.client import Client
    from blizzard_py.connections.http.walk import LoadedPage


def open_client(source: HttpSource, time: Time) -> Client:
    """Return a client for the API.

    Raises `ConfigError` if the extra `[http]` is not installed.
    """
    optional_module("httpx", "http")
    from blizzard_py.connections.http.client import Client  # noqa: PLC0415  # imports httpx

    return Client(source.api, source.request, time)


def iterate_pages(client: Client, source: HttpSource, first: Call) -> Iterator[LoadedPage]:
    """Return the pages as `walk.walk` does."""
    from blizzard_py.connections.http.walk import walk  # noqa: PLC0415  # imports httpx

    return walk(client, source, first)

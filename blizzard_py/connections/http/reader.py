"""The reader of an API's tasks in a Spark worker: page after page, as NDJSON lines.

The HTTP library is imported late: an installation without APIs does not need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from blizzard_core.extras import optional_module
from blizzard_py.connections.http.calls import Call, first_call
from blizzard_py.connections.http.model import HttpSource, unpacked
from blizzard_py.connections.http.record_filter import record_filter
from blizzard_py.connections.http.retry import Time
from blizzard_py.connections.protocol import Reader
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

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


# Names in an `Access`.
DRIVER = "http"
_SOURCE = "source"


def access(source: HttpSource) -> Access:
    """Return what tasks need: the whole configuration, including credentials."""
    return Access(DRIVER, source.api.base_url, {_SOURCE: source})


@dataclass(frozen=True, slots=True)
class HttpReader:
    """A `protocol.Reader` of tasks that `ApiConnection` planned. Errors as in `walk`.

    ``fields`` are not requested: an API returns all it has, and the line parser takes the declared
    fields. They only say how the watermark's column states times.
    """

    time: Time = field(default_factory=Time)

    def __call__(
        self, access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
    ) -> Iterator[bytes]:
        source: HttpSource = access.options[_SOURCE]
        if "request" in spec:
            source = replace(source, request=unpacked(source.request, spec["request"]))
        is_wanted = record_filter(spec.get("cut", {}), source.column, fields)
        with closing(open_client(source, self.time)) as client:
            for turned in iterate_pages(client, source, first_call(source, spec["window"])):
                yield from turned.lines(is_wanted(turned.records))


read: Reader = HttpReader()

"""The reader of an API's tasks in a Spark worker: page after page, as NDJSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from blizzard_py.connections.http.calls import first_call
from blizzard_py.connections.http.lazy_client import iterate_pages, open_client
from blizzard_py.connections.http.model import HttpSource, unpacked, with_request
from blizzard_py.connections.http.record_filter import record_filter
from blizzard_py.connections.http.retry import Time
from blizzard_py.connections.protocol import Reader
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

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
            source = with_request(source, unpacked(source.request, spec["request"]))
        is_wanted = record_filter(spec.get("cut", {}), source.column, fields)
        with closing(open_client(source, self.time)) as client:
            for turned in iterate_pages(client, source, first_call(source, spec["window"])):
                yield from turned.lines(is_wanted(turned.records))


read: Reader = HttpReader()

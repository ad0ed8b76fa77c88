"""The planning side of an API: read bounds and the requests of a window."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import ConfigError, SourceError
from blizzard_py.connections.http.calls import Value, first_call, line, shown, with_first_page
from blizzard_py.connections.http.checks import problems
from blizzard_py.connections.http.model import HttpSource, filled, packed, tick
from blizzard_py.connections.http.reader import iterate_pages, open_client
from blizzard_py.connections.http.retry import Time
from blizzard_py.connections.http.windows import RequestRange, lowered, pieces
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import (
    ColumnKind,
    ReadBound,
    ReadSelection,
    SourceColumn,
    SourceConnection,
    WindowSplit,
)
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, ReadTask, Window
from blizzard_py.schema.inference import Inference, Rules

if TYPE_CHECKING:
    from blizzard_py.connections.http.client import Client

# Columns are inferred from so many records of the first page.
_SAMPLE = 1000
_KINDS: dict[str, ColumnKind] = {
    "timestamp": "time",
    "date": "date",
    "int64": "number",
    "float64": "number",
    "decimal": "number",
    "string": "text",
}
# The sample window ends so far in the past, as any window does.
_SAMPLE_AGE_SECS = 60.0
# Length of the window for the request of the server's time: APIs refuse an empty window.
_INSTANT_SECS = 1.0
# A larger difference between the clocks is reported. A server's clock further ahead is not used.
_CLOCKS_APART_SECS = 300.0


class ApiConnection(SourceConnection):
    """One API. It has no snapshots: what changes between two attempts gives another reading.

    ``column`` is the declared field of the watermark, if the source has one. Raises `ConfigError`
    if the configuration contradicts itself.
    """

    def __init__(
        self, source: HttpSource, column: FieldSpec | None = None, time: Time | None = None
    ) -> None:
        found = problems(source)
        if found:
            raise ConfigError(f"the API at {source.api.base_url.partition('?')[0]}", found)
        # With the placeholders of work units, if any.
        self._template = source
        self._source = source
        self._is_date = column is not None and column.type == "date"
        self._time = time or Time()
        self._client: Client | None = None

    @property
    def default_bound(self) -> BoundKind | None:
        """The server's clock: rows get their times there, and an API offers nothing better."""
        return "clock"

    def columns(self) -> Sequence[SourceColumn]:
        """Return the fields of the first page's records. An API may have more: it declares none.

        The request is that of a first window; for a split window, that of its newest range.
        """
        pages = self._source.pages
        anyhow = pages.advanced.model_copy(update={"total": None})
        source = replace(self._source, pages=pages.model_copy(update={"advanced": anyhow}))
        up_to = self._as_value(self._time.wall() - _SAMPLE_AGE_SECS)
        newest = [RequestRange(), *pieces(source, Window(up_to={source.column: up_to}))][-1]
        inference = Inference(Rules(timestamps=True))
        for turned in islice(
            iterate_pages(self._opened(), source, first_call(source, newest.sent)), 1
        ):
            for text in islice(turned.page_lines(), _SAMPLE):
                inference.add(text, "the first page")
        return [
            SourceColumn(field.name, field.type, _KINDS.get(field.type, "other"), field)
            for field in inference.result().fields
        ]

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the server's time (``Date`` of its answers) less ``settle_secs``.

        The value is in whole seconds, lowered to what ``push.to`` can express. Without ``push.to``
        it is a microsecond less: no row has such a time, so it does not matter whether the API
        includes the next window's start. For dates it is yesterday, since today's rows are not
        complete. If no answer of the last minutes has a time, this sends the configured request for
        a window of one instant: an API need not support any other request.
        """
        if not self._source.column:
            return ReadBound(kind)
        server_time = self._server_time()
        local_time = self._time.wall()
        # A clock far ahead may be a wrong proxy's. A bound that is too low only delays rows.
        trusted = (
            local_time
            if server_time is None or server_time - local_time > _CLOCKS_APART_SECS
            else server_time
        )
        value = self._as_value(trusted - settle_secs)
        return ReadBound(
            kind, {self._source.column: value}, None, self._doubts(local_time, server_time)
        )

    def _server_time(self) -> float | None:
        source, now = self._source, self._time.wall()
        low, up_to = self._as_value(now - _INSTANT_SECS), self._as_value(now)
        window = Window({}, {source.column: up_to}, {source.column: low})
        [instant] = pieces(source, window, is_split=False)
        call = with_first_page(source.pages, first_call(source, instant.sent))
        return self._opened().server_time(call, call.address)

    def _as_value(self, moment: float) -> Any:
        """Return a time as the watermark column has it, lowered to what ``push.to`` can express."""
        end = self._source.push.to if self._source.push else None
        value = lowered(dt.datetime.fromtimestamp(int(moment), dt.UTC), end)
        if end is None:
            if self._is_date:
                value = value.replace(hour=0, minute=0, second=0)
            value -= dt.timedelta(microseconds=1)
        return value.date() if self._is_date else value

    def _doubts(self, local_time: float, server_time: float | None) -> tuple[str, ...]:
        found = []
        if server_time is None:
            found.append("the server sends no time (Date): this machine's clock is used")
        elif abs(server_time - local_time) > _CLOCKS_APART_SECS:
            used = "this machine's" if server_time > local_time else "the server's"
            ahead = f"{server_time - local_time:+.0f} s"
            found.append(f"the server's clock is {ahead} from this machine's; {used} is used")
        return (*found, *self.warnings())

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return one request, or one for each range of ``source.split``; ``split`` is for tables.

        A single request that is not the very first is tested before: its pages are read until one
        record is found. If there is none, there is no task, and the next window is longer.
        """
        del split
        source = self._source
        found = pieces(source, window)
        if len(found) == 1 and window.after and self._is_certainly_empty(found[0].sent):
            return ()
        return [
            ReadTask(
                str(number),
                line(_first_request(source, piece.sent)),
                {"window": dict(piece.sent), "cut": dict(piece.cut)},
            )
            for number, piece in enumerate(found)
        ]

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return a request for each unit. Nothing is sent yet."""
        return [self._unit_task(values) for values in units]

    def _unit_task(self, values: Values) -> ReadTask | SourceError:
        try:
            self._source = _filled(self._template, values)
        except SourceError as error:
            return error
        description = line(_first_request(self._source, {}))
        spec = {"window": {}, "cut": {}, "request": packed(self._source.request)}
        return ReadTask("0", description, spec)

    def unit_request(self, values: Values) -> dict[str, Any]:
        """Return the first request of a work unit's slice, for `plan`, as `requests` does."""
        return _first_request(_filled(self._template, values), {})

    def requests(self, window: Window) -> Sequence[dict[str, Any]]:
        """Return each task's first request, for `plan`: method, URL, params, body; no secrets."""
        source = self._source
        return [_first_request(source, piece.sent) for piece in pieces(source, window)]

    def _is_certainly_empty(self, values: Any) -> bool:
        call = first_call(self._source, values)
        pages = iterate_pages(self._opened(), self._source, call)
        return not any(turned.page.records for turned in pages)

    def warnings(self) -> Sequence[str]:
        """Return what the configuration cannot guarantee."""
        push, found = self._source.push, []
        if push is not None and push.to is None:
            found.append(
                f"without push.to the API sends rows above a window's end; those that are"
                f" above it by '{self._source.column}' are left to the next window, others"
                " may be read twice"
            )
        if push is not None and push.to is not None and tick(push.from_) > tick(push.to):
            found.append(
                f"push.from is sent as '{push.from_.format}', coarser than push.to: rows"
                f" before a window's start by '{self._source.column}' are left out, others"
                " may be read twice"
            )
        return found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> Client:
        if self._client is None:
            self._client = open_client(self._source, self._time)
        return self._client


def _filled(template: HttpSource, values: Values) -> HttpSource:
    """Return a work unit's source. Raises `SourceError` as `filled` does."""
    return replace(template, request=filled(template.request, values))


def _first_request(source: HttpSource, sent: Mapping[str, Value]) -> dict[str, Any]:
    """Return the first request of a window to show to people."""
    return shown(with_first_page(source.pages, first_call(source, sent)), source)


def connect(access: Access, selection: ReadSelection) -> SourceConnection:
    """Return the connection of a source that `reader.access` has packed (`connections.drivers`)."""
    source: HttpSource = access.options["source"]
    column = next((field for field in selection.fields if field.name == source.column), None)
    return ApiConnection(source, column)

"""Every request has the shape that is configured, whoever makes it: an API need not know another.

The server refuses what its documentation does not name: other methods, other page sizes, other
parameters, a window without an end, and parameters in another order.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.errors import AccessDenied, Unavailable
from blizzard_core.settings.http_sources import RangeSettings
from blizzard_py.connections.http.connection import ApiConnection
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.reader import HttpReader, access
from blizzard_py.connections.protocol import WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.blizzard_py.connections.http.world import (
    NOW,
    FakeTime,
    bearer,
    end_as,
    made,
    marked,
    paging,
    push_as,
    request_to,
    split_from,
    start_as,
)
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, reply

SIZES = range(10, 101)
ROWS = [{"id": n, "at": f"2026-01-01T00:00:{n:02}+00:00"} for n in range(25)]


class Strict:
    """Answers what it documents, and resets the connection of any other method than one."""

    def __init__(self, api: ApiServer, method: str = "GET") -> None:
        self.refused: list[ReceivedRequest] = []
        self._method = method
        api.answer = self.answer
        api.date = lambda: NOW

    def answer(self, asked: ReceivedRequest) -> Reply:
        given = {**asked.params, **(asked.json if asked.body else {})}
        names = [name for name in given if name != "token"]
        known = [["state", "end_time", "max_results"]]
        known += [["state", "start_time", "end_time", "max_results"]]
        is_known = names in known and int(given["max_results"]) in SIZES
        if asked.method != self._method or not is_known:
            self.refused.append(asked)
            return Reply(how="reset") if asked.method != self._method else reply({}, 400)
        start, end = given.get("start_time", ""), given["end_time"]
        rows = [row for row in ROWS if start <= row["at"] < end]
        begin = int(given.get("token", 0))
        after = begin + int(given["max_results"])
        meta = {"next": str(after)} if after < len(rows) else {}
        return reply({"data": rows[begin:after], "meta": meta})


def strict(url: str, method: str, split: RangeSettings | None = None) -> HttpSource:
    body = {"state": "all"} if method == "POST" else None
    params = {} if body else {"state": "all"}
    place: Any = "body" if body else "params"
    request = request_to("search", params=params, body=body)
    push = push_as(start_as("start_time"), end_as("end_time"), place)
    following, size = "meta.next", "max_results"
    pages = paging("cursor", "token", 10, place, limit_param=size, following=following)
    mark = marked("at", push, split)
    return made(url, "data", pages, request=request, watermark=mark)


@contextmanager
def opened(source: HttpSource, clock: FakeTime, kind: Any = "timestamp") -> Iterator[Any]:
    column = FieldSpec("at", kind, nullable=True)
    with closing(ApiConnection(source, column, clock.time)) as connection:
        yield connection


@pytest.mark.promise("G-148")
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("split", [None, split_from("2025-12-31", "month")])
def test_every_request_is_as_configured(
    api: ApiServer, clock: FakeTime, method: str, split: RangeSettings | None
) -> None:
    server = Strict(api, method)
    source = strict(api.url, method, split=split)
    found: list[bytes] = []
    with opened(source, clock) as connection:
        assert split or [column.name for column in connection.columns()] == ["id", "at"]
        low: dict[str, Any] = {}
        for _ in range(2):
            up_to = connection.bound("clock", 60).value
            window = Window(low, up_to, low)
            for task in connection.tasks(window, WindowSplit()):
                pieces = HttpReader(clock.time)(access(source), task.spec, ())
                found += [line for piece in pieces for line in piece.splitlines()]
            low, clock.now = up_to, clock.now + 60
    assert len(found) == len(ROWS)
    assert server.refused == []


def test_an_answer_tells_the_time_of_the_next_poll(api: ApiServer, clock: FakeTime) -> None:
    Strict(api)
    source = strict(api.url, "GET")
    with opened(source, clock) as connection:
        for poll in range(3):
            up_to = connection.bound("clock", 60).value
            assert up_to["at"].timestamp() == NOW + 60 * poll - 60
            assert connection.tasks(Window(up_to, up_to, up_to), WindowSplit()) == ()
            clock.now += 60
            api.date = lambda: clock.now
    assert len(api.asked) == 1 + 3  # only the first poll asks for the time


def test_server_time_is_requested_again_after_five_minutes(api: ApiServer, clock: FakeTime) -> None:
    Strict(api)
    with opened(strict(api.url, "GET"), clock) as connection:
        connection.bound("clock", 0)
        clock.now += 290
        connection.bound("clock", 0)
        assert len(api.asked) == 1
        clock.now += 20
        connection.bound("clock", 0)
    assert len(api.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 429, 503])
def test_any_answer_tells_the_time(api: ApiServer, clock: FakeTime, status: int) -> None:
    api.date = lambda: NOW - 100
    api.script(reply({}, status))
    with opened(strict(api.url, "GET"), clock) as connection:
        assert connection.bound("clock", 0).value["at"].timestamp() == NOW - 100
    assert len(api.asked) == 1


def test_requests_send_dates_for_a_date_column(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"data": []}))
    with opened(strict(api.url, "GET"), clock, "date") as connection:
        connection.bound("clock", 0)
        connection.columns()
    assert {asked.params["end_time"] for asked in api.asked} == {"2026-09-21"}


def test_columns_sends_a_request_for_future_ranges(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"data": [{"id": 1}]}))
    source = strict(api.url, "GET", split=split_from("2099-01-01"))
    with opened(source, clock) as connection:
        assert [column.name for column in connection.columns()] == ["id"]


def test_refused_credentials_do_not_hide_as_an_empty_window(
    api: ApiServer, clock: FakeTime
) -> None:
    api.script(reply({}, 401))
    source = replace(strict(api.url, "GET"), api=made(api.url, auth=bearer("hush-hush")).api)
    with opened(source, clock) as connection:
        up_to = connection.bound("clock", 0).value
        with pytest.raises(AccessDenied):
            connection.tasks(Window(up_to, up_to, up_to), WindowSplit())


def test_a_server_that_breaks_every_request_is_unavailable(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(how="reset"))
    with opened(strict(api.url, "GET"), clock) as connection, pytest.raises(Unavailable):
        connection.bound("clock", 0)


def test_empty_pages_before_the_first_record_are_passed(api: ApiServer, clock: FakeTime) -> None:
    pages = [reply({"data": [], "meta": {"next": str(n)}}) for n in range(1, 4)]
    api.script(*pages, reply({"data": [{"id": 1}], "meta": {"next": "4"}}), reply({}, 500))
    with opened(strict(api.url, "GET"), clock) as connection:
        up_to = {"at": dt.datetime.fromtimestamp(NOW, dt.UTC)}
        assert len(connection.tasks(Window(up_to, up_to, up_to), WindowSplit())) == 1
    assert len(api.asked) == 4

"""The driver's side: bounds by the server's clock, tasks that show no secret, empty windows."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Any

import pytest

from blizzard_core.errors import ConfigError, Unavailable
from blizzard_core.settings.http_sources import PushEnd, PushSettings
from blizzard_py.connections.http.connection import ApiConnection, connect
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.reader import HttpReader, access
from blizzard_py.connections.protocol import ReadBound, ReadSelection, WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.blizzard_py.connections.http.world import (
    NOW,
    FakeTime,
    api_key,
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
from tests.support.api_server import ApiServer, Reply, reply, shop

UTC = dt.UTC
SERVER = 1_790_000_100.0
PUSH = push_as(start_as("since"), end_as("until"))
ORDERS = [
    {"id": n, "updated_at": f"2026-01-{1 + n // 4:02}T{n % 4 * 6:02}:00:00+00:00"}
    for n in range(20)
]


def pushed(url: str, push: PushSettings = PUSH, **more: Any) -> HttpSource:
    mark = marked("updated_at", push, more.pop("split", None))
    return made(url, "items", **{"request": request_to("none"), "watermark": mark, **more})


def at(day: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 1, day, hour, tzinfo=UTC)


def window(low: dt.datetime | None, up_to: dt.datetime) -> Window:
    lower = {} if low is None else {"updated_at": low}
    return Window(lower, {"updated_at": up_to}, lower)


Connect = Callable[..., ApiConnection]


@pytest.fixture
def connected(clock: FakeTime) -> Iterator[Connect]:
    """Makes connections, and lets go of their servers in the end."""
    with ExitStack() as open_ones:

        def connect(source: HttpSource, **more: Any) -> ApiConnection:
            return open_ones.enter_context(closing(ApiConnection(source, time=clock.time, **more)))

        yield connect


@pytest.mark.parametrize("status", [200, 401, 404, 405, 302])
def test_the_bound_is_the_servers_now_less_what_settles(
    api: ApiServer, connected: Connect, status: int
) -> None:
    api.date = lambda: SERVER
    api.answer = lambda _asked: Reply(status=status)
    source = pushed(api.url, auth=bearer("hush-hush"), headers={"X-Key": "hush-hush"})
    found = connected(source).bound("clock", 60)
    value = dt.datetime.fromtimestamp(SERVER - 60, UTC)
    assert found == ReadBound("clock", {"updated_at": value})
    assert [asked.method for asked in api.asked] == ["GET"]


@pytest.mark.parametrize(
    ("end", "lowered"),
    [
        (end_as("until", "date"), "2026-09-21T00:00:00+00:00"),
        (end_as("until", "iso", "1day"), "2026-09-21T00:00:00+00:00"),
        (end_as("until", "datetime"), "2026-09-21T14:12:39+00:00"),
        (None, "2026-09-21T14:12:38.999999+00:00"),
    ],
)
def test_bound_is_lowered_to_the_precision_of_the_api(
    api: ApiServer, connected: Connect, end: PushEnd | None, lowered: str
) -> None:
    api.date = lambda: NOW
    source = pushed(api.url, push_as(start_as("since"), end))
    value = connected(source).bound("clock", 40.5).value["updated_at"]
    assert value.isoformat() == lowered


def test_the_bound_of_a_date_column_is_a_date(api: ApiServer, connected: Connect) -> None:
    api.date = lambda: NOW
    column = FieldSpec("updated_at", "date", nullable=True)
    today = dt.datetime.fromtimestamp(NOW, UTC).date()
    found = connected(pushed(api.url), column=column).bound("clock", 0)
    assert found.value == {"updated_at": today}
    without = pushed(api.url, push_as(start_as("since")))
    found = connected(without, column=column).bound("clock", 0)
    assert found.value == {"updated_at": today - dt.timedelta(days=1)}


def test_bound_warns_when_the_server_sends_no_time(api: ApiServer, connected: Connect) -> None:
    api.date = None
    found = connected(pushed(api.url)).bound("clock", 0)
    assert found.value == {"updated_at": dt.datetime.fromtimestamp(NOW, UTC)}
    assert "sends no time" in found.warnings[0]


@pytest.mark.parametrize(
    ("apart", "used", "told"),
    [
        (4000, 0, "+4000 s from this machine's; this machine's is used"),
        (-4000, -4000, "-4000 s from this machine's; the server's is used"),
        (200, 200, ""),
    ],
)
def test_of_clocks_that_differ_much_the_lower_one_is_used(
    api: ApiServer, connected: Connect, apart: int, used: int, told: str
) -> None:
    api.date = lambda: NOW + apart
    found = connected(pushed(api.url)).bound("clock", 0)
    assert found.value == {"updated_at": dt.datetime.fromtimestamp(NOW + used, UTC)}
    assert "".join(found.warnings).endswith(told)
    assert bool(found.warnings) is bool(told)


def test_unreachable_server_raises_unavailable(connected: Connect) -> None:
    with pytest.raises(Unavailable):
        connected(pushed("http://127.0.0.1:9")).bound("clock", 0)


def test_bound_sends_no_request_without_a_watermark(api: ApiServer, connected: Connect) -> None:
    assert connected(made(api.url)).bound("clock", 60) == ReadBound("clock")
    assert api.asked == []


def test_the_bound_of_an_api_is_the_clock(connected: Connect) -> None:
    assert connected(pushed("https://h")).default_bound == "clock"


def test_a_missing_end_or_a_coarse_start_gives_a_warning(connected: Connect) -> None:
    assert connected(pushed("https://h")).warnings() == []
    open_end = connected(pushed("https://h", push_as(start_as("since"))))
    assert "without push.to" in open_end.warnings()[0]
    coarse = push_as(start_as("since", "date"), end_as("until"))
    assert "coarser" in connected(pushed("https://h", coarse)).warnings()[0]


def test_a_task_tells_its_request_without_secrets(api: ApiServer, connected: Connect) -> None:
    source = pushed(
        api.url,
        auth=api_key("key", "hush-hush", "query"),
        request=request_to("orders", params={"state": "all", "access_token": "hush-hush"}),
        pages=paging("offset", "offset", 500, limit_param="limit"),
        headers={"X": "hush-hush"},
    )
    (task,) = connected(source).tasks(window(None, at(3)), WindowSplit())
    assert task.where == (
        f"GET {api.url}/orders?state=all&access_token=***"
        "&until=2026-01-03T00:00:00%2B00:00&limit=500&offset=0"
    )
    assert task.spec == {"window": {"until": "2026-01-03T00:00:00+00:00"}, "cut": {}}
    assert "hush-hush" not in repr(task)
    assert json.loads(json.dumps(task.spec)) == task.spec
    assert api.asked == []


def test_requests_are_shown_for_plans(connected: Connect) -> None:
    source = pushed(
        "https://h",
        push_as(start_as("f.since"), end_as("f.until"), "body"),
        request=request_to("a", body={"f": {"x": 1}}),
    )
    assert connected(source).requests(window(at(1), at(2))) == [
        {
            "method": "POST",
            "url": "https://h/a",
            "params": {},
            "body": {
                "f": {
                    "x": 1,
                    "since": "2026-01-01T00:00:00+00:00",
                    "until": "2026-01-02T00:00:00+00:00",
                }
            },
            "headers": {},
        }
    ]


@pytest.mark.promise("G-146")
def test_windows_and_ranges_read_every_order_once(
    api: ApiServer, connected: Connect, clock: FakeTime
) -> None:
    api.answer = shop(ORDERS)
    source = pushed(
        api.url,
        request=request_to("cursor"),
        pages=paging("cursor", "cursor", 2, limit_param="limit", following="meta.next"),
        split=split_from("2026-01-01"),
    )
    connection, found = connected(source), []
    given = access(source)
    edges = [None, at(2, 12), at(2, 18), at(5), at(9)]
    for low, up_to in pairwise(edges):
        assert up_to is not None
        tasks = connection.tasks(window(low, up_to), WindowSplit())
        assert [task.name for task in tasks] == [str(n) for n in range(len(tasks))]
        with connection.hold(given) as held:
            for task in tasks:
                spec = json.loads(json.dumps(task.spec))
                for piece in HttpReader(clock.time)(held, spec, ()):
                    found += [json.loads(line)["id"] for line in piece.splitlines()]
    assert found == [order["id"] for order in ORDERS]


def test_an_empty_window_has_no_task(api: ApiServer, connected: Connect) -> None:
    api.answer = shop(ORDERS)
    connection = connected(
        pushed(
            api.url,
            request=request_to("cursor"),
            pages=paging("cursor", "cursor", 500, limit_param="limit", following="meta.next"),
        ),
    )
    assert connection.tasks(window(at(20), at(21)), WindowSplit()) == ()
    assert [asked.params["limit"] for asked in api.asked] == ["500"]
    assert len(connection.tasks(window(at(2), at(3)), WindowSplit())) == 1


def test_a_window_with_one_page_of_records_has_a_task(api: ApiServer, connected: Connect) -> None:
    api.answer = shop(ORDERS)
    connection = connected(pushed(api.url))
    assert len(connection.tasks(window(at(2), at(3)), WindowSplit())) == 1
    assert connection.tasks(window(at(20), at(21)), WindowSplit()) == ()


def test_an_empty_page_before_others_is_no_empty_window(api: ApiServer, connected: Connect) -> None:
    api.script(
        reply({"items": [], "meta": {"next": "2"}}),
        reply({"items": [1], "meta": {"next": "3"}}),
    )
    source = pushed(api.url, pages=paging("cursor", "c", following="meta.next"))
    assert len(connected(source).tasks(window(at(2), at(3)), WindowSplit())) == 1


def test_first_window_is_planned_without_a_request(api: ApiServer, connected: Connect) -> None:
    assert len(connected(pushed(api.url)).tasks(window(None, at(3)), WindowSplit())) == 1
    assert api.asked == []


def test_columns_are_those_of_a_first_page(api: ApiServer, connected: Connect) -> None:
    row = {"id": 1, "at": "2026-01-01T00:00:00Z", "amount": 1.5, "who": {"name": "x"}, "s": "t"}
    api.script(reply({"items": [row, {"id": 2, "more": True}]}))
    found = connected(pushed(api.url)).columns()
    assert [(c.name, c.type, c.kind) for c in found] == [
        ("id", "int64", "number"),
        ("at", "timestamp", "time"),
        ("amount", "float64", "number"),
        ("who", "struct", "other"),
        ("s", "string", "text"),
        ("more", "boolean", "other"),
    ]
    assert len(api.asked) == 1


def test_missing_driver_error_shows_the_install_command(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"pip install 'blizzard-penguin\[http\]'"):
        connected(pushed("https://h")).bound("clock", 0)


def test_a_connection_is_made_of_what_travels() -> None:
    day = FieldSpec("updated_at", "date", nullable=True)
    made_of = access(pushed("https://h"))
    connection = connect(made_of, ReadSelection(fields=(day,), columns=("updated_at",)))
    assert isinstance(connection, ApiConnection)

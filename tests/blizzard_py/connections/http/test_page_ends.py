"""``pages.end_on``: APIs that always name a next page say their end by a page, and only so."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from blizzard_core.errors import SourceError
from blizzard_core.settings.http_sources import PagesSettings
from tests.blizzard_py.connections.http.world import FakeTime, made, paging, rows_of
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, reply
from tests.support.flat_settings import nested

SIZE = 3
Answer = Callable[[ReceivedRequest], Reply]


def page_of(rows: list[int], start: int) -> list[int]:
    return rows[start : start + SIZE]


def last_cursor_again(rows: list[int]) -> Answer:
    """The end's cursor is given for ever, with no records behind it."""

    def answer(asked: ReceivedRequest) -> Reply:
        found = page_of(rows, start := int(asked.params.get("cursor", 0)))
        return reply({"items": found, "next": str(start + len(found))})

    return answer


def last_page_again(rows: list[int]) -> Answer:
    """The last page names itself."""

    def answer(asked: ReceivedRequest) -> Reply:
        start = int(asked.params.get("cursor", 0))
        after = start + SIZE
        return reply({"items": page_of(rows, start), "next": after if after < len(rows) else start})

    return answer


def cursor_zero(rows: list[int]) -> Answer:
    """Behind the last page comes the first again."""

    def answer(asked: ReceivedRequest) -> Reply:
        start = int(asked.params.get("cursor", 0))
        after = start + SIZE
        return reply({"items": page_of(rows, start), "next": after if after < len(rows) else 0})

    return answer


def next_for_ever(rows: list[int]) -> Answer:
    """Empty pages, each with another ``rel=next``."""

    def answer(asked: ReceivedRequest) -> Reply:
        start = int(asked.params.get("cursor", 0))
        more = str(start + SIZE < len(rows)).lower()
        link = f'</rows?cursor={start + SIZE}>; rel="next"; results="{more}"'
        return reply({"items": page_of(rows, start)}, Link=link)

    return answer


def clamped(rows: list[int]) -> Answer:
    """A page number above the last one is taken for the last one."""

    def answer(asked: ReceivedRequest) -> Reply:
        last = max(1, -(-len(rows) // SIZE))
        return reply({"items": page_of(rows, (min(int(asked.params["p"]), last) - 1) * SIZE)})

    return answer


def cursor(*end_on: str, size: int | None = None) -> PagesSettings:
    return paging("cursor", "cursor", size, end_on=end_on, following="next")


@pytest.mark.promise("G-149")
@pytest.mark.parametrize("count", [0, 1, 2, 4, 6, 7])
@pytest.mark.parametrize(
    ("api_of", "pages"),
    [
        (last_cursor_again, cursor("repeat")),
        (last_cursor_again, cursor("empty")),
        (last_cursor_again, cursor("short", size=SIZE)),
        (last_cursor_again, cursor("repeat", "empty")),
        (last_page_again, cursor("repeat", size=SIZE)),
        (cursor_zero, cursor("repeat")),
        (cursor_zero, cursor("repeat", "empty", "short", size=SIZE)),
        (next_for_ever, paging("link_header", max=100, end_on=("empty",))),
        (next_for_ever, paging("link_header", size=SIZE, max=100, end_on=("short",))),
        (clamped, paging("page", "p", SIZE, end_on=("repeat",))),
        (clamped, paging("page", "p", SIZE, end_on=("repeat", "short"))),
    ],
)
def test_a_configured_end_gives_every_record_once(
    api: ApiServer,
    clock: FakeTime,
    api_of: Callable[[list[int]], Answer],
    pages: PagesSettings,
    count: int,
) -> None:
    rows = list(range(count))
    api.answer = api_of(rows)
    assert rows_of(made(api.url, "items", pages), clock) == rows


@pytest.mark.promise("G-149")
@pytest.mark.parametrize(
    ("api_of", "pages", "told"),
    [
        (last_cursor_again, cursor(), "set pages.advanced.end_on to repeat, empty or short"),
        (last_page_again, cursor("empty"), "set pages.advanced.end_on to repeat, empty or short"),
        (cursor_zero, cursor(), "set pages.advanced.end_on to repeat, empty or short"),
        (cursor_zero, cursor("empty"), "set pages.advanced.end_on to repeat, empty or short"),
        (
            next_for_ever,
            paging("link_header", max=9),
            "names a next page, set pages.advanced.end_on",
        ),
        (clamped, paging("page", "p", max=9), "names a next page, set pages.advanced.end_on"),
    ],
)
def test_an_end_that_is_not_configured_stops(
    api: ApiServer,
    clock: FakeTime,
    api_of: Callable[[list[int]], Answer],
    pages: PagesSettings,
    told: str,
) -> None:
    api.answer = api_of(list(range(7)))
    with pytest.raises(SourceError, match=told):
        rows_of(made(api.url, "items", pages), clock)


def test_one_cursor_for_all_pages_stops_and_is_no_end(api: ApiServer, clock: FakeTime) -> None:
    # As a scroll of a search engine: the cursor stays, the records are others.
    api.script(*[reply({"items": [n], "next": "scroll"}) for n in range(9)])
    with pytest.raises(SourceError, match=r"page 3: the same request .* has another answer"):
        rows_of(made(api.url, "items", cursor("repeat")), clock)


def test_equal_records_with_another_cursor_are_no_end(api: ApiServer, clock: FakeTime) -> None:
    pages = [reply({"items": [7], "next": following}) for following in ("a", "b", "c", "c")]
    api.script(*pages)
    assert rows_of(made(api.url, "items", cursor("repeat")), clock) == [7, 7, 7]


def test_the_same_cursor_with_other_records_is_no_end(api: ApiServer, clock: FakeTime) -> None:
    last = reply({"items": [3], "next": "b"})
    api.script(
        reply({"items": [1], "next": "a"}), reply({"items": [2], "next": "b"}), last, last, last
    )
    assert rows_of(made(api.url, "items", cursor("repeat")), clock) == [1, 2, 3]


@pytest.mark.promise("G-149")
@pytest.mark.parametrize(("kind", "param"), [("cursor", "crsr"), ("page", "pg"), ("offset", "of")])
def test_a_parameter_that_is_not_heeded_is_no_end(
    api: ApiServer, clock: FakeTime, kind: str, param: str
) -> None:
    # The first page again and again: to take that for the end would lose all others.
    api.script(reply({"items": [1, 2, 3], "next": "abc"}))
    pages = paging(
        kind, param, SIZE, end_on=("repeat",), following="next" if kind == "cursor" else None
    )
    with pytest.raises(SourceError, match=rf"page 2: .* ignored '{param}' \(pages.param\)"):
        rows_of(made(api.url, "items", pages), clock)


def test_a_stated_total_proves_that_one_page_is_all(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"items": [1, 2, 3], "next": "abc", "total": 3}))
    pages = paging("cursor", "c", total="total", end_on=("repeat",), following="next")
    assert rows_of(made(api.url, "items", pages), clock) == [1, 2, 3]


@pytest.mark.parametrize("sign", ["repeat", "empty", "short"])
def test_a_configured_end_before_the_total_fails(
    api: ApiServer, clock: FakeTime, sign: str
) -> None:
    second = {"repeat": [1, 2, 3], "empty": [], "short": [4]}[sign]
    first = reply({"items": [1, 2, 3], "next": "0", "total": 9})
    api.script(first, reply({"items": second, "next": "0", "total": 9}))
    pages = paging("cursor", "c", SIZE, total="total", end_on=(sign,), following="next")
    with pytest.raises(SourceError, match="of the 9 records came that the API states"):
        rows_of(made(api.url, "items", pages), clock)


def test_a_repeated_page_is_compared_by_its_bytes(api: ApiServer, clock: FakeTime) -> None:
    # Another order of keys, another number of digits: nothing says that these are the same rows.
    texts = ['{"a": 1, "b": NaN}', '{"b": NaN, "a": 1}', '{"a": 1.0, "b": NaN}']
    replies = [Reply(f'{{"items": [{text}], "next": "x{n}"}}'.encode()) for n, text in
               enumerate([*texts, texts[0]])]  # fmt: skip
    api.script(*replies[:3], Reply(f'{{"items": [{texts[2]}], "next": "x2"}}'.encode()))
    found = rows_of(made(api.url, "items", cursor("repeat")), clock)
    assert [json.dumps(row) for row in found] == texts


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "none", "end_on": ["empty"]}, "not used by kind none"),
        ({"kind": "page", "param": "p", "end_on": ["short"]}, "short needs size"),
        ({"kind": "page", "param": "p", "end_on": ["last"]}, "repeat"),
    ],
)
def test_an_end_that_cannot_be_seen_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        PagesSettings.model_validate(nested(PagesSettings, given))

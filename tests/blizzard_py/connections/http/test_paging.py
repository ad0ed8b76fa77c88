"""Every way of paging gives every record once, and what would lose or not end fails."""

from __future__ import annotations

import tracemalloc

import pytest

from blizzard_core.errors import SourceError, Unavailable
from blizzard_py.connections.http.reader import HttpReader, access
from tests.blizzard_py.connections.http.world import FakeTime, made, paging, request_to, rows_of
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, reply, shop

ORDERS = [{"id": n, "updated_at": f"2026-01-{n + 1:02}T00:00:00+00:00"} for n in range(7)]
CURSOR = paging("cursor", "cursor", following="meta.next")
KINDS = {
    "none": paging(),
    "offset": paging("offset", "offset", 500, limit_param="limit", total="meta.total"),
    "page": paging("page", "page", total="meta.total"),
    "cursor": paging(
        "cursor", "cursor", 2, limit_param="limit", total="meta.total", following="meta.next"
    ),
    "next_link": paging("next_link", total="meta.total", following="meta.next"),
    "link_header": paging("link_header", total="meta.total"),
}


@pytest.mark.promise("G-146")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 7])
def test_every_record_comes_once(api: ApiServer, clock: FakeTime, kind: str, count: int) -> None:
    # The server gives three at most, whatever it is asked for.
    api.answer = shop(ORDERS[:count])
    source = made(api.url, "items", KINDS[kind], request=request_to(kind))
    assert rows_of(source, clock) == ORDERS[:count]


@pytest.mark.parametrize("kind", ["offset", "page", "cursor"])
def test_page_parameters_go_into_the_request_body(
    api: ApiServer, clock: FakeTime, kind: str
) -> None:
    api.answer = shop(ORDERS)
    following = "meta.next" if kind == "cursor" else None
    pages = paging(kind, kind, 2, "body", limit_param="limit", following=following)
    source = made(api.url, "items", pages, request=request_to(kind, body={"a": {"b": 1}}))
    assert rows_of(source, clock) == ORDERS
    assert all(asked.json["limit"] == 2 and asked.params == {} for asked in api.asked)


def test_page_numbers_start_at_the_configured_first_page(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([{"id": 1}]), reply([{"id": 2}]), reply([]))
    assert len(rows_of(made(api.url, pages=paging("page", "p", first=0)), clock)) == 2
    assert [asked.params["p"] for asked in api.asked] == ["0", "1", "2"]


@pytest.mark.parametrize("end", [{}, {"meta": None}, {"meta": {}}, {"meta": {"next": None}},
                                 {"meta": {"next": ""}}])  # fmt: skip
def test_a_cursor_that_is_missing_null_or_empty_is_the_end(
    api: ApiServer, clock: FakeTime, end: dict[str, object]
) -> None:
    api.script(
        reply({"items": [1], "meta": {"next": "a+b &"}}),
        reply({"items": [2], "meta": {"next": 12345678901234567890}}),
        reply({"items": [3], **end}),
    )
    assert rows_of(made(api.url, "items", CURSOR), clock) == [1, 2, 3]
    assert [asked.params.get("cursor") for asked in api.asked] == [
        None, "a+b &", "12345678901234567890"
    ]  # fmt: skip


def test_an_empty_page_in_the_middle_is_not_the_end(api: ApiServer, clock: FakeTime) -> None:
    api.script(
        reply({"items": [], "meta": {"next": "2"}}), reply({"items": [1], "meta": {"next": None}})
    )
    assert rows_of(made(api.url, "items", CURSOR), clock) == [1]


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "a"), ("a", "b")],
)
def test_a_cursor_that_repeats_would_not_end(
    api: ApiServer, clock: FakeTime, first: str, second: str
) -> None:
    turns = [reply({"items": [1], "meta": {"next": c}}) for c in (first, second, first, second)]
    api.script(*turns)
    with pytest.raises(SourceError, match="the same request as for an earlier page"):
        rows_of(made(api.url, "items", CURSOR), clock)
    assert len(api.asked) <= 3


@pytest.mark.parametrize("link", ["", "#top", "?", "/rows"])
def test_a_link_to_the_page_itself_would_not_end(
    api: ApiServer, clock: FakeTime, link: str
) -> None:
    api.script(reply([1], Link=f'<{link}>; rel="next"'))
    with pytest.raises(SourceError, match=r"the same request|more than 3 pages"):
        rows_of(made(api.url, pages=paging("link_header", max=3)), clock)


def test_links_are_relative_to_their_page(api: ApiServer, clock: FakeTime) -> None:
    api.script(
        reply({"items": [1], "next": "b?x=%2F+a&x=2"}),
        reply({"items": [2], "next": "../c"}),
        reply({"items": [3], "next": f"{api.url}/v2/d?q=1#part"}),
        reply({"items": [4]}),
    )
    source = made(
        f"{api.url}/v1",
        "items",
        paging("next_link", following="next"),
        request=request_to("orders/a", params={"state": "all"}),
    )
    assert rows_of(source, clock) == [1, 2, 3, 4]
    assert [asked.path for asked in api.asked] == ["/v1/orders/a", "/v1/orders/b", "/v1/c", "/v2/d"]
    # A link has all of its parameters; ours are not added to them.
    assert [asked.params for asked in api.asked] == [{"state": "all"}, {"x": "2"}, {}, {"q": "1"}]


def test_other_links_of_the_header_are_passed_over(api: ApiServer, clock: FakeTime) -> None:
    links = '<?p=1>; rel="prev", <?p=3>; rel=NEXT; title="a, b", <?p=9>; rel="last"'
    api.script(reply([1], Link=links), reply([2], Link='<?p=1>; rel="prev"'))
    assert rows_of(made(api.url, pages=paging("link_header")), clock) == [1, 2]
    assert api.asked[1].params == {"p": "3"}


def test_more_pages_than_allowed_fail(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([1]))
    with pytest.raises(SourceError, match=r"page 4: there are more than 4 pages \(pages.adv"):
        rows_of(made(api.url, pages=paging("page", "p", max=4)), clock)
    assert len(api.asked) == 4


@pytest.mark.parametrize(("kind", "status"), [("page", 404), ("offset", 416), ("page", 400)])
def test_a_refusal_after_the_last_page_ends_complete_pages(
    api: ApiServer, clock: FakeTime, kind: str, status: int
) -> None:
    pages = paging(kind, "p", 2, total="n")
    refusal = reply({"detail": "Invalid page."}, status)
    two = [reply({"items": [1], "n": 2}), reply({"items": [2], "n": 2})]
    api.script(*two, refusal)
    assert rows_of(made(api.url, "items", pages), clock) == [1, 2]
    for replies, told in (([two[0]], pages), (two, paging(kind, "p", 2)), ([], pages)):
        api.script(*replies, refusal)
        with pytest.raises(SourceError, match=f"answered {status}"):
            rows_of(made(api.url, "items", told), clock)


def test_as_many_pages_as_allowed_are_read(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([1]), reply([1]), reply([1]), reply([]))
    assert rows_of(made(api.url, pages=paging("page", "p", max=4)), clock) == [1, 1, 1]


@pytest.mark.promise("G-152")
def test_fewer_records_than_stated_fail(api: ApiServer, clock: FakeTime) -> None:
    api.script(
        reply({"items": [1], "meta": {"next": "2", "total": 3}}),
        reply({"items": [2], "meta": {"total": 0}}),
    )
    pages = paging("cursor", "c", total="meta.total", following="meta.next")
    with pytest.raises(SourceError, match="only 2 of the 3 records came"):
        rows_of(made(api.url, "items", pages), clock)


def test_more_records_than_stated_are_all_read(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"items": [1], "n": 1}), reply({"items": [2], "n": 1}), reply({"items": []}))
    assert rows_of(made(api.url, "items", paging("page", "p", total="n")), clock) == [1, 2]


@pytest.mark.promise("G-151")
@pytest.mark.parametrize("kind", ["offset", "page"])
@pytest.mark.parametrize("later", [3, 5])
def test_records_that_move_between_pages_are_read_again(
    api: ApiServer, clock: FakeTime, kind: str, later: int
) -> None:
    # A record came at the front or one went: the second page begins with another record.
    pages = paging(kind, "p", 2, total="n")
    api.script(reply({"items": [4, 3], "n": 4}), reply({"items": [3, 2], "n": later}), reply([]))
    with pytest.raises(Unavailable, match=rf"page 2: the API states {later} records, but 4 on an"):
        rows_of(made(api.url, "items", pages), clock)
    last = reply({"items": [], "n": 0})  # said of the page, as some do
    api.script(reply({"items": [4, 3], "n": 4}), reply({"items": [2, 1], "n": 4}), last)
    assert rows_of(made(api.url, "items", pages), clock) == [4, 3, 2, 1]


def test_a_total_that_grows_is_read_on_with_a_cursor(api: ApiServer, clock: FakeTime) -> None:
    first = reply({"items": [1], "n": 1, "meta": {"next": "2"}})
    api.script(first, reply({"items": [2], "n": 2}))
    pages = paging("cursor", "c", total="n", following="meta.next")
    assert rows_of(made(api.url, "items", pages), clock) == [1, 2]


def test_a_cursor_in_a_list_of_records_is_no_end(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([{"id": 1}]))
    with pytest.raises(SourceError, match=r"page 1: the answer is a list, and has no 'meta'"):
        rows_of(made(api.url, pages=CURSOR), clock)


@pytest.mark.parametrize("stated", [None, "many", -1, 1.5, "", "9" * 400])
def test_a_total_that_is_no_number_fails(api: ApiServer, clock: FakeTime, stated: object) -> None:
    api.script(reply({"items": [], "n": stated}))
    with pytest.raises(SourceError, match=r"pages.advanced.total: 'n' is not a number"):
        rows_of(made(api.url, "items", paging(total="n")), clock)


def test_a_total_that_is_missing_names_what_there_is(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"items": [], "count": 1}))
    with pytest.raises(SourceError, match=r"pages.*total: there is no 'n'.*'items', 'count'"):
        rows_of(made(api.url, "items", paging(total="n")), clock)


def test_a_full_page_without_a_cursor_means_the_path_is_wrong(
    api: ApiServer, clock: FakeTime
) -> None:
    api.script(reply({"items": [1, 2], "meta": {"cursor": "x"}}))
    full = paging("cursor", "c", 2, limit_param="limit", following="meta.next")
    with pytest.raises(SourceError, match=r"pages.next: there is no 'next'.*'cursor'"):
        rows_of(made(api.url, "items", full), clock)


@pytest.mark.parametrize("odd", [True, [1], {"a": 1}])
def test_a_cursor_of_another_kind_fails(api: ApiServer, clock: FakeTime, odd: object) -> None:
    api.script(reply({"items": [1], "meta": {"next": odd}}))
    with pytest.raises(SourceError, match="where a text or a number is needed"):
        rows_of(made(api.url, "items", CURSOR), clock)


def test_reader_releases_a_page_before_the_next_request(api: ApiServer, clock: FakeTime) -> None:
    body = b'[{"a": "' + b"x" * 5_000_000 + b'"}]'
    held = []

    def answer(asked: ReceivedRequest) -> Reply:
        held.append(tracemalloc.get_traced_memory()[0])
        return Reply(body if int(asked.params["p"]) < 6 else b"[]")

    api.answer = answer
    rows_of(made(api.url, pages=paging("page", "p", first=6)), clock)  # all is imported
    given = HttpReader(clock.time)(
        access(made(api.url, pages=paging("page", "p"))), {"window": {}}, ()
    )
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in given) == 5 * (len(body) - 1)
    finally:
        tracemalloc.stop()
    # The consumer has the piece that was made of the page, and nobody the page.
    assert max(held) < 1.8 * len(body)

"""Requests are built as configured, told apart, and shown without secrets."""

from __future__ import annotations

import json

import pytest

from blizzard_py.connections.http.calls import Call, first_call, joined, line, shown
from blizzard_py.connections.http.model import HttpSource
from tests.blizzard_py.connections.http.world import (
    api_at,
    api_key,
    end_as,
    marked,
    paging,
    push_as,
    request_to,
    start_as,
)


def source(location: str = "params", **request: object) -> HttpSource:
    return HttpSource(
        api_at("https://crm.example/v1/", api_key("key", "hidden", "query")),
        request_to("/orders", **request),
        "",
        paging(),
        marked("at", push_as(start_as("f.since"), end_as("f.until"), location)),
    )


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://h", "", "https://h"),
        ("https://h/", "/a", "https://h/a"),
        ("https://h/v1", "a/b", "https://h/v1/a/b"),
        ("https://h/v1/", "/a/", "https://h/v1/a/"),
    ],
)
def test_a_path_is_below_the_base_url(base: str, path: str, url: str) -> None:
    assert joined(base, path) == url


def test_the_window_goes_into_the_parameters() -> None:
    call = first_call(
        source(params={"all": True, "n": 3, "x": 1.5}), {"f.since": "a", "f.until": 7}
    )
    assert call.params == {"all": "true", "n": 3, "x": "1.5", "f.since": "a", "f.until": 7}
    assert call.body is None


def test_the_window_goes_into_a_body_by_path_and_leaves_the_rest() -> None:
    asked = source("body", body={"f": {"state": "all"}, "n": 1})
    call = first_call(asked, {"f.since": "a", "f.until": 7})
    assert json.loads(call.content() or b"") == {
        "f": {"state": "all", "since": "a", "until": 7},
        "n": 1,
    }
    assert asked.request.body == {"f": {"state": "all"}, "n": 1}


def test_the_window_goes_into_headers() -> None:
    assert first_call(source("headers"), {"f.since": 1}).headers == {"f.since": "1"}


def test_a_body_makes_a_post_even_if_it_is_empty() -> None:
    call = first_call(source(body={}), {})
    assert (call.method, call.content()) == ("POST", b"{}")
    assert first_call(source(), {}).method == "GET"


def test_equal_requests_have_one_digest_whatever_their_order() -> None:
    call = Call("GET", "https://h", {"a": 1, "b": 2})
    assert call.digest() == Call("GET", "https://h", {"b": 2, "a": 1}).digest()
    others = [
        Call("POST", "https://h", {"a": 1, "b": 2}),
        Call("GET", "https://h/", {"a": 1, "b": 2}),
        Call("GET", "https://h", {"a": 1, "b": 3}),
        Call("GET", "https://h", {"a": 1, "b": 2}, body={}),
    ]
    assert len({call.digest(), *(other.digest() for other in others)}) == 5


def test_secrets_are_not_shown() -> None:
    asked = source(
        params={"key": "hidden", "Auth": "hidden", "access_token": "hidden", "state": "all"},
        body={"password": "hidden", "deep": [{"api_key": "hidden"}], "n": 1},
    )
    call = first_call(asked, {"f.since": "2026-01-01T00:00:00+00:00"})
    told = shown(call, asked)
    assert "hidden" not in repr(call)
    assert "hidden" not in json.dumps(told)
    assert told["params"]["state"] == "all"
    assert "hidden" not in line(told)
    assert "f.since=2026-01-01T00:00:00%2B00:00" in line(told)


def test_the_address_has_no_parameters() -> None:
    assert Call("GET", "https://h/a?cursor=row", {"b": 1}).address == "GET https://h/a"


def test_a_line_is_bounded_and_harmless() -> None:
    told = shown(Call("GET", "https://h/\x1b[1m" + "x" * 5000), source())
    assert len(line(told)) <= 1000
    assert "\x1b" not in line(told)

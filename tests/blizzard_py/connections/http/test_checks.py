"""Contradictions in a source's configuration are reported before any request."""

from __future__ import annotations

import pickle

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.settings.connections import AuthSettings
from blizzard_py.connections.http.checks import problems
from blizzard_py.connections.http.connection import ApiConnection
from blizzard_py.connections.http.model import HttpSource
from tests.blizzard_py.connections.http.world import (
    api_at,
    api_key,
    basic,
    bearer,
    end_as,
    marked,
    oauth_client,
    paging,
    push_as,
    request_to,
    split_from,
    start_as,
)

API = api_at("https://crm.example/v1")
REQUEST = request_to("/orders")


def test_the_example_of_the_design_is_sound() -> None:
    source = HttpSource(
        api_at("https://crm.example/v1", bearer("t")),
        request_to("/orders", params={"state": "all"}),
        "data.items",
        paging("cursor", "cursor", 500, limit_param="limit", following="meta.next"),
        marked(
            "updated_at",
            push_as(start_as("since", "iso"), end_as("until", inclusive="1ms")),
            split_from("2023-07-01", "day"),
        ),
    )
    assert problems(source) == ()
    assert pickle.loads(pickle.dumps(source)) == source


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (HttpSource(api_at("https://u:p@h"), REQUEST, "", paging()), "must not hold a user"),
        (HttpSource(api_at("https://h:port"), REQUEST, "", paging()), "base_url is not a URL"),
        (
            HttpSource(api_at("https://h?a=b"), REQUEST, "", paging()),
            "put them into request.params",
        ),
        (
            HttpSource(api_at("https://h", allowed_hosts=("https://x",)), REQUEST, "", paging()),
            "allowed_hosts",
        ),
        (
            HttpSource(api_at("https://h", oauth_client("/token", "s")), REQUEST, "", paging()),
            "auth.token_url",
        ),
        (
            HttpSource(api_at("https://h", bearer("t\n")), REQUEST, "", paging()),
            "auth: 'token' must be",
        ),
        (
            HttpSource(api_at("https://h", bearer("")), REQUEST, "", paging()),
            "auth: 'token' must be",
        ),
        (
            HttpSource(api_at("https://h", api_key("X", "\xe4")), REQUEST, "", paging()),
            "auth: 'X' must be",
        ),
        (
            HttpSource(api_at("https://h", headers={"X": "a\r\nY: b"}), REQUEST, "", paging()),
            "headers: 'X'",
        ),
        (
            HttpSource(api_at("https://h", headers={"X": " "}), REQUEST, "", paging()),
            "headers: 'X'",
        ),
        (HttpSource(API, request_to("https://evil/"), "", paging()), "must be a path"),
        (HttpSource(API, request_to("//evil/"), "", paging()), "must be a path"),
        (HttpSource(API, request_to("/a?b=c"), "", paging()), "must not hold parameters"),
        (
            HttpSource(
                API,
                request_to("/a", body={"page": 7}),
                "",
                paging("page", "page.number", place="body"),
            ),
            "'page.number' cannot be placed",
        ),
        (
            HttpSource(
                API,
                request_to("/a", body={"q": {"f": [1]}}),
                "",
                paging(),
                marked("at", push_as(start_as("q.f.since"), end_as("q.until"), "body")),
            ),
            "'q.f.since' cannot be placed",
        ),
    ],
)
def test_problems_report_each_invalid_setting(source: HttpSource, told: str) -> None:
    assert [told in problem for problem in problems(source)] == [True]


@pytest.mark.parametrize(
    "auth",
    [
        bearer("hidden"),
        basic("reader", "hidden"),
        api_key("X-Key", "hidden"),
        oauth_client("https://id.example/token", "hidden"),
    ],
)
def test_no_repr_holds_a_secret(auth: AuthSettings) -> None:
    api = api_at("https://h", auth, {"X-Other": "hidden"})
    request = request_to("/a", params={"key": "hidden"}, body={"key": "hidden"})
    assert "hidden" not in repr(HttpSource(api, request, "items", paging()))


def test_problems_show_no_parameters_of_the_base_url() -> None:
    with pytest.raises(ConfigError) as caught:
        ApiConnection(HttpSource(api_at("https://h/v1?token=s3cret"), REQUEST, "", paging()))
    assert str(caught.value).startswith("the API at https://h/v1: ")
    assert "s3cret" not in str(caught.value)

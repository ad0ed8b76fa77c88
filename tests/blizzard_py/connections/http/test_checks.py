"""Contradictions in a source's configuration are reported before any request."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest

from blizzard_core.errors import ConfigError
from blizzard_py.connections.http.checks import problems
from blizzard_py.connections.http.connection import ApiConnection
from blizzard_py.connections.http.model import (
    Api,
    ApiKey,
    Basic,
    Bearer,
    CalendarSplit,
    ClientCredentials,
    HttpRequest,
    HttpSource,
    Pages,
    Push,
    PushFrom,
    PushTo,
)

API = Api("https://crm.example/v1")
REQUEST = HttpRequest("/orders")


def test_the_example_of_the_design_is_sound() -> None:
    source = HttpSource(
        Api("https://crm.example/v1", Bearer("t")),
        HttpRequest("/orders", params={"state": "all"}),
        "data.items",
        Pages("cursor", "cursor", "meta.next", "limit", 500),
        "updated_at",
        Push(PushFrom("since", "iso"), PushTo("until", inclusive="1ms")),
        CalendarSplit(dt.date(2023, 7, 1), "day"),
    )
    assert problems(source) == ()
    assert pickle.loads(pickle.dumps(source)) == source


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (HttpSource(Api("ftp://h"), REQUEST, ""), "base_url must begin with"),
        (HttpSource(Api("https://"), REQUEST, ""), "base_url must begin with"),
        (HttpSource(Api("https://u:p@h"), REQUEST, ""), "must not hold a user"),
        (HttpSource(Api("https://h:port"), REQUEST, ""), "base_url is not a URL"),
        (HttpSource(Api("https://h?a=b"), REQUEST, ""), "put them into request.params"),
        (HttpSource(Api("https://h", allowed_hosts=("https://x",)), REQUEST, ""), "allowed_hosts"),
        (
            HttpSource(Api("https://h", ClientCredentials("/token", "i", "s")), REQUEST, ""),
            "auth.token_url",
        ),
        (HttpSource(Api("https://h", Bearer("t\n")), REQUEST, ""), "auth: 'token' must be"),
        (HttpSource(Api("https://h", Bearer("")), REQUEST, ""), "auth: 'token' must be"),
        (HttpSource(Api("https://h", ApiKey("X", "\xe4")), REQUEST, ""), "auth: 'X' must be"),
        (HttpSource(Api("https://h", headers={"X": "a\r\nY: b"}), REQUEST, ""), "headers: 'X'"),
        (HttpSource(API, HttpRequest("/a", headers={"X": " "}), ""), "request.headers: 'X'"),
        (HttpSource(API, HttpRequest("https://evil/"), ""), "must be a path"),
        (HttpSource(API, HttpRequest("//evil/"), ""), "must be a path"),
        (HttpSource(API, HttpRequest("/a?b=c"), ""), "must not hold parameters"),
        (
            HttpSource(
                API,
                HttpRequest("/a", "POST", body={"page": 7}),
                "",
                Pages("page", "page.number", location="body"),
            ),
            "'page.number' cannot be placed",
        ),
        (
            HttpSource(
                API,
                HttpRequest("/a", "POST", body={"q": {"f": [1]}}),
                "",
                column="at",
                push=Push(PushFrom("q.f.since"), PushTo("q.until"), "body"),
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
        Bearer("hidden"),
        Basic("reader", "hidden"),
        ApiKey("X-Key", "hidden"),
        ClientCredentials("https://id.example/token", "me", "hidden"),
    ],
)
def test_no_repr_holds_a_secret(auth: Bearer | Basic | ApiKey | ClientCredentials) -> None:
    api = Api("https://h", auth, {"X-Other": "hidden"})
    request = HttpRequest("/a", "POST", {"key": "hidden"}, {"X": "hidden"}, {"key": "hidden"})
    assert "hidden" not in repr(HttpSource(api, request, "items"))


def test_problems_show_no_parameters_of_the_base_url() -> None:
    with pytest.raises(ConfigError) as caught:
        ApiConnection(HttpSource(Api("https://h/v1?token=s3cret"), REQUEST, ""))
    assert str(caught.value).startswith("the API at https://h/v1: ")
    assert "s3cret" not in str(caught.value)

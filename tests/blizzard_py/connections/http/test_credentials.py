"""Every kind of credentials, and that none of them ever leaves its origin."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest

from blizzard_core.errors import AccessDenied, SourceError, Unavailable
from blizzard_core.settings.connections import AuthSettings
from blizzard_py.connections.http.credentials import read_token, without_secrets
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.reader import access
from tests.blizzard_py.connections.http.world import (
    FakeTime,
    api_key,
    basic,
    bearer,
    made,
    oauth_client,
    paging,
    request_to,
    rows_of,
)
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, reply

ROWS = [{"id": 1}]
HUSH = "hush-hush-hush"
STATIC: list[AuthSettings] = [
    bearer(HUSH),
    basic("reader", HUSH),
    api_key("X-Key", HUSH),
    api_key("key", HUSH, "query"),
]
BASIC = base64.b64encode(f"reader:{HUSH}".encode()).decode()


def oauth(api: ApiServer, **more: str) -> AuthSettings:
    return oauth_client(f"{api.url}/token", HUSH, **more)


def guarded(tokens: list[str], lasts: int = 3600) -> Callable[[ReceivedRequest], Reply]:
    """Gives the tokens in turn, and rows to whoever shows the last one given."""
    given: list[str] = []

    def answer(asked: ReceivedRequest) -> Reply:
        if asked.path == "/token":
            given.append(tokens[len(given)])
            return reply({"access_token": given[-1], "expires_in": lasts})
        if given and asked.headers.get("authorization") == f"Bearer {given[-1]}":
            return reply(ROWS)
        return reply({"error": "unauthorized"}, 401)

    return answer


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (STATIC[0], "authorization", f"Bearer {HUSH}"),
        (STATIC[1], "authorization", f"Basic {BASIC}"),
        (STATIC[2], "x-key", HUSH),
    ],
)
def test_credentials_are_shown_to_their_own_origin(
    api: ApiServer, clock: FakeTime, auth: AuthSettings, header: str, value: str
) -> None:
    api.script(reply(ROWS))
    assert rows_of(made(api.url, auth=auth), clock) == ROWS
    assert api.asked[0].headers[header] == value


def test_a_key_in_the_query_is_sent_with_every_page(api: ApiServer, clock: FakeTime) -> None:
    api.script(
        reply({"items": ROWS, "next": "/rows?p=2"}),
        reply({"items": ROWS, "next": "/rows?p=3&key=theirs"}),
        reply({"items": ROWS}),
    )
    source = made(api.url, "items", paging("next_link", following="next"), STATIC[3])
    assert rows_of(source, clock) == ROWS * 3
    assert [asked.params.get("key") for asked in api.asked] == [HUSH, HUSH, "theirs"]


def test_token_is_requested_once_for_all_pages(api: ApiServer, clock: FakeTime) -> None:
    answer = guarded(["one"])
    pages = iter([{"n": "2"}, {"n": "3"}, {}])

    def paged(asked: ReceivedRequest) -> Reply:
        found = answer(asked)
        ok = asked.path != "/token" and found.status == 200
        return reply({"items": ROWS, **next(pages)}) if ok else found

    api.answer = paged
    source = made(
        api.url, "items", paging("cursor", "c", following="n"), oauth(api, scope="r", audience="a")
    )
    assert rows_of(source, clock) == ROWS * 3
    tokens = [asked for asked in api.asked if asked.path == "/token"]
    assert len(tokens) == 1
    assert tokens[0].method == "POST"
    assert dict(parse_qsl(tokens[0].body.decode())) == {
        "grant_type": "client_credentials",
        "scope": "r",
        "audience": "a",
    }
    sent = base64.b64encode(f"me:{HUSH}".encode()).decode()
    assert tokens[0].headers["authorization"] == f"Basic {sent}"


def test_a_client_may_show_itself_in_the_form(api: ApiServer, clock: FakeTime) -> None:
    api.answer = guarded(["one"])
    assert rows_of(made(api.url, auth=oauth(api, send_as="form")), clock) == ROWS
    form = dict(parse_qsl(api.asked[0].body.decode()))
    assert (form["client_id"], form["client_secret"]) == ("me", HUSH)
    assert "authorization" not in api.asked[0].headers


def test_an_expired_token_is_renewed_once_for_each_request(api: ApiServer, clock: FakeTime) -> None:
    valid: list[str] = []
    pages = iter("234")

    def answer(asked: ReceivedRequest) -> Reply:
        if asked.path == "/token":
            valid.append(f"token{len(api.asked)}")
            return reply({"access_token": valid[-1], "expires_in": 3600})
        if asked.headers.get("authorization") != f"Bearer {valid[-1]}":
            return reply({}, 401)
        valid.append("none")  # each token is good for one request
        return reply({"items": ROWS, "next": next(pages, None)})

    api.answer = answer
    source = made(api.url, "items", paging("cursor", "c", following="next"), oauth(api))
    assert rows_of(source, clock) == ROWS * 4
    assert sum(asked.path == "/token" for asked in api.asked) == 4
    assert clock.slept == []


def test_a_second_401_is_the_end(api: ApiServer, clock: FakeTime) -> None:
    api.answer = lambda a: reply({"access_token": "t"} if a.path == "/token" else {}, 200 if a.path == "/token" else 401)  # noqa: E501  # fmt: skip
    with pytest.raises(AccessDenied):
        rows_of(made(api.url, auth=oauth(api)), clock)
    assert [asked.path for asked in api.asked] == ["/token", "/rows", "/token", "/rows"]


def test_without_oauth_a_401_is_not_repeated(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({}, 401))
    with pytest.raises(AccessDenied):
        rows_of(made(api.url, auth=bearer(HUSH)), clock)
    assert len(api.asked) == 1


def test_a_token_is_renewed_before_it_ends(api: ApiServer, clock: FakeTime) -> None:
    tokens = guarded(["one", "two"], lasts=100)
    pages = iter(["2", "3", None])

    def answer(asked: ReceivedRequest) -> Reply:
        found = tokens(asked)
        if asked.path == "/token" or found.status != 200:
            return found
        clock.now += 40
        return reply({"items": ROWS, "next": next(pages)})

    api.answer = answer
    source = made(api.url, "items", paging("cursor", "c", following="next"), oauth(api))
    assert rows_of(source, clock) == ROWS * 3
    assert [asked.path for asked in api.asked] == ["/token", "/rows", "/rows", "/token", "/rows"]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_rejected_client_error_hides_the_secret(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.script(reply({"error": "invalid_client", "error_description": HUSH}, status))
    with pytest.raises(AccessDenied, match=r"refuses the client.*invalid_client") as caught:
        rows_of(made(api.url, auth=oauth(api)), clock)
    assert HUSH not in str(caught.value)


def test_a_token_endpoint_that_is_down_fails_for_now(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({}, 503))
    with pytest.raises(Unavailable, match=r"the token of .*/token: answered 503"):
        rows_of(made(api.url, auth=oauth(api)), clock)


def test_a_token_endpoint_is_followed_nowhere(
    api: ApiServer, other: ApiServer, clock: FakeTime
) -> None:
    api.script(reply({}, 307, Location=f"{other.url}/token"))
    with pytest.raises(SourceError, match="answered 307 instead of a token"):
        rows_of(made(api.url, auth=oauth(api), allowed_hosts=(f"127.0.0.1:{other.port}",)), clock)
    assert other.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"access_token": 7}',
        b'{"access_token": "a\\nb: c"}',
        b"\xff",
    ],
)
def test_an_answer_without_a_token_is_no_token(body: bytes) -> None:
    with pytest.raises(SourceError, match="no usable 'access_token'"):
        read_token(200, body, 0.0, "x")


@pytest.mark.parametrize(
    ("lasts", "ends"),
    [(3600, 3570), (20, 10), (0, 0), ("100", 70), (None, float("inf")), ("x", float("inf")),
     (True, float("inf")), (10**400, float("inf"))],
)  # fmt: skip
def test_when_a_token_ends(lasts: object, ends: float) -> None:
    body = reply({"access_token": "t", "expires_in": lasts}).body
    assert read_token(200, body, 0.0, "x").ends_at == ends


def leaving(api: ApiServer, other: ApiServer, how: str) -> HttpSource:
    """A source whose second page is elsewhere, with every secret that there can be."""
    link = f"{other.url}/rows?p=2"
    pages = {"redirect": paging("page", "p"), "link_header": paging("link_header")}
    first = {
        "next_link": reply({"items": ROWS, "next": link}),
        "link_header": reply({"items": ROWS}, Link=f'<{link}>; rel="next"'),
        "redirect": reply({}, 302, Location=link),
    }[how]
    api.script(first)
    other.answer = lambda a: reply({"items": ROWS if a.params["p"] == "2" else []})
    return made(
        api.url,
        "items",
        pages.get(how, paging("next_link", following="next")),
        request=request_to("/rows", params={"secret": HUSH}),
        headers={"X-C": HUSH},
    )


@pytest.mark.parametrize("how", ["next_link", "link_header", "redirect"])
def test_links_to_other_hosts_fail_without_a_request(
    api: ApiServer, other: ApiServer, clock: FakeTime, how: str
) -> None:
    source = leaving(api, other, how)
    with pytest.raises(SourceError, match=f"another host, 127.0.0.1:{other.port}"):
        rows_of(source, clock)
    assert other.asked == []


@pytest.mark.promise("G-166")
@pytest.mark.parametrize("auth", [*STATIC, "oauth"])
@pytest.mark.parametrize("how", ["next_link", "link_header", "redirect"])
def test_credentials_never_leave_their_host(
    api: ApiServer, other: ApiServer, clock: FakeTime, how: str, auth: AuthSettings | str
) -> None:
    source = leaving(api, other, how)
    first = api.answer
    if isinstance(auth, str):
        auth = oauth(api)
        api.answer = lambda a: reply({"access_token": HUSH}) if a.path == "/token" else first(a)
    allowed = made(
        api.url,
        source.records,
        source.pages,
        auth,
        request=source.request,
        headers=source.api.headers,
        allowed_hosts=(f"127.0.0.1:{other.port}",),
    )
    found = rows_of(allowed, clock) if how != "redirect" else rows_of_first(allowed, clock)
    assert found == ROWS * (1 if how == "redirect" else 2)
    assert HUSH in repr(api.asked)
    assert other.asked
    for asked in other.asked:
        assert HUSH not in asked.everything
        assert BASIC not in asked.everything
        assert set(asked.headers) <= {
            "host", "accept", "accept-encoding", "connection", "user-agent"
        }  # fmt: skip


def rows_of_first(source: HttpSource, clock: FakeTime) -> list[object]:
    one_page = HttpSource(source.api, source.request, source.records, paging())
    return rows_of(one_page, clock)


def test_a_body_is_not_sent_to_another_host(
    api: ApiServer, other: ApiServer, clock: FakeTime
) -> None:
    api.script(reply({"items": ROWS, "next": f"{other.url}/rows"}))
    source = made(
        api.url,
        "items",
        paging("next_link", following="next"),
        request=request_to("/rows", body={"secret": HUSH}),
        allowed_hosts=(f"127.0.0.1:{other.port}",),
    )
    with pytest.raises(SourceError, match="a body is never sent there"):
        rows_of(source, clock)
    assert other.asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_at_home_is_followed_with_credentials(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.answer = lambda a: reply(ROWS) if a.path == "/new" else reply({}, status, Location="/new")
    assert rows_of(made(api.url, auth=bearer(HUSH)), clock) == ROWS
    assert api.asked[1].headers["authorization"] == f"Bearer {HUSH}"


@pytest.mark.parametrize("location", ["/rows", "", "?a=1", "/rows#x"])
def test_redirects_in_a_circle_end(api: ApiServer, clock: FakeTime, location: str) -> None:
    api.script(reply({}, 302, Location=location))
    with pytest.raises(SourceError, match="more than 5 redirects"):
        rows_of(made(api.url), clock)
    assert len(api.asked) == 6


def test_a_redirect_of_a_body_is_refused(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({}, 307, Location="/new"))
    with pytest.raises(SourceError, match="not followed with a body"):
        rows_of(made(api.url, request=request_to("/rows", body={})), clock)


def test_another_name_of_the_same_machine_is_another_host(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"items": [], "next": f"http://localhost:{api.port}/rows?p=2"}))
    with pytest.raises(SourceError, match=f"another host, localhost:{api.port}"):
        rows_of(made(api.url, "items", paging("next_link", following="next")), clock)


@pytest.mark.parametrize("auth", [*STATIC, oauth_client("https://h/t", HUSH)])
def test_no_repr_of_what_travels_holds_a_secret(auth: AuthSettings) -> None:
    given = access(made("https://h", auth=auth))
    assert HUSH not in repr(given)
    assert HUSH not in repr(given.options["source"])
    assert pickle.loads(pickle.dumps(given)) == given


def test_without_secrets_masks_secrets_in_foreign_text() -> None:
    assert without_secrets("a\n hush-hush b password=abc", ["hush-hush", "hush"]) == (
        "a *** b password=***"
    )

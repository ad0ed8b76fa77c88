"""The table of faults, one by one, against a real server."""

from __future__ import annotations

import email.utils
import gzip
import json

import pytest

from blizzard_core.errors import AccessDenied, SourceError, Unavailable
from blizzard_py.connections.http import client
from blizzard_py.connections.http.retry import TRIES
from tests.blizzard_py.connections.http.world import (
    NOW,
    FakeTime,
    bearer,
    made,
    paging,
    request_to,
    rows_of,
    text_of,
)
from tests.support.api_server import ApiServer, How, Reply, reply

ROWS = [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("status", [429, 503])
def test_transient_errors_are_retried_with_doubling_pauses(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.script(*[reply({}, status)] * 3, reply(ROWS))
    assert rows_of(made(api.url), clock) == ROWS
    assert clock.slept == [0.5, 1, 2]


def test_persistent_503_raises_unavailable_after_all_tries(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({}, 503))
    with pytest.raises(Unavailable, match=r"GET http://.*/rows, page 1: answered 503, 6 times"):
        rows_of(made(api.url), clock)
    assert len(api.asked) == TRIES
    assert len(clock.slept) == TRIES - 1


@pytest.mark.parametrize(
    ("header", "secs"), [("3600", 60), (email.utils.formatdate(NOW + 5, usegmt=True), 5)]
)
def test_retry_waits_for_the_retry_after_time(
    api: ApiServer, clock: FakeTime, header: str, secs: float
) -> None:
    api.date = lambda: NOW  # dates count by its own clock
    clock.now = NOW + 10_000
    api.script(reply({}, 429, Retry_After=header), reply(ROWS))
    assert rows_of(made(api.url), clock) == ROWS
    assert clock.slept == [secs]


def test_a_date_counts_by_our_clock_where_the_server_tells_none(
    api: ApiServer, clock: FakeTime
) -> None:
    api.date = None
    header = email.utils.formatdate(NOW + 5, usegmt=True)
    api.script(reply({}, 503, Retry_After=header), reply(ROWS))
    assert rows_of(made(api.url), clock) == ROWS
    assert clock.slept == [5]


@pytest.mark.parametrize("how", ["cut", "cut-chunked", "reset"])
def test_a_broken_connection_is_another_try(api: ApiServer, clock: FakeTime, how: How) -> None:
    api.script(reply(ROWS, how=how), reply(ROWS))
    assert rows_of(made(api.url), clock) == ROWS
    assert len(clock.slept) == 1


@pytest.mark.parametrize("how", ["cut", "cut-chunked", "reset"])
def test_connections_that_break_for_ever_fail_for_now(
    api: ApiServer, clock: FakeTime, how: How
) -> None:
    api.script(reply(ROWS, how=how))
    with pytest.raises(Unavailable, match="the connection broke"):
        rows_of(made(api.url), clock)


@pytest.mark.parametrize("how", ["hang", "drip", "drip-head"])
def test_slow_answer_is_retried_after_the_timeout(
    api: ApiServer, clock: FakeTime, how: How
) -> None:
    # Each byte comes well within the time, all of them do not.
    api.script(reply([{"id": n} for n in range(100)], how=how), reply(ROWS))
    assert rows_of(made(api.url, timeout="400ms"), clock) == ROWS
    assert clock.slept  # more than once where a machine is busy when the whole answer comes


def test_slow_answer_raises_unavailable_after_all_tries(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([{"id": n} for n in range(100)], how="drip"))
    with pytest.raises(Unavailable, match=r"no whole answer within 0.2 s"):
        rows_of(made(api.url, timeout="200ms"), clock)


def test_nobody_there_fails_for_now(clock: FakeTime) -> None:
    with pytest.raises(Unavailable, match="no connection: "):
        rows_of(made("http://127.0.0.1:9"), clock)


@pytest.mark.promise("G-152")
def test_a_cut_answer_without_a_marked_end_fails_for_now(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(b'[{"id": 1}, {"i', how="close"))
    with pytest.raises(Unavailable, match="ends too early"):
        rows_of(made(api.url), clock)
    api.script(Reply(b'[{"id": 1}, {"i'))
    with pytest.raises(SourceError, match="ends too early"):
        rows_of(made(api.url), clock)


def test_an_answer_without_a_length_is_read(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply(ROWS, how="close"))
    assert rows_of(made(api.url), clock) == ROWS
    api.script(reply(ROWS * 1000, how="chunked"))
    assert rows_of(made(api.url), clock) == ROWS * 1000


@pytest.mark.parametrize("status", [400, 404])
def test_other_refusals_fail_with_what_the_api_says(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.script(reply({"error": "since\x1b[31m is\nno time"}, status))
    with pytest.raises(SourceError) as caught:
        rows_of(made(api.url), clock)
    assert f"page 1: answered {status}: " in str(caught.value)
    assert "no time" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(api.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_denied_access_error_hides_the_credentials(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.script(reply({"error": "hush-hush is unknown"}, status))
    with pytest.raises(AccessDenied, match="refuses the credentials") as caught:
        rows_of(made(api.url, auth=bearer("hush-hush")), clock)
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("status", [202, 205, 206, 300, 304, 600])
def test_a_status_that_is_no_answer_is_not_read_as_one(
    api: ApiServer, clock: FakeTime, status: int
) -> None:
    api.script(Reply(b"" if status == 304 else b"[]", status))
    with pytest.raises(SourceError, match=f"answered {status}"):
        rows_of(made(api.url), clock)


def test_no_content_is_no_records_and_the_end(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(status=204))
    assert rows_of(made(api.url, pages=paging("page", "p")), clock) == []
    assert len(api.asked) == 1


def test_html_answer_error_names_the_content_type(api: ApiServer, clock: FakeTime) -> None:
    page = b"<!doctype html><title>Sign in</title> secret row"
    api.script(Reply(page, headers={"Content-Type": "text/html; charset=utf-8"}))
    with pytest.raises(SourceError, match=r"\(text/html; charset=utf-8\).*not JSON") as caught:
        rows_of(made(api.url), clock)
    assert "secret row" not in str(caught.value)


def test_missing_records_name_what_the_answer_has(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"error": {"code": 7}, "rows": []}))
    with pytest.raises(SourceError, match=r"'data'.*'error', 'rows'"):
        rows_of(made(api.url, "data.items"), clock)


@pytest.mark.promise("G-152")
def test_a_compressed_answer_is_read_a_cut_one_requested_again(
    api: ApiServer, clock: FakeTime
) -> None:
    packed = gzip.compress(json.dumps(ROWS).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    api.script(Reply(packed[:-9], headers=headers), Reply(packed, headers=headers))
    assert rows_of(made(api.url), clock) == ROWS
    assert len(clock.slept) == 1
    assert api.asked[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("said", ["", "gzip"])
def test_an_answer_that_is_packed_once_more_than_it_says_is_read(
    api: ApiServer, clock: FakeTime, said: str
) -> None:
    packed = gzip.compress(json.dumps(ROWS).encode())
    headers = {"Content-Encoding": said} if said else {}
    api.script(Reply(gzip.compress(packed) if said else packed, headers=headers))
    assert rows_of(made(api.url), clock) == ROWS


def test_wrong_content_encoding_raises_unavailable(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply(ROWS, Content_Encoding="gzip"))
    with pytest.raises(Unavailable, match="or not gzip, as its Content-Encoding says, 6 times"):
        rows_of(made(api.url), clock)


@pytest.mark.parametrize("end", [b"", b", 3"])
def test_short_content_length_raises_source_error(
    api: ApiServer, clock: FakeTime, end: bytes
) -> None:
    body = b'{"items": [1, 2' + end + b'], "next": "x"}'
    short = {"Content-Length": "14"}
    api.script(Reply(body, headers=short))
    with pytest.raises(SourceError, match=r"page 1.*: the answer is JSON that ends too early"):
        rows_of(made(api.url, "items"), clock)


@pytest.mark.parametrize(
    "body",
    [b'{"id": 1}\n{"id": 2}\n', b'{"id": 1}\n{"id": 2}', b'{"id": 1}\n', b"[1]\n[2]\n", b""],
)
def test_lines_of_json_are_no_answer(api: ApiServer, clock: FakeTime, body: bytes) -> None:
    api.script(Reply(body, headers={"Content-Type": "application/x-ndjson"}))
    with pytest.raises(SourceError, match=r"page 1: .*(not JSON|not a list|ends too early)"):
        rows_of(made(api.url), clock)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_than_utf_8_is_no_answer(
    api: ApiServer, clock: FakeTime, encoding: str
) -> None:
    api.script(Reply('[{"name": "Zoë"}]'.encode(encoding)))
    with pytest.raises(SourceError, match="not JSON"):
        rows_of(made(api.url), clock)


@pytest.mark.parametrize("path", ["/rows/", "//rows", "/Rows"])
def test_a_redirect_that_drops_parameters_stops(api: ApiServer, clock: FakeTime, path: str) -> None:
    # It would be answered with all there is, as if nobody had asked for a window.
    api.script(Reply(status=301, headers={"Location": f"{api.url}{path}"}), reply(ROWS))
    with pytest.raises(SourceError, match=r"answered 301, .* drops the parameter 'since'"):
        rows_of(made(api.url), clock, {"since": "2026-01-01"})
    assert len(api.asked) == 1


@pytest.mark.parametrize("location", ["/rows/?since=2026-01-01&x=1", "/files/17?sig=abc"])
def test_a_redirect_with_its_parameters_is_followed(
    api: ApiServer, clock: FakeTime, location: str
) -> None:
    api.script(Reply(status=302, headers={"Location": location}), reply(ROWS))
    assert rows_of(made(api.url), clock, {"since": "2026-01-01"}) == ROWS


def test_an_answer_above_its_limit_fails_packed_or_not(
    api: ApiServer, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_BYTES", 2000)
    body = json.dumps([{"a": "x" * 5000}]).encode()
    for answer in (Reply(body), Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"})):
        api.script(answer)
        with pytest.raises(SourceError, match=r"longer than 2,000 bytes; ask for smaller"):
            rows_of(made(api.url), clock)


def test_unsupported_content_encoding_raises_source_error(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(b"xx", headers={"Content-Encoding": "br"}))
    with pytest.raises(SourceError, match="packed as br"):
        rows_of(made(api.url), clock)


def test_the_request_is_made_as_configured(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply({"data": {"items": ROWS}}))
    request = request_to("a/b", params={"q": "ä &+"}, body={"filter": {"n": 1}})
    source = made(f"{api.url}/v1/", "data.items", request=request, headers={"X-One": "1"})
    assert rows_of(source, clock) == ROWS
    asked = api.asked[0]
    assert (asked.method, asked.path, asked.params) == ("POST", "/v1/a/b", {"q": "ä &+"})
    assert (asked.headers["x-one"], asked.headers["content-type"]) == ("1", "application/json")
    assert asked.json == {"filter": {"n": 1}}


def test_cookies_are_not_sent_back(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply(ROWS, Set_Cookie="session=1; Path=/", Link='<?p=2>; rel="next"'), reply(ROWS))
    assert rows_of(made(api.url, pages=paging("link_header")), clock) == ROWS * 2
    assert "cookie" not in api.asked[1].headers


def test_the_bytes_of_a_record_are_those_of_the_api(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(b'[{"price": 1.10, "n": 123456789012345678901234567890}]'))
    assert text_of(made(api.url), clock) == (
        b'{"price": 1.10, "n": 123456789012345678901234567890}\n'
    )

"""Windows become the values that are sent: nothing between two of them is left to nobody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blizzard_core.errors import SourceError
from blizzard_core.settings.http_sources import ParamFormat, PushEnd, RangeSettings
from blizzard_py.connections.http import windows
from blizzard_py.connections.http.checks import problems
from blizzard_py.connections.http.model import HttpSource, tick
from blizzard_py.connections.http.windows import lowered
from blizzard_py.reading import Window
from tests.blizzard_py.connections.http.world import (
    api_at,
    end_as,
    marked,
    paging,
    push_as,
    request_to,
    split_from,
    start_as,
)

UTC = dt.UTC
INCLUSIVE = (None, "1ms", "1s", "1day")


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=UTC)


def source(
    start: str = "iso",
    end: PushEnd | None = None,
    location: str = "params",
    split: RangeSettings | None = None,
) -> HttpSource:
    push = push_as(start_as("since", start), end, location)
    return HttpSource(
        api_at("https://h"), request_to("/a", body={}), "", paging(), marked("at", push, split)
    )


def pieces(asked: HttpSource, given_window: Window) -> list[Mapping[str, Any]]:
    return [piece.sent for piece in windows.pieces(asked, given_window)]


def window(low: Any, up_to: Any) -> Window:
    lower = {} if low is None else {"at": low}
    return Window(lower, {"at": up_to}, lower)


A, B = at("2026-05-04T11:59:58.120000"), at("2026-05-05T00:00:00")


@pytest.mark.parametrize(
    ("kind", "since", "until"),
    [
        ("iso", "2026-05-04T11:59:58.120000+00:00", "2026-05-05T00:00:00+00:00"),
        ("date", "2026-05-04", "2026-05-05"),
        ("datetime", "2026-05-04T11:59:58", "2026-05-05T00:00:00"),
        ("datetime_ms", "2026-05-04T11:59:58.120", "2026-05-05T00:00:00.000"),
        ("timestamp", "1777895998.12", "1777939200.0"),
        ("timestamp_ms", "1777895998120", "1777939200000"),
    ],
)
def test_both_ends_are_sent_in_their_format(kind: str, since: str, until: str) -> None:
    asked = source(kind, end_as("until", kind))
    assert pieces(asked, window(A, B)) == [{"since": since, "until": until}]


def test_numbers_are_numbers_in_a_body_only() -> None:
    for location in ("params", "headers"):
        asked = source("timestamp_ms", end_as("until", "timestamp"), location)
        assert pieces(asked, window(A, B)) == [{"since": "1777895998120", "until": "1777939200.0"}]
    asked = source("timestamp", end_as("until", "timestamp_ms"), "body")
    assert pieces(asked, window(A, B)) == [{"since": 1777895998.12, "until": 1777939200000}]


@pytest.mark.parametrize(
    ("inclusive", "until"),
    [("1ms", "2026-05-04T23:59:59.999000+00:00"), ("1s", "2026-05-04T23:59:59+00:00"),
     ("1day", "2026-05-04T00:00:00+00:00")],
)  # fmt: skip
def test_an_inclusive_end_is_lowered_only_in_the_request(inclusive: str | None, until: str) -> None:
    asked = source("iso", end_as("until", "iso", inclusive))
    given_window = window(A, B)
    assert pieces(asked, given_window)[0]["until"] == until
    assert given_window.up_to == {"at": B}


def test_requests_omit_absent_window_ends() -> None:
    assert pieces(source(end=end_as("until")), window(None, B)) == [
        {"until": "2026-05-05T00:00:00+00:00"}
    ]
    assert pieces(source(), window(None, B)) == [{}]
    assert pieces(HttpSource(api_at("https://h"), request_to(), "", paging()), Window()) == [{}]


@pytest.mark.parametrize("value", [7, 1.5, "seven", True, [1]])
def test_invalid_time_raises_source_error(value: object) -> None:
    with pytest.raises(SourceError, match="is no time"):
        pieces(source(), window(value, B))


def test_an_end_that_the_format_cannot_say_is_refused() -> None:
    with pytest.raises(SourceError, match="cannot be sent as 'date'"):
        pieces(source(end=end_as("until", "date")), window(None, A))
    with pytest.raises(SourceError, match="steps of 0:00:01"):
        pieces(source(end=end_as("until", "datetime")), window(None, A))
    with pytest.raises(SourceError, match="steps of 1 day"):
        pieces(source(end=end_as("until", "iso", "1day")), window(None, A))


def test_ranges_are_tasks_without_gap_from_the_start_on() -> None:
    asked = source(end=end_as("until", "date"), split=split_from("2026-05-02"))
    assert pieces(asked, window(None, B)) == [
        {"since": "2026-05-02T00:00:00+00:00", "until": "2026-05-03"},
        {"since": "2026-05-03T00:00:00+00:00", "until": "2026-05-04"},
        {"since": "2026-05-04T00:00:00+00:00", "until": "2026-05-05"},
    ]


def test_later_windows_are_split_from_where_they_begin() -> None:
    asked = source(end=end_as("until"), split=split_from("2020-01-01", "day"))
    found = pieces(asked, window(A, at("2026-05-06T23:00:00")))
    assert [piece["since"] for piece in found] == [
        "2026-05-04T11:59:58.120000+00:00", "2026-05-05T11:59:58.120000+00:00",
        "2026-05-06T11:59:58.120000+00:00",
    ]  # fmt: skip
    assert [piece["until"] for piece in found][:-1] == [piece["since"] for piece in found][1:]
    assert found[-1]["until"] == "2026-05-06T23:00:00+00:00"


def test_inner_ends_are_what_the_format_can_say_as_well() -> None:
    asked = source(end=end_as("until", "date"), split=split_from("2020-01-01"))
    found = pieces(asked, window(at("2026-05-01T12:30:00"), B))
    assert found == [
        {"since": "2026-05-01T12:30:00+00:00", "until": "2026-05-02"},
        {"since": "2026-05-02T00:00:00+00:00", "until": "2026-05-03"},
        {"since": "2026-05-03T00:00:00+00:00", "until": "2026-05-04"},
        {"since": "2026-05-04T00:00:00+00:00", "until": "2026-05-05"},
    ]


def test_a_window_that_ends_before_it_begins_has_no_ranges() -> None:
    asked = source(end=end_as("until"), split=split_from("2027-01-01"))
    assert pieces(asked, window(None, B)) == []


def test_too_many_ranges_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "REQUEST_RANGES", 3)
    asked = source(end=end_as("until"), split=split_from("2026-05-01"))
    with pytest.raises(SourceError, match="would have 4 ranges of a day, more than 3"):
        pieces(asked, window(None, B))


def times(first: int, last: int) -> st.SearchStrategy[dt.datetime]:
    moments = st.integers(first, last)
    return moments.map(lambda n: EPOCH + dt.timedelta(microseconds=n))


EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
TIMES = times(946_684_800_000_000, 1_900_000_000_000_000) | times(-(10**15), 10**17)


def read_back(text: Any, kind: str) -> dt.datetime:
    """Return the API's reading of a request."""
    if kind == "timestamp":
        return EPOCH + dt.timedelta(seconds=float(text))
    if kind == "timestamp_ms":
        return EPOCH + dt.timedelta(milliseconds=int(text))
    value = dt.datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


@given(
    low=TIMES,
    span=st.timedeltas(dt.timedelta(microseconds=1), dt.timedelta(days=40)),
    start=st.sampled_from([f for f in get_args(ParamFormat) if f != "timestamp"]),
    end=st.sampled_from([f for f in get_args(ParamFormat) if f != "timestamp"]),
    inclusive=st.sampled_from(INCLUSIVE),
    unit=st.sampled_from([None, "hour", "day", "week", "month", "year"]),
)
def test_no_moment_of_a_window_is_left_out(
    low: dt.datetime,
    span: dt.timedelta,
    start: str,
    end: str,
    inclusive: str | None,
    unit: str | None,
) -> None:
    to = end_as("until", end, inclusive)
    split = None if unit is None else split_from("2000-01-01", unit)
    asked = source(start, to, split=split)
    assume(not problems(asked))
    up_to = lowered(low + span, to)
    assume(up_to > low)
    found = pieces(asked, window(low, up_to))
    starts = [read_back(piece["since"], start) for piece in found]
    # An API that returns rows at the end too sees as much more as it was told less.
    reach = tick(to) if inclusive else dt.timedelta(0)
    ends = [read_back(piece["until"], end) + reach for piece in found]
    assert starts[0] <= low
    assert ends[-1] >= up_to
    for one, following in zip(ends, starts[1:], strict=False):
        assert following <= one
    if tick(start_as("x", start)) <= tick(to):  # else `warnings` tells
        assert all(a == b for a, b in zip(ends, starts[1:], strict=False))
        assert ends[-1] == up_to


@given(TIMES, st.sampled_from(get_args(ParamFormat)), st.sampled_from(INCLUSIVE))
def test_lowered_end_is_stable_and_less_than_a_tick_below(
    value: dt.datetime, kind: str, inclusive: str | None
) -> None:
    to = end_as("until", kind, inclusive)
    found = lowered(value, to)
    assert dt.timedelta(0) <= value - found < max(tick(to), dt.timedelta(microseconds=1))
    assert lowered(found, to) == found

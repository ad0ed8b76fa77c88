"""Records of another window are left to it, and no other record is dropped."""

from __future__ import annotations

import datetime as dt
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.record_filter import record_filter
from blizzard_py.connections.http.windows import pieces
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.blizzard_py.connections.http.world import (
    api_at,
    end_as,
    marked,
    paging,
    push_as,
    request_to,
    start_as,
)

UTC = dt.UTC
CUT = {
    "sent": "2026-01-02T00:00:00+00:00",
    "low": "2026-01-02T12:00:00+00:00",
    "up_to": "2026-01-03T00:00:00+00:00",
}


def filter_records(records: list[Any], column: str = "at", *fields: FieldSpec) -> list[Any]:
    raw = msgspec.json.decode(json.dumps(records).encode(), type=list[msgspec.Raw])
    return [json.loads(bytes(r)) for r in record_filter(CUT, column, fields)(raw)]


@pytest.mark.parametrize(
    ("at", "is_kept"),
    [
        ("2026-01-01T23:59:59Z", True),  # not asked for: the API has its reasons
        ("2026-01-02T00:00:00Z", False),
        ("2026-01-02", False),
        ("2026-01-02T11:59:59.999999Z", False),
        ("2026-01-02 11:00:00", False),
        ("2026-01-02T13:30:00+02:00", False),
        ("2026-01-02T12:00:00Z", True),
        ("2026-01-03T00:00:00Z", True),
        ("2026-01-03T00:00:00.000001Z", False),
        ("2026-01-02T23:30:00-02:00", False),
        ("soon", True),
        ("", True),
        (None, True),
        (1767355200, True),  # iso is declared, and this is none
        (True, True),
        ([1], True),
        ({"a": 1}, True),
    ],
)
def test_only_what_another_window_has_is_left_out(at: object, *, is_kept: bool) -> None:
    assert filter_records([{"at": at}]) == ([{"at": at}] if is_kept else [])


@pytest.mark.parametrize("record", [{}, {"AT": "2026-01-02"}, 7, None, "x", [], {"at": 10**400}])
def test_filter_passes_records_without_a_usable_column(record: object) -> None:
    assert filter_records([record]) == [record]


@pytest.mark.parametrize(("unit", "one"), [("s", 1), ("ms", 1000), ("us", 1_000_000)])
def test_numbers_are_read_by_the_declared_unit(unit: str, one: int) -> None:
    field = FieldSpec("at", "timestamp", nullable=True, unit=unit)  # type: ignore[arg-type]  # one of them
    noon = int(dt.datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp())
    rows = [{"at": (noon + n) * one} for n in (-86400, -1, 0, 1, 86400)]
    assert filter_records(rows, "at", field) == [rows[0], rows[2], rows[3]]
    assert filter_records([{"at": 1e300}], "at", field) == [{"at": 1e300}]


def test_a_column_may_be_inside_of_others() -> None:
    inner = FieldSpec("at", "timestamp", nullable=True, unit="s")
    field = FieldSpec("meta", "struct", nullable=True, children=(inner,))
    early = int(dt.datetime(2026, 1, 2, 1, tzinfo=UTC).timestamp())
    rows = [{"meta": {"at": early}}, {"meta": None}, {"meta": 7}, {"at": early}]
    assert filter_records(rows, "meta.at", field) == rows[1:]


def test_without_a_reason_nothing_is_looked_at() -> None:
    records = [msgspec.Raw(b"{}")]
    assert record_filter({}, "at", ())(records) is records


FORMATS: list[str] = ["iso", "date", "datetime", "datetime_ms", "timestamp_ms"]
START = dt.datetime(2026, 1, 1, tzinfo=UTC)


@given(
    rows=st.lists(st.integers(0, 4 * 86_400 * 4), max_size=30),
    cuts=st.lists(st.integers(1, 4 * 86_400 - 1), min_size=1, max_size=5, unique=True),
    start=st.sampled_from(FORMATS),
    end=st.sampled_from([None, "iso", "datetime", "datetime_ms"]),
    inclusive=st.booleans(),
)
def test_every_row_is_read_in_one_window(
    rows: list[int], cuts: list[int], start: str, end: str | None, *, inclusive: bool
) -> None:
    """Rows at quarters of seconds; the API compares exactly, with its start counted in or not."""
    to = end_as("until", end) if end else None
    source = HttpSource(
        api_at("https://h"),
        request_to(),
        "",
        paging(),
        marked("at", push_as(start_as("since", start), to)),
    )
    times = [START + dt.timedelta(seconds=n / 4) for n in rows]
    # Without an end windows end between the times of rows, as `bound` has it.
    shift = dt.timedelta(microseconds=0 if end else 1)
    edges = [START + dt.timedelta(seconds=n) - shift for n in sorted(cuts)]
    found = []
    for low, up_to in pairwise([None, *edges, START + dt.timedelta(days=5)]):
        lower = {} if low is None else {"at": low}
        (piece,) = pieces(source, Window(lower, {"at": up_to}, lower))
        since, until = (_read(piece.sent.get(name)) for name in ("since", "until"))
        answer = [
            {"at": t.isoformat()}
            for t in times
            if (since is None or since < t or (since == t and (inclusive or end)))
            and (until is None or t < until)
        ]
        raw = msgspec.json.decode(json.dumps(answer).encode(), type=list[msgspec.Raw])
        found += [json.loads(bytes(r))["at"] for r in record_filter(piece.cut, "at", ())(raw)]
    assert sorted(found) == sorted(t.isoformat() for t in times)


@given(
    days=st.lists(st.integers(0, 9), max_size=20),
    polls=st.lists(st.integers(1, 10), min_size=1, max_size=5, unique=True),
    start=st.sampled_from(["iso", "date", "datetime"]),
    inclusive=st.booleans(),
)
def test_every_row_of_a_day_is_read_in_one_window(
    days: list[int], polls: list[int], start: str, *, inclusive: bool
) -> None:
    """A column of dates, and no end is sent."""
    push = push_as(start_as("since", start))
    source = HttpSource(api_at("https://h"), request_to(), "", paging(), marked("at", push))
    rows = [START.date() + dt.timedelta(days=n) for n in days]
    found = []
    ends = [START.date() + dt.timedelta(days=n - 1) for n in [*sorted(polls), 11]]
    for low, up_to in pairwise([None, *ends]):
        lower = {} if low is None else {"at": low}
        (piece,) = pieces(source, Window(lower, {"at": up_to}, lower))
        since = _read(piece.sent.get("since"))
        answer = [
            {"at": day.isoformat()}
            for day in rows
            if since is None or since.date() < day or (since.date() == day and inclusive)
        ]
        raw = msgspec.json.decode(json.dumps(answer).encode(), type=list[msgspec.Raw])
        found += [json.loads(bytes(r))["at"] for r in record_filter(piece.cut, "at", ())(raw)]
    assert sorted(found) == sorted(day.isoformat() for day in rows)


def test_a_range_and_a_look_back_include_their_first_day() -> None:
    source = HttpSource(
        api_at("https://h"), request_to(), "", paging(), marked("at", push_as(start_as("since")))
    )
    low, up_to = {"at": START.date()}, {"at": START.date() + dt.timedelta(days=3)}
    for window in (Window({}, up_to, low, inclusive=True), Window(up_to, up_to, low)):
        (piece,) = pieces(source, window)
        assert set(piece.cut) == {"up_to"}


def _read(text: object) -> dt.datetime | None:
    if text is None:
        return None
    if str(text).isdigit():
        return dt.datetime.fromtimestamp(int(str(text)) / 1000, UTC)
    value = dt.datetime.fromisoformat(str(text))
    return value if value.tzinfo else value.replace(tzinfo=UTC)

"""Answers that are requested again, and the pauses before that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.connections.http.retry import MAX_PAUSE_SECS, moment, passes, pause

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("status", "again"),
    [(408, True), (425, True), (429, True), (500, True), (503, True), (599, True)]
    + [(code, False) for code in (200, 301, 400, 401, 403, 404, 409, 422, 600)],
)
def test_statuses_that_may_pass(status: int, *, again: bool) -> None:
    assert passes(status) is again


@pytest.mark.parametrize(
    ("retry_after", "secs"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("3600", 60),
        ("000000000007", 7),
        ("9" * 400, 60),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
        ("Sun, 06 Nov 2094 08:49:37 GMT", 60),
    ],
)
def test_pause_follows_retry_after_up_to_a_minute(retry_after: str, secs: float) -> None:
    assert pause(1, retry_after, NOW, chance=0.0) == secs


@pytest.mark.parametrize("nonsense", ["", "soon", "-5", "1.5", "٣", "Mon, 99 Foo 2020", "\x00"])
def test_without_a_word_of_the_server_pauses_double(nonsense: str) -> None:
    assert [pause(n, nonsense, NOW, 1.0) for n in (1, 2, 3, 4, 9)] == [1, 2, 4, 8, 60]
    assert [pause(n, nonsense, NOW, 0.0) for n in (1, 2, 3, 4, 9)] == [0.5, 1, 2, 4, 30]


@given(st.integers(1, 10_000), st.text(max_size=40), st.floats(0, 1, exclude_max=True))
def test_no_pause_is_longer_than_a_minute(failures: int, header: str, chance: float) -> None:
    assert 0 <= pause(failures, header, NOW, chance) <= MAX_PAUSE_SECS


def test_dates_are_read_in_all_three_forms() -> None:
    assert moment("Sun, 06 Nov 1994 08:49:37 GMT") == NOW
    assert moment("Sunday, 06-Nov-94 08:49:37 GMT") == NOW
    assert moment("Sun Nov  6 08:49:37 1994") == NOW
    assert moment("no date") is None

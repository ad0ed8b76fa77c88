"""Slice edges: the cut at the next begin, and the widening to a known begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from blizzard_py.slices.edges import KEPT, cut, known_after, next_begin, replacement_begin
from blizzard_py.slices.units.due import slice_begin

DAY = timedelta(days=1)
P0 = datetime(2020, 2, 1, tzinfo=UTC)


def begins(low: datetime, to: datetime, shift: timedelta, at: datetime) -> tuple[datetime, ...]:
    return cut(low, to, next_begin(to, shift, at) or low)


def test_a_reading_is_cut_where_the_next_one_begins() -> None:
    high = P0 + 20 * DAY
    assert begins(P0, high, -3 * DAY, high) == (P0, P0 + 17 * DAY)
    assert begins(P0, high, 0 * DAY, high) == (P0,)
    assert begins(P0, high, 5 * DAY, high) == (P0,)
    assert begins(P0, high, -20 * DAY, high) == (P0,)
    assert begins(P0, high, -30 * DAY, high) == (P0,)
    assert begins(P0, high, -3_000_000 * DAY, high) == (P0,)
    now = P0 + 5 * DAY
    assert begins(P0, high, -3 * DAY, now) == (P0, P0 + 2 * DAY)
    assert begins(P0, high, 0 * DAY, now) == (P0, now)
    assert begins(P0, high, 0 * DAY, P0 - DAY) == (P0,)


def test_a_reading_begins_where_a_slice_begins() -> None:
    high, slices = P0 + 20 * DAY, [P0, P0 + 10 * DAY, P0 + 17 * DAY]
    assert slice_begin(P0 + 17 * DAY, P0, high, slices) == P0 + 17 * DAY
    assert slice_begin(P0 + 16 * DAY, P0, high, slices) == P0 + 10 * DAY
    assert slice_begin(P0 + 3 * DAY, P0, high, slices) == P0
    assert slice_begin(P0 + 16 * DAY, P0, high, []) == P0
    assert slice_begin(high, P0, high, []) == high
    assert slice_begin(high + DAY, P0, high, slices) == high + DAY
    assert slice_begin(P0 + DAY, P0, None, []) == P0


def test_full_read_has_no_begin_and_is_cut_like_others() -> None:
    assert cut(None, 9, 5) == (None, 5)
    assert cut(None, 9, 9) == (None,)
    assert replacement_begin(4, [2, 4, 6], None) == 4
    assert replacement_begin(1, [2, 4, 6], None) is None


def test_new_begins_replace_later_ones_and_the_first_stays() -> None:
    assert known_after(["a", "c", "d"], ["c", "e"]) == ("a", "c", "e")
    assert known_after(["a"], ["a"]) == ("a",)
    known: tuple[str, ...] = ()
    for number in range(100):
        known = known_after(known, [f"{number:03}"])
    assert known == ("000", *(f"{number:03}" for number in range(100 - KEPT, 100)))

"""The text in `_unit`: what a reading is cut into, what lies in a replaced range, and order."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blizzard_core.errors import UnitError
from blizzard_core.handover.groups import Group, decode_group, encode_group
from blizzard_py.slices.names import (
    column_slice,
    snapshot_range,
    unit_range,
    unit_slice,
)

DAY = timedelta(days=1)
P0 = datetime(2020, 2, 1, tzinfo=UTC)

names = st.text(min_size=1).filter(str.strip)
times = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1))  # noqa: DTZ001  # drawn without


def test_the_text_of_a_unit() -> None:
    told = unit_slice("surveys", P0, "id1", P0 + 17 * DAY)
    assert told == "surveys/2020-02-01T00:00:00.000Z/id1/2020-02-18T00:00:00.000Z"
    assert unit_range("surveys", P0, "id1", P0) == (
        "surveys/2020-02-01T00:00:00.000Z/id1/2020-02-01T00:00:00.000Z",
        "surveys/2020-02-01T00:00:00.000Z/id10",
    )
    assert "/a%2Fb%25/" in unit_slice("s", P0, "a/b%", P0)
    assert "/{}/" in unit_slice("s", P0, "{}", P0)


def test_long_values_keep_their_beginning_and_a_digest() -> None:
    short = "x" * 80
    assert f"/{short}/" in unit_slice("s", P0, short, P0)
    long = unit_slice("s", P0, "x" * 81, P0).split("/")[2]
    assert long.startswith("x" * 40 + "%.")
    assert len(long) == 40 + 2 + 32
    emoji = unit_slice("s", P0, "😀" * 21, P0).split("/")[2]  # 84 bytes
    assert emoji.startswith("😀" * 21 + "%.")
    ten_kilobytes = ["/%😀" * 2000 + end for end in ("a", "b")]
    one, other = (unit_slice("s", P0, name, P0).split("/")[2] for name in ten_kilobytes)
    assert one != other
    assert len(one.encode()) < 300
    # Whoever knows the digest cannot choose a value that is told alike.
    assert unit_slice("s", P0, long, P0).split("/")[2] != long


@given(names, names, times, times, times)
@example("a", "a0", P0, P0, P0)
@example("a", "a/b", P0, P0, P0)
@example("a%2Fb", "a/b", P0, P0, P0)
@example("x" * 81, "x" * 82, P0, P0, P0)
def test_unit_range_contains_only_its_own_slices_from_low(
    name: str, other: str, part: datetime, low: datetime, slice_from: datetime
) -> None:
    first, behind = unit_range("s", part, name, low)
    own = unit_slice("s", part, name, slice_from)
    assert (first <= own < behind) is (own >= unit_slice("s", part, name, low))
    assert (first <= own) is (own[-24:] >= first[-24:])
    if other != name:
        assert not first <= unit_slice("s", part, other, slice_from) < behind
    later = part + DAY if part.year < 9999 else part - DAY
    assert not first <= unit_slice("s", later, name, slice_from) < behind
    for source in ("s0", "s-", "s.", "S", "ss", "r"):
        assert not first <= unit_slice(source, part, name, slice_from) < behind
        assert not snapshot_range("s")[0] <= own.replace("s/", f"{source}/", 1) < "s0"
    assert snapshot_range("s")[0] <= own < snapshot_range("s")[1]
    assert (first < behind) is (first.encode() < behind.encode())


@given(st.one_of(
    st.lists(st.integers(-(10**39) + 1, 10**39 - 1), min_size=2, max_size=5),
    st.lists(st.decimals(-1000, 1000, places=6), min_size=2, max_size=5),
    st.lists(st.one_of(st.floats(-1e20, 1e20), st.integers(-10, 10)), min_size=2, max_size=5),
    st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=5),
    st.lists(st.dates(), min_size=2, max_size=5),
    st.lists(st.text(), min_size=2, max_size=5),
))  # fmt: skip
def test_column_slice_text_sorts_like_its_values(values: list[Any]) -> None:
    assert sorted(values, key=lambda v: column_slice("s", v)) == sorted(values)
    texts = {column_slice("s", value) for value in values}
    assert len(texts) == len(set(values))
    low = min(values)
    assert all(column_slice("s", low) <= text < "s0" for text in texts)
    assert column_slice("s", None) <= min(texts)


def test_the_text_of_a_columns_slice() -> None:
    assert column_slice("s", 42) == "s/1" + "0" * 37 + "42"
    assert column_slice("s", 10**39 - 1) == "s/1" + "9" * 39
    assert column_slice("s", Decimal(0)) == "s/1" + "0" * 39
    assert column_slice("s", -1) == "s/0" + "9" * 39
    assert column_slice("s", Decimal("1.50")) == "s/1" + "0" * 38 + "1.5"
    when = datetime(2020, 2, 1, 1, 0, 0, 5)  # noqa: DTZ001  # taken for UTC, as watermarks are
    assert column_slice("s", when) == "s/2020-02-01T01:00:00.000005Z"
    assert column_slice("s", date(2020, 2, 1)) == "s/2020-02-01"
    assert column_slice("s", "a/b%") == "s/a/b%"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("NaN"), 10**39, True, b"a", [1], 1e300]
)
def test_column_slice_rejects_values_without_an_order(value: Any) -> None:
    with pytest.raises(UnitError):
        column_slice("s", value)


def test_ranges_are_what_a_group_may_hold() -> None:
    replace = (unit_range("s", P0, "a/😀", P0), snapshot_range("s"))
    group = Group("s", 1, 1, "b", (), replace)
    assert decode_group(encode_group(group), "there", "s", 1) == group
    assert snapshot_range("s")[0] <= column_slice("s", None) < snapshot_range("s")[1]

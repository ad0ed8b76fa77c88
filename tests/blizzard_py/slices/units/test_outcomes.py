"""State changes by reads, failures and operators, and the folding of closed units."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from blizzard_core.errors import StateError, UnitError
from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.outcomes import (
    mark_units,
    record_failure,
    record_success,
    replaced_range,
    slice_texts,
    with_high,
)
from blizzard_py.slices.units.schemes import partitions
from blizzard_py.slices.units.state import OpenUnit, UnitReading, UnitsState, check_units

DAY = timedelta(days=1)
NOW = datetime(2020, 2, 22, 9, 30, tzinfo=UTC)


def feb(number: float) -> str:
    return stamp(datetime(2020, 2, 1, tzinfo=UTC) + DAY * (number - 1))


KEY = f"{feb(1)}/id1"
PARTITION = (moment(feb(1)), moment(feb(30)))


def reading(*slices: float, to: float, key: str = KEY, at: datetime = NOW) -> UnitReading:
    return UnitReading(key, feb(to), tuple(feb(one) for one in slices), feb(to), stamp(at))


def test_a_success_moves_the_high_watermark_and_the_slices() -> None:
    first = record_success(UnitsState(), reading(1, 18, to=21))
    told = OpenUnit(feb(21), (feb(1), feb(18)), stamp(NOW))
    assert first == UnitsState(open={KEY: told})
    second = record_success(first, reading(18, 19, to=22))
    assert second.open[KEY].slices == (feb(1), feb(18), feb(19))
    assert second.open[KEY].high == feb(22)
    again = record_success(second, reading(1, 19, to=22))
    assert again.open[KEY].slices == (feb(1), feb(19))
    grown = record_success(again, reading(22, to=23))
    assert grown.open[KEY].slices == (feb(1), feb(19), feb(22))


def test_a_reading_that_begins_within_a_slice_is_refused() -> None:
    first = record_success(UnitsState(), reading(1, 18, to=21))
    with pytest.raises(StateError, match="within a slice"):
        record_success(first, reading(17, 19, to=22))
    shut = UnitsState(closed_to={"id1": feb(30)})
    with pytest.raises(StateError, match="within a slice"):
        record_success(shut, reading(17, 19, to=30))


def test_a_reading_beyond_what_was_read_leaves_what_is_there() -> None:
    first = record_success(UnitsState(), reading(1, to=10))
    after = record_success(first, reading(12, to=20))  # abstinence: a download is not read twice
    assert after.open[KEY] == OpenUnit(feb(20), (feb(1), feb(12)), stamp(NOW))


def test_of_many_slices_the_first_and_the_last_are_known() -> None:
    state = record_success(UnitsState(), reading(1, to=2))
    for step in range(100):
        low = 2 + step / 10
        state = check_units(record_success(state, reading(low, to=low + 0.1)), "units")
    known = state.open[KEY].slices
    assert len(known) == 33
    assert known[0] == feb(1)
    assert known[-1] == feb(2 + 99 / 10)


def test_each_failure_doubles_the_pause_up_to_a_day() -> None:
    state = record_success(UnitsState(), reading(1, 18, to=21))
    before = state.open[KEY]
    pauses = []
    for _ in range(40):
        state = record_failure(state, reading(18, to=22), NOW, "GET /surveys:\n  503  \x1b[31m")
        pauses.append(moment(state.open[KEY].next_try or "") - NOW)
    assert pauses[:4] == [timedelta(seconds=60 * 2**power) for power in range(4)]
    assert pauses[-1] == DAY
    assert all(later >= sooner for sooner, later in pairwise(pauses))
    told = state.open[KEY]
    assert (told.high, told.slices, told.read_at) == (before.high, before.slices, before.read_at)
    assert told.failures == 40
    assert told.error == "GET /surveys: 503 \\x1b[31m"
    healed = record_success(state, reading(18, to=22)).open[KEY]
    assert (healed.failures, healed.next_try, healed.error) == (0, None, None)


def test_a_unit_that_never_succeeded_has_no_high_watermark() -> None:
    state = record_failure(UnitsState(), reading(1, to=21), NOW, "x" * 10_000)
    assert state.open[KEY].high is None
    assert len(state.open[KEY].error or "") <= 500


def test_reopened_unit_that_fails_stays_complete() -> None:
    shut = UnitsState(closed_to={"id1": feb(30)})
    state = record_failure(shut, reading(1, to=30), NOW, "no")
    assert state.open[KEY].high == feb(30)


def test_success_clears_marks_and_marking_ends_a_pause() -> None:
    state = record_failure(UnitsState(), reading(1, to=21), NOW, "no")
    state = mark_units(state, [KEY, f"{feb(1)}/id2", KEY])
    assert state.redo == (KEY, f"{feb(1)}/id2")
    assert state.open[KEY].next_try is None
    state = record_failure(state, reading(1, to=21), NOW, "no")
    waits = mark_units(state, [KEY])
    assert waits == state
    assert record_success(state, reading(1, to=21)).redo == (f"{feb(1)}/id2",)
    with pytest.raises(StateError):
        mark_units(state, ["id1"])
    with pytest.raises(UnitError, match="20,001"):
        mark_units(UnitsState(), [f"{feb(1)}/{number}" for number in range(20_001)])


def test_a_high_watermark_is_set_to_where_a_slice_begins() -> None:
    state = record_success(UnitsState(), reading(1, 18, to=21))
    lower = with_high(state, KEY, PARTITION, moment(feb(20))).open[KEY]
    assert (lower.high, lower.slices) == (feb(18), (feb(1),))
    higher = with_high(state, KEY, PARTITION, moment(feb(25))).open[KEY]
    assert (higher.high, higher.slices) == (feb(25), (feb(1), feb(18), feb(21)))
    same = with_high(state, KEY, PARTITION, moment(feb(21))).open[KEY]
    assert (same.high, same.slices) == (feb(21), (feb(1), feb(18)))
    for none in (None, moment(feb(3))):
        assert with_high(state, KEY, PARTITION, none).open[KEY].high is None
    fresh = with_high(UnitsState(), KEY, PARTITION, moment(feb(5))).open[KEY]
    assert (fresh.high, fresh.slices) == (feb(5), (feb(1),))
    shut = UnitsState(closed_to={"id1": feb(30)})
    assert with_high(shut, KEY, PARTITION, moment(feb(20))).open[KEY] == OpenUnit()
    for wrong in (moment(feb(1)), moment(feb(31))):
        with pytest.raises(UnitError, match="within"):
            with_high(state, KEY, PARTITION, wrong)
    with pytest.raises(UnitError, match="begin"):
        with_high(state, f"{feb(2)}/id1", PARTITION, None)


def test_replaced_range_covers_all_slice_texts() -> None:
    one = reading(1, 18, to=21)
    first, behind = replaced_range("s", one)
    texts = slice_texts("s", one)
    assert texts == (f"s/{feb(1)}/id1/{feb(1)}", f"s/{feb(1)}/id1/{feb(18)}")
    assert all(first <= text < behind for text in texts)
    assert replaced_range("s", reading(18, to=21))[0] == texts[1]


# -- what is closed ---------------------------------------------------------------

DAYS = partitions(moment(feb(1)), moment(feb(9.5)), "daily")


def read_days(*numbers: float, at: datetime = NOW) -> UnitsState:
    state = UnitsState()
    for number in numbers:
        key = f"{feb(number)}/id1"
        state = record_success(state, reading(number, to=number + 1, key=key, at=at))
    return state


def test_complete_units_out_of_grace_are_one_time() -> None:
    state = read_days(1, 2, 3, 4, 5, 6, 7, 8)
    assert compact(state, DAYS, ["id1"], timedelta(0)) == UnitsState(closed_to={"id1": feb(9)})
    graced = compact(state, DAYS, ["id1"], -3 * DAY)
    assert graced.closed_to == {"id1": feb(6)}
    assert list(graced.open) == [f"{feb(number)}/id1" for number in (6, 7, 8)]
    assert compact(graced, DAYS, ["id1"], -3 * DAY) == graced


def test_the_last_partition_stays_open_since_it_may_grow() -> None:
    whole = partitions(moment(feb(1)), moment(feb(4)), "daily")
    state = compact(read_days(1, 2, 3), whole, ["id1"], timedelta(0))
    assert state.closed_to == {"id1": feb(3)}
    assert list(state.open) == [f"{feb(3)}/id1"]


def test_a_unit_that_is_not_complete_keeps_all_behind_it_open() -> None:
    for missing in (
        read_days(1, 2, 4, 5, 6, 7, 8),
        record_failure(
            read_days(1, 2, 4, 5, 6, 7, 8), reading(3, to=4, key=f"{feb(3)}/id1"), NOW, "no"
        ),
        mark_units(read_days(1, 2, 3, 4, 5, 6, 7, 8), [f"{feb(3)}/id1"]),
    ):
        state = compact(missing, DAYS, ["id1"], timedelta(0))
        assert state.closed_to == {"id1": feb(3)}
        assert f"{feb(8)}/id1" in state.open


def test_a_unit_that_was_not_read_since_its_grace_is_not_closed() -> None:
    early = moment(feb(4))
    state = record_success(read_days(1, at=early), reading(8, to=9, key=f"{feb(8)}/id1"))
    assert compact(state, DAYS, ["id1"], -3 * DAY).closed_to == {}
    assert compact(state, DAYS, ["id1"], -2 * DAY).closed_to == {"id1": feb(2)}


def test_reopened_unit_is_closed_again() -> None:
    shut = UnitsState(closed_to={"id1": feb(9)})
    again = record_success(shut, reading(3, to=4, key=f"{feb(3)}/id1"))
    assert f"{feb(3)}/id1" in again.open
    assert compact(again, DAYS, ["id1"], timedelta(0)) == shut
    forgotten = with_high(shut, f"{feb(3)}/id1", DAYS[2], None)
    assert compact(forgotten, DAYS, ["id1"], timedelta(0)) == forgotten


def test_units_before_a_moving_start_are_removed() -> None:
    state = mark_units(
        record_failure(read_days(2, 3, 4), reading(1, to=2, key=f"{feb(1)}/id1"), NOW, "no"),
        [f"{feb(1)}/id1", f"{feb(3)}/id1"],
    )
    after = compact(state, DAYS[1:], ["id1"], timedelta(0))
    assert after.closed_to == {"id1": feb(3)}
    assert sorted(after.open) == [f"{feb(3)}/id1", f"{feb(4)}/id1"]
    assert after.redo == (f"{feb(3)}/id1",)


def test_values_that_are_no_longer_configured_stay_as_they_are() -> None:
    state = read_days(1, 2, 3)
    assert compact(state, DAYS, ["other"], timedelta(0)) == state
    assert compact(state, [], ["id1"], timedelta(0)) == state
    assert compact(UnitsState(), DAYS, ["id1"], timedelta(0)) == UnitsState()


def test_forgotten_unit_is_fully_read_before_a_partial_watermark() -> None:
    """Its rows in the table start with its partition and are replaced together."""
    key, partition = f"{feb(1)}/id1", (moment(feb(1)), moment(feb(20)))
    middle = moment(feb(15))
    read = UnitsState(open={key: OpenUnit(feb(20), (feb(1),), feb(20))})
    for high in (None, middle):
        forgotten = with_high(read, key, partition, high)
        assert forgotten.open[key].high is None
        with pytest.raises(UnitError, match="Read the whole unit first"):
            with_high(forgotten, key, partition, middle)
        assert with_high(forgotten, key, partition, partition[1]).open[key].high == feb(20)
    assert with_high(UnitsState(), key, partition, middle).open[key].high == feb(15)

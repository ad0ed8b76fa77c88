"""Leases: who is alive, by observed changes alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.replicas.leases import Replica, SeenLease, is_alive, living, observe, replica_of

OWN = Replica("pod-a", "a" * 12, "0" * 8)
OTHER = Replica("pod-b-7", "b" * 12, "0" * 8)
LEASE = 30.0


def test_the_name_of_a_lease_says_its_replica() -> None:
    assert replica_of(OTHER.object_name) == OTHER
    assert replica_of("notes.txt") is None
    assert str(OTHER) == "pod-b-7-bbbb"


def observed_after(*times: tuple[float, float]) -> SeenLease:
    """Return the lease_seen of the other one after looks: seconds since the last, and its time."""
    leases: dict[Replica, SeenLease] = {}
    for gap, time in times:
        leases = observe(leases, {OWN: 1000.0, OTHER: time}, OWN, gap, LEASE)
    return leases[OTHER]


def test_a_lease_that_stays_the_same_for_its_length_is_dead() -> None:
    unchanged = [(10.0, 990.0)] * 3
    assert is_alive(observed_after((10.0, 980.0), (10.0, 990.0), *unchanged[:2]), LEASE)
    assert not is_alive(observed_after((10.0, 980.0), (10.0, 990.0), *unchanged), LEASE)


def test_a_changed_lease_is_alive_again() -> None:
    assert is_alive(observed_after(*[(10.0, 990.0)] * 9, (10.0, 980.0)), LEASE)


def test_time_in_which_nobody_looked_kills_nobody() -> None:
    # We were paused, or the store was: one look afterwards proves little.
    assert is_alive(observed_after((10.0, 990.0), (5000.0, 990.0)), LEASE)


def test_a_lease_that_was_old_when_first_seen_is_dead_at_once() -> None:
    assert not is_alive(observed_after((float("inf"), 969.0)), LEASE)
    assert is_alive(observed_after((float("inf"), 971.0)), LEASE)
    # The clocks of machines do not count: this is the store's time of both objects.


def test_a_removed_lease_gets_no_source_but_still_holds_its_own() -> None:
    before = {OWN: SeenLease(1.0), OTHER: SeenLease(1.0)}
    after = observe(before, {OWN: 2.0}, OWN, 10.0, LEASE)
    assert living(after, LEASE) == {OWN}
    assert is_alive(after[OTHER], LEASE)
    for _ in range(3):
        after = observe(after, {OWN: 2.0}, OWN, 10.0, LEASE)
    assert OTHER not in after


@given(st.lists(st.tuples(st.floats(10.0, 10.4), st.booleans()), min_size=1, max_size=40))
def test_who_renews_in_time_is_never_dead(looks: list[tuple[float, bool]]) -> None:
    """At least one of two looks in a row sees a renewal."""
    leases: dict[Replica, SeenLease] = {}
    time, missed = 1000.0, False
    for gap, renews in looks:
        missed = not renews and not missed
        time += 0.0 if missed else 10.0
        leases = observe(leases, {OWN: time, OTHER: time}, OWN, gap, LEASE)
        assert is_alive(leases[OTHER], LEASE)


@pytest.mark.parametrize("gap", [10.0, 11.0, 14.0])
def test_death_is_seen_within_a_lease_and_two_looks(gap: float) -> None:
    leases = observe({}, {OWN: 1000.0, OTHER: 1000.0}, OWN, gap, LEASE)
    secs = 0.0
    while is_alive(leases[OTHER], LEASE):
        leases = observe(leases, {OWN: 1000.0, OTHER: 1000.0}, OWN, gap, LEASE)
        secs += gap
    assert LEASE <= secs <= LEASE + gap

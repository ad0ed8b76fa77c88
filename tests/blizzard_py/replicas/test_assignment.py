"""The assignment of sources to replicas: fair, agreed without asking, and stable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.replicas.assignment import NextStep, assign, next_step, units_of

NAMES = st.text("abcdef0123456789", min_size=1, max_size=8)
UNITS = st.dictionaries(NAMES, st.integers(1, 5), max_size=40)
REPLICAS = st.sets(NAMES, min_size=1, max_size=7)


@given(UNITS, REPLICAS)
def test_each_unit_has_one_replica_that_lives(units: dict[str, int], replicas: set[str]) -> None:
    found = assign(units, replicas)
    assert found.keys() == units.keys()
    assert set(found.values()) <= replicas


@given(UNITS, REPLICAS)
def test_assignment_does_not_depend_on_any_order(units: dict[str, int], replicas: set[str]) -> None:
    turned = dict(reversed(units.items()))
    assert assign(units, sorted(replicas)) == assign(turned, sorted(replicas, reverse=True))


@given(UNITS, REPLICAS)
def test_no_replica_gets_more_than_its_share(units: dict[str, int], replicas: set[str]) -> None:
    found = assign(units, replicas)
    share = -(-sum(units.values()) // len(replicas))
    heaviest = max(units.values(), default=0)
    for replica in replicas:
        load = sum(units[unit] for unit, chosen in found.items() if chosen == replica)
        # What is not divided may be more than a share; beyond it one unit at most comes on top.
        assert load <= share or load <= share - 1 + heaviest
    if heaviest == 1:
        loads = [sum(chosen == replica for chosen in found.values()) for replica in replicas]
        assert max(loads) <= share


def test_nobody_gets_anything_without_replicas() -> None:
    assert assign({"a": 1}, set()) == {}


def test_few_sources_move_when_a_replica_goes() -> None:
    units = {f"s{n}": 1 for n in range(300)}
    moved = 0
    for number in range(20):
        replicas = {f"{number}-{n}" for n in range(5)}
        gone = f"{number}-0"
        before, after = assign(units, replicas), assign(units, replicas - {gone})
        moved += sum(before[u] != gone and before[u] != after[u] for u in units)
    assert moved / (20 * 300) < 0.05


@pytest.mark.parametrize(
    ("owns", "is_assigned", "is_current", "elsewhere_secs", "step"),
    [
        (False, True, True, 0.0, NextStep.TAKE),
        (False, True, False, 0.0, NextStep.STAND_BY),
        (False, False, True, 99.0, NextStep.STAND_BY),
        (True, True, True, 0.0, NextStep.WORK),
        # Leases cannot be read: who has a source goes on.
        (True, True, False, 0.0, NextStep.WORK),
        (True, False, True, 29.9, NextStep.WORK),
        (True, False, True, 30.0, NextStep.RELEASE),
    ],
)
def test_next_step_follows_assignment_and_view(
    owns: bool, is_assigned: bool, is_current: bool, elsewhere_secs: float, step: NextStep
) -> None:
    found = next_step(
        owns=owns,
        is_assigned=is_assigned,
        is_current=is_current,
        elsewhere_secs=elsewhere_secs,
        lease=30.0,
    )
    assert found is step


def test_sources_with_one_queue_are_one_unit() -> None:
    shared = [("p/c", "q1"), ("p/a", "q1"), ("p/b", None), ("p/d", "q2")]
    assert units_of(shared) == {"p/a": "p/a", "p/b": "p/b", "p/c": "p/a", "p/d": "p/d"}

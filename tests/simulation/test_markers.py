"""A bounded share of the schedules of complete partitions, and their guards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from blizzard_core.log import silence
from tests.simulation.markers.play import played

SEEDS = 200
# Guards that are missed within so many seeds; the first that misses one ends the search.
GUARD_SEEDS = 3000
SOON = ["markers_are_read_again", "outputs_before_markers", "revocations_before_outputs"]


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Log nothing, and look for unused circles among what comes now only."""
    silence()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.promise("G-225")
def test_no_schedule_has_a_wrong_marker() -> None:
    found = played(1, SEEDS)
    assert not found.wrong
    assert found.counts["markers"] > SEEDS / 2
    assert found.counts["consumers told complete"] > SEEDS / 2


@pytest.mark.parametrize("guard", SOON)
def test_removed_guard_is_missed(guard: str) -> None:
    assert played(1, GUARD_SEEDS, guard).wrong

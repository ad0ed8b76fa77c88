"""The tally of a journal: any set of batches that is another one is noticed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import StateError
from blizzard_py.state.journal_tally import JournalTally, check_tally, tally_of

BATCHES = st.sets(st.uuids(version=4).map(str), max_size=20)


@pytest.mark.promise("G-210")
@given(BATCHES, BATCHES, st.randoms(use_true_random=False))
def test_a_tally_agrees_with_its_own_batches_only(
    ours: set[str], others: set[str], chance: random.Random
) -> None:
    shuffled = sorted(ours)
    chance.shuffle(shuffled)
    tally = tally_of(shuffled)
    assert tally.agrees_with(ours)
    assert tally.agrees_with(others) == (ours == others)
    assert tally.first == min(ours, default="")
    assert tally.count == len(ours)


def test_a_journal_that_lacks_a_batch_is_refused() -> None:
    tally = JournalTally().with_batch("a").with_batch("b")
    check_tally(tally, ["b", "a"], "mem://lake/_blizzard/journal/s")
    for found in ([], ["a"], ["a", "c"], ["a", "b", "c"]):
        with pytest.raises(StateError, match=r"journal/s: holds .* `blizzard checkpoint rebuild`"):
            check_tally(tally, found, "mem://lake/_blizzard/journal/s")

"""Ids of batches rise with each batch of a source, whatever machines' clocks say."""

from __future__ import annotations

import uuid

import pytest

from blizzard_py.ingest.publish import OutputIdGenerator
from blizzard_py.state.journal_tally import millis_of, raise_id
from blizzard_py.state.source_state import NO_BATCH

NOW = 1_750_000_000.0


def made(at: float) -> str:
    return OutputIdGenerator().fresh(1, at)[0]


def test_an_id_of_later_stays_as_it_is() -> None:
    later = made(NOW + 1)
    assert raise_id(later, made(NOW)) == later
    assert raise_id(later, NO_BATCH) == raise_id(later, "") == later


@pytest.mark.promise("G-205")
def test_an_id_of_a_clock_put_back_comes_a_millisecond_later() -> None:
    last = made(NOW + 7200)
    for _ in range(3):
        found = raise_id(made(NOW), last)
        assert found > last
        assert millis_of(found) == millis_of(last) + 1
        assert uuid.UUID(found).version == 7
        last = found


def test_second_id_of_a_millisecond_moves_to_the_next_one() -> None:
    first, second = OutputIdGenerator().fresh(2, NOW)
    assert millis_of(raise_id(second, first)) == millis_of(first) + 1

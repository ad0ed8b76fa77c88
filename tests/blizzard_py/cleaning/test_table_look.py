"""The look at the table's log: outputs that are committed, and RESTORE."""

from __future__ import annotations

import json

import pytest

from blizzard_py.cleaning.table_look import look_at_table
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.cleaning_state import CleaningState, Sighting
from tests.support.memory_store import MemoryStorage


def _batch(name: str, *finals: str) -> Batch:
    outputs = tuple(PlannedOutput("", final, 1, 1, final) for final in finals)
    return Batch(name, 1, "publishing", 0.0, (), 0.0, results=BatchResults(outputs=outputs))


def _commit(sink: MemoryStorage, version: int, *paths: str, operation: str = "WRITE") -> None:
    actions: list[object] = [{"commitInfo": {"operation": operation}}]
    actions += [{"add": {"path": path, "size": 1, "dataChange": True}} for path in paths]
    text = "\n".join(map(json.dumps, actions))
    sink.put_atomic(f"_delta_log/{version:020d}.json", text.encode())


def _look(sink: MemoryStorage, state: CleaningState, *batches: Batch) -> CleaningState:
    return look_at_table(sink, state, batches, batches[-1].batch, 50.0, 2)


def test_batches_up_to_the_first_incomplete_one_are_seen() -> None:
    sink = MemoryStorage()
    _commit(sink, 0)
    _commit(sink, 1, "a", "b1", "c")
    batches = (_batch("1", "a"), _batch("2", "b1", "b2"), _batch("3", "c"))
    found = _look(sink, CleaningState(), *batches)
    assert found == CleaningState((Sighting("1", 50.0),), "", 1)
    _commit(sink, 2, "b2")
    assert _look(sink, found, *batches[1:]).sightings[-1] == Sighting("3", 50.0)


def test_no_batch_is_seen_without_a_log() -> None:
    assert _look(MemoryStorage(), CleaningState(), _batch("1", "a")) == CleaningState()


@pytest.mark.parametrize("has_looked_before", [False, True])
def test_a_restore_bars_all_batches_so_far(*, has_looked_before: bool) -> None:
    sink = MemoryStorage()
    _commit(sink, 0)
    _commit(sink, 1, "a")
    state = CleaningState()
    if has_looked_before:
        state = _look(sink, state, _batch("1", "a"))
    _commit(sink, 2, operation="RESTORE")
    _commit(sink, 3, "b")
    assert _look(sink, state, _batch("2", "b")) == CleaningState((), "2", 3)


def test_a_log_that_lacks_commits_bars_all_batches_so_far() -> None:
    sink = MemoryStorage()
    _commit(sink, 7, "b")
    state = CleaningState((Sighting("1", 0.0),), "", 4)
    assert _look(sink, state, _batch("2", "b")) == CleaningState((), "2", 7)


def test_a_restore_is_judged_once() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, operation="RESTORE")
    state = _look(sink, CleaningState(), _batch("1", "a"))
    _commit(sink, 1, "b")
    assert _look(sink, state, _batch("2", "b")).sightings == (Sighting("2", 50.0),)


def test_a_restore_is_found_without_new_batches() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "a")
    state = _look(sink, CleaningState(), _batch("1", "a"))
    _commit(sink, 1, operation="RESTORE")
    assert look_at_table(sink, state, (), "1", 60.0, 2) == CleaningState((), "1", 1)

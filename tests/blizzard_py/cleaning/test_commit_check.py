"""The look at the table's log: outputs that are committed, and RESTORE."""

from __future__ import annotations

import json

import pytest

from blizzard_core.errors import NotFound, Unavailable
from blizzard_py.cleaning.commit_check import check_commits
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.source_state import CleaningState, CommitCheck
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
    return check_commits(sink, state, batches, batches[-1].batch, 50.0, 2)


def _is_barred(state: CleaningState, last: str) -> bool:
    return (state.commit_checks, state.done, state.held) == ((), last, {})


def test_batches_up_to_the_first_incomplete_one_are_seen() -> None:
    sink = MemoryStorage()
    _commit(sink, 0)
    _commit(sink, 1, "a", "b1", "c")
    batches = (_batch("1", "a"), _batch("2", "b1", "b2"), _batch("3", "c"))
    found = _look(sink, CleaningState(), *batches)
    assert (found.commit_checks, found.done, found.log_version) == (
        (CommitCheck("1", 50.0),),
        "",
        1,
    )
    _commit(sink, 2, "b2")
    assert _look(sink, found, *batches[1:]).commit_checks[-1] == CommitCheck("3", 50.0)


def test_no_batch_is_seen_without_a_log() -> None:
    assert _look(MemoryStorage(), CleaningState(), _batch("1", "a")) == CleaningState(at=50.0)


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
    assert _is_barred(_look(sink, state, _batch("2", "b")), "2")


def test_a_log_that_lacks_commits_bars_all_batches_so_far() -> None:
    sink = MemoryStorage()
    _commit(sink, 7, "b")
    state = CleaningState((CommitCheck("1", 0.0),), "", 4)
    assert _is_barred(_look(sink, state, _batch("2", "b")), "2")


def test_a_restore_is_judged_once() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, operation="RESTORE")
    state = _look(sink, CleaningState(), _batch("1", "a"))
    _commit(sink, 1, "b")
    assert _look(sink, state, _batch("2", "b")).commit_checks == (CommitCheck("2", 50.0),)


def test_a_restore_is_found_without_new_batches() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "a")
    state = _look(sink, CleaningState(), _batch("1", "a"))
    _commit(sink, 1, operation="RESTORE")
    assert _is_barred(check_commits(sink, state, (), "1", 60.0, 2), "1")


def _removing(sink: MemoryStorage, version: int, path: str, **more: object) -> None:
    actions = [{"remove": {"path": path, "dataChange": True, **more}}]
    text = "\n".join(map(json.dumps, actions))
    sink.put_atomic(f"_delta_log/{version:020d}.json", text.encode())


def test_removed_rows_hold_the_folder_without_any_name() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "d=1/a", "d=2/b")
    state = _look(sink, CleaningState(), _batch("1", "d=1/a"), _batch("2", "d=2/b"))
    _removing(sink, 1, "d=1/a")
    assert check_commits(sink, state, (), "2", 60.0, 2).held == {"d=1": "2"}


def test_files_that_only_move_rows_hold_nothing() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "d=1/a")
    state = _look(sink, CleaningState(), _batch("1", "d=1/a"))
    moved = [
        {"remove": {"path": "d=1/a", "dataChange": False}},
        {"add": {"path": "d=1/b", "size": 1, "dataChange": False}},
    ]
    sink.put_atomic(f"_delta_log/{1:020d}.json", "\n".join(map(json.dumps, moved)).encode())
    own = [{"commitInfo": {"penguin": {}}}, {"remove": {"path": "d=1/b", "dataChange": True}}]
    sink.put_atomic(f"_delta_log/{2:020d}.json", "\n".join(map(json.dumps, own)).encode())
    assert not check_commits(sink, state, (), "1", 60.0, 2).held
    _removing(sink, 3, "d=1/c", dataChange=False)  # nothing is added for it
    assert check_commits(sink, state, (), "1", 60.0, 2).held


@pytest.mark.parametrize("versions", [0, 1, 2, 5])
def test_a_recreated_table_bars_all_batches_so_far(versions: int) -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "a")
    _commit(sink, 1)
    state = _look(sink, CleaningState(), _batch("1", "a"))
    sink.delete_tree("_delta_log")
    for version in range(versions):
        _commit(sink, version, operation="ANOTHER")
    assert _is_barred(check_commits(sink, state, (), "1", 60.0, 2), "1")


def test_commits_removed_while_they_are_read_are_an_error() -> None:
    sink = MemoryStorage()
    _commit(sink, 0, "a")
    state = _look(sink, CleaningState(), _batch("1", "a"))
    _commit(sink, 1)
    read = sink.read

    def removed(path: str) -> bytes:
        if path.endswith("1.json"):
            raise NotFound(path)
        return read(path)

    sink.read = removed  # type: ignore[method-assign]  # another process cleans the log up
    with pytest.raises(Unavailable, match="removed while they were read"):
        check_commits(sink, state, (), "1", 60.0, 2)

"""The fence record of a source: what contradicts a checkpoint, and who may write it."""

from __future__ import annotations

from unittest import mock

import pytest

from blizzard_core.errors import FencedError, StateError
from blizzard_py.state.fence_record import FenceFile, FenceRecord, contradiction, fence_path
from blizzard_py.state.source_state import CommitPoint
from tests.support.memory_store import MemoryStorage

KNOWN = CommitPoint(7, "b7", "b6")


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (FenceRecord(3, 7, "b7"), None),
        (FenceRecord(3, 6, "b6"), None),  # the checkpoint is saved first
        (FenceRecord(3), None),  # somebody has begun, and committed nothing yet
        (FenceRecord(3, 8, "b8"), "ends at number 7"),
        (FenceRecord(3, 7, "x7"), "which it does not know"),
        (FenceRecord(3, 6, "x6"), "which it does not know"),
        (FenceRecord(3, 5, "b5"), "of another moment"),
        (FenceRecord(3, 7, "b7", "clicks_main"), "renamed to clicks_main"),
    ],
)
def test_a_record_contradicts_other_commit_points(record: FenceRecord, says: str | None) -> None:
    found = contradiction(KNOWN, record)
    assert found is None if says is None else says in (found or "")


def owner(sink: MemoryStorage, epoch: int, known: CommitPoint) -> FenceFile:
    fence = FenceFile(sink, "s")
    fence.read()
    fence.take(epoch, known)
    return fence


def test_a_record_says_what_its_owner_wrote_last() -> None:
    sink = MemoryStorage()
    assert FenceFile(sink, "s").read() is None
    fence = owner(sink, 4, CommitPoint())
    fence.advance(CommitPoint(1, "b1"))
    assert FenceFile(sink, "s").read() == FenceRecord(4, 1, "b1")
    fence.move("t")
    assert FenceFile(sink, "s").read() == FenceRecord(4, 1, "b1", "t")


def test_a_sleeper_cannot_write_once_another_has_taken_over() -> None:
    sink = MemoryStorage()
    sleeper = owner(sink, 1, CommitPoint())
    owner(sink, 2, CommitPoint()).advance(CommitPoint(1, "b1"))
    with pytest.raises(FencedError, match="another process has published"):
        sleeper.advance(CommitPoint(1, "x1"))
    assert FenceFile(sink, "s").read() == FenceRecord(2, 1, "b1")


def test_two_that_start_together_leave_the_later_epoch_alone() -> None:
    sink = MemoryStorage()
    first, second = FenceFile(sink, "s"), FenceFile(sink, "s")
    first.read()
    second.read()
    first.take(1, CommitPoint())
    second.take(2, CommitPoint())
    with pytest.raises(FencedError):
        first.advance(CommitPoint(1, "b1"))
    with pytest.raises(FencedError):
        first.take(1, CommitPoint())
    second.advance(CommitPoint(1, "c1"))
    assert FenceFile(sink, "s").read() == FenceRecord(2, 1, "c1")


def test_older_owner_is_fenced_after_a_newer_one_starts() -> None:
    sink = MemoryStorage()
    FenceFile(sink, "s").check()  # before it takes anything
    first = owner(sink, 1, CommitPoint())
    first.check()
    owner(sink, 2, CommitPoint())
    with pytest.raises(FencedError, match="another process has"):
        first.check()


def test_a_write_whose_answer_was_lost_counts_as_written() -> None:
    sink = MemoryStorage()
    fence = owner(sink, 1, CommitPoint())
    twice = sink.put_if

    def repeated(path: str, data: bytes, version: str | None) -> str:
        twice(path, data, version)  # its answer is lost, so the client sends it again
        return twice(path, data, version)

    with mock.patch.object(sink, "put_if", repeated):
        fence.advance(CommitPoint(1, "b1"))
        fence.advance(CommitPoint(2, "b2"))
    assert FenceFile(sink, "s").read() == FenceRecord(1, 2, "b2")


@pytest.mark.parametrize("content", [b"{", b"null", b'{"epoch": "x"}', b'{"odd": 1}'])
def test_a_record_that_is_not_understood_stops(content: bytes) -> None:
    sink = MemoryStorage()
    sink.put_atomic(fence_path("s"), content)
    with pytest.raises(StateError, match=r"_blizzard_fence/s\.json"):
        FenceFile(sink, "s").read()

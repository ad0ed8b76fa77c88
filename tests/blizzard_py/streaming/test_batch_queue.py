"""The newest batch as a query sees it, and when: pauses are counted, and none is made."""

from __future__ import annotations

from pathlib import Path

from blizzard_py.streaming.batch_queue import NewestNumber, begin_after, publish_number

# After a batch Spark asks whether an empty micro-batch is due, and once more to tell who waits.
PROMPT = 3


def test_a_batch_and_the_next_questions_are_answered_at_once(tmp_path: Path) -> None:
    pauses: list[float] = []
    begin_after(tmp_path, 4)
    newest = NewestNumber(tmp_path, pauses.append)
    assert [newest.ask() for _ in range(PROMPT)] == [4] * PROMPT
    publish_number(tmp_path, 5, None)
    assert [newest.ask() for _ in range(PROMPT)] == [5] * PROMPT
    assert pauses == []


def test_repeated_questions_are_held_back_for_a_short_time(
    tmp_path: Path,
) -> None:
    pauses: list[float] = []
    begin_after(tmp_path, 4)
    newest = NewestNumber(tmp_path, pauses.append)
    for _ in range(PROMPT):
        newest.ask()
    assert newest.ask() == 4
    assert 0.1 < sum(pauses) < 0.3


def test_number_published_during_a_pause_is_returned(tmp_path: Path) -> None:
    pauses: list[float] = []

    def pause(secs: float) -> None:
        pauses.append(secs)
        if len(pauses) == 2:
            publish_number(tmp_path, 5, None)

    begin_after(tmp_path, 4)
    newest = NewestNumber(tmp_path, pause)
    for _ in range(PROMPT):
        newest.ask()
    assert newest.ask() == 5
    assert len(pauses) == 2
    assert [newest.ask() for _ in range(PROMPT - 1)] == [5] * (PROMPT - 1)
    assert len(pauses) == 2

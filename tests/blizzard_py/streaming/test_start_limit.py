"""The number of queries that start at the same time."""

from __future__ import annotations

import threading

import pytest

from blizzard_core.errors import Cancelled
from blizzard_py.streaming.query import STARTS, wait_for_turn


def wanted() -> None:
    """Nobody has given up."""


@pytest.mark.promise("G-075")
def test_few_queries_start_at_a_time() -> None:
    at_once: list[int] = []
    starting: set[int] = set()
    together = threading.Barrier(STARTS)

    def start(number: int) -> None:
        with wait_for_turn(wanted):
            starting.add(number)
            together.wait(timeout=60)  # all that may start do so together
            at_once.append(len(starting))
            together.wait(timeout=60)
            starting.discard(number)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(3 * STARTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) == 3 * STARTS
    assert max(at_once) == STARTS


def test_waiting_for_a_turn_can_be_cancelled() -> None:
    def unwanted() -> None:
        raise Cancelled("stopped")

    with (
        wait_for_turn(wanted),
        wait_for_turn(wanted),
        pytest.raises(Cancelled),
        wait_for_turn(unwanted),
    ):
        raise AssertionError("it has no turn")
    with wait_for_turn(wanted), wait_for_turn(wanted):
        pass  # one that gave up took no turn with it


def test_a_start_that_fails_gives_its_turn_back() -> None:
    for _ in range(STARTS + 1):
        with pytest.raises(ValueError, match="start"), wait_for_turn(wanted):
            raise ValueError("start")

"""Threads start where calls run at the same time, and nowhere else."""

from __future__ import annotations

import threading

import pytest

from blizzard_core.threads import ThreadPool


def thread_of(_number: int) -> int:
    return threading.get_ident()


@pytest.mark.parametrize(("threads", "calls"), [(1, 1), (8, 1), (1, 5)])
def test_calls_without_company_run_in_the_callers_thread(threads: int, calls: int) -> None:
    with ThreadPool(threads) as pool:
        assert list(pool.map(thread_of, range(calls))) == [threading.get_ident()] * calls


def test_several_calls_run_at_the_same_time_and_keep_their_order() -> None:
    together = threading.Barrier(3, timeout=60)

    def wait(number: int, name: str) -> str:
        together.wait()  # breaks if one of them has to end before the next begins
        return f"{number}{name}"

    with ThreadPool(3) as pool:
        assert list(pool.map(wait, range(3), "abc")) == ["0a", "1b", "2c"]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_an_error_of_a_call_is_raised(threads: int, calls: int) -> None:
    def fail(number: int) -> None:
        raise ValueError(number)

    with ThreadPool(threads) as pool:
        if calls:
            with pytest.raises(ValueError, match="0"):
                list(pool.map(fail, range(calls)))
        else:
            assert list(pool.map(fail, range(calls))) == []

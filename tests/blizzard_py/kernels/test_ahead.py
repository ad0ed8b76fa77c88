"""Working ahead: the same results in the same order as without, and no more is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.kernels.prefetch import prefetch


@given(
    st.lists(st.integers(0, 5), max_size=30),
    st.integers(1, 4),
    st.integers(1, 12),
    st.none() | st.integers(0, 30),
)
def test_results_and_the_first_failure_are_those_of_map(
    items: list[int], depth: int, budget: int, ends: int | None
) -> None:
    """Items of 0 fail, and the source of them itself after ``ends``."""

    def source() -> Iterator[int]:
        yield from items[:ends]
        if ends is not None:
            raise EOFError

    def work(item: int) -> float:
        return 1 / item

    def outcome(results: Iterator[float]) -> list[object]:
        found: list[object] = []
        try:
            found += results
        except (ZeroDivisionError, EOFError) as error:
            found.append(type(error))
        return found

    with ThreadPoolExecutor(depth) as pool:
        results = prefetch(work, source(), pool, depth, lambda item: item, budget)
        assert outcome(results) == outcome(map(work, source()))


@pytest.mark.parametrize(("depth", "budget", "taken"), [(3, 100, 4), (3, 2, 2), (9, 5, 5)])
def test_prefetch_stays_within_depth_and_budget(depth: int, budget: int, taken: int) -> None:
    source = iter(range(100))
    with ThreadPoolExecutor(2) as pool:
        results = prefetch(abs, source, pool, depth, lambda _: 1, budget)
        assert next(results) == 0
        assert next(source) == taken


def test_items_are_worked_on_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def work(_: int) -> int:
        return both.wait()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(prefetch(work, range(2), pool, 2, lambda _: 1, 10)) == [0, 1]

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.storage.protocol import order_key
from blizzard_py.job import JobFile
from blizzard_py.kernels.packing import FILE_COST_BYTES, pack, task_count

batches = st.lists(
    st.tuples(
        st.text("abcé/-", min_size=1, max_size=6),
        st.integers(0, 1 << 30),
        st.sampled_from(["", "d=1", "d=2", "d=2-x"]),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda item: item[0],
).map(lambda items: [JobFile(*item) for item in items])


@given(batches, st.integers(1, 20))
def test_every_file_is_in_exactly_one_task(files: list[JobFile], tasks: int) -> None:
    packed = pack(files, tasks)
    assert len(packed) <= tasks
    assert all(packed)
    assert sorted(f.path for task in packed for f in task) == sorted(f.path for f in files)


@given(batches, st.integers(1, 20))
def test_tasks_follow_each_other_in_directory_and_path_order(
    files: list[JobFile], tasks: int
) -> None:
    in_order = [file for task in pack(files, tasks) for file in task]
    assert in_order == sorted(files, key=lambda f: (order_key(f.partition), order_key(f.path)))


@given(batches, st.integers(1, 20))
def test_directories_are_in_few_tasks(files: list[JobFile], tasks: int) -> None:
    packed = pack(files, tasks)
    pairs = {(number, file.partition) for number, task in enumerate(packed) for file in task}
    assert len(pairs) < len({file.partition for file in files}) + len(packed)


@given(batches, st.integers(1, 20))
def test_no_task_is_heavier_than_the_average_and_one_file(files: list[JobFile], tasks: int) -> None:
    total = sum(f.size + FILE_COST_BYTES for f in files)
    largest = max(f.size + FILE_COST_BYTES for f in files)
    for task in pack(files, tasks):
        assert sum(f.size + FILE_COST_BYTES for f in task) <= total / tasks + largest


@given(batches, st.integers(1, 20), st.randoms())
def test_the_order_of_discovery_does_not_matter(
    files: list[JobFile], tasks: int, random: Random
) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)
    assert pack(shuffled, tasks) == pack(files, tasks)


@given(batches, st.integers(1, 64))
def test_task_counts_stay_within_their_bounds(files: list[JobFile], parallelism: int) -> None:
    count = task_count(files, parallelism)
    assert 1 <= count <= min(len(files), 4 * parallelism)


def test_task_count_is_small_or_two_to_four_per_slot() -> None:
    def files(number: int, size: int) -> list[JobFile]:
        return [JobFile(f"{i}", size) for i in range(number)]

    assert task_count(files(1, 100), 8) == 1
    assert task_count(files(20, 1000), 8) == 1
    assert task_count(files(100, 1 << 20), 2) == 2
    assert task_count(files(10_000, 2000), 2) == 4
    assert task_count(files(100, 2 << 20), 2) == 4
    assert task_count(files(100, 64 << 20), 2) == 8
    # Half as many where each of all would leave an output that is merged with others.
    assert task_count(files(10, 15 << 20), 2, 40 << 20) == 2
    assert task_count(files(10, 17 << 20), 2, 40 << 20) == 4
    assert task_count(files(10, 7 << 20), 8, 40 << 20) == 8
    assert task_count(files(1, 100), 8, 40 << 20) == 1

"""How a batch's files are divided among tasks. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from blizzard_py.core.storage import order_key
from blizzard_py.settings import JobFile

# What opening a file costs, in bytes that could be read meanwhile.
FILE_COST_BYTES = 16 << 10
# A task below this size costs more to schedule than it saves.
MIN_TASK_BYTES = 512 << 10
# Above this, twice as many tasks even out better and cost nothing that shows.
LARGE_TASK_BYTES = 64 << 20


def task_count(files: Sequence[JobFile], parallelism: int) -> int:
    """Two tasks per slot, four for large batches, fewer for small ones; at least one."""
    cost = sum(_cost(file) for file in files)
    per_slot = 4 if cost > 2 * parallelism * LARGE_TASK_BYTES else 2
    return max(1, min(len(files), per_slot * parallelism, cost // MIN_TASK_BYTES))


def pack(files: Sequence[JobFile], tasks: int) -> list[tuple[JobFile, ...]]:
    """Every file in exactly one task: largest first, each to the least loaded task.

    No task's load exceeds the average by more than its largest file. Within a
    task files stand in path order. Empty tasks are left out.
    """
    loads = [(0, number) for number in range(tasks)]
    packed: list[list[JobFile]] = [[] for _ in range(tasks)]
    for file in sorted(files, key=lambda f: (-f.size, order_key(f.path))):
        load, number = heapq.heappop(loads)
        packed[number].append(file)
        heapq.heappush(loads, (load + _cost(file), number))
    return [tuple(sorted(some, key=lambda f: order_key(f.path))) for some in packed if some]


def _cost(file: JobFile) -> int:
    return file.size + FILE_COST_BYTES

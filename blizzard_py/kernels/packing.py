"""The division of a batch's files among tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.storage.protocol import order_key
from blizzard_py.job import JobFile

# What opening a file costs, in bytes that could be read meanwhile.
FILE_COST_BYTES = 16 << 10
# A task below this size costs more to schedule than it saves.
MIN_TASK_BYTES = 512 << 10
# Up to this, some half a second, halves that even out better cost more than that is worth.
LARGE_TASK_BYTES = 64 << 20


def task_count(files: Sequence[JobFile], parallelism: int, small_bytes: int = 0) -> int:
    """One task per slot, two or four for large batches, fewer for small ones; at least one.

    Each leaves an output of its own, which may have as many bytes as it reads. Where two per slot
    would leave some below ``small_bytes``, which are merged, there is one as well.
    """
    cost = sum(_cost(file) for file in files)
    if cost <= parallelism * max(LARGE_TASK_BYTES, 2 * small_bytes):
        per_slot = 1
    else:
        per_slot = 4 if cost > 2 * parallelism * LARGE_TASK_BYTES else 2
    return max(1, min(len(files), per_slot * parallelism, cost // MIN_TASK_BYTES))


def pack(files: Sequence[JobFile], tasks: int) -> list[tuple[JobFile, ...]]:
    """Every file in exactly one task: neighbours together, by directory and then by path.

    So a directory's rows come from as few tasks as possible, which leave one small output
    each, and an output's rows lie close in time. No task's load exceeds the average by
    more than its largest file. Empty tasks are left out.
    """
    packed: list[list[JobFile]] = [[] for _ in range(tasks)]
    total = sum(_cost(file) for file in files)
    before = 0
    for file in sorted(files, key=lambda f: (order_key(f.partition), order_key(f.path))):
        cost = _cost(file)
        # The task that the middle of the file falls into, if each takes the same share.
        packed[(2 * before + cost) * tasks // (2 * total)].append(file)
        before += cost
    return [tuple(some) for some in packed if some]


def _cost(file: JobFile) -> int:
    return file.size + FILE_COST_BYTES

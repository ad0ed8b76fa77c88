"""The division of a batch's files among tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import order_key
from blizzard_py.job import IngestJob, JobFile

# The cost of opening a file, in bytes that could be read in that time.
FILE_COST_BYTES = 16 << 10
# Scheduling a task below this size costs more than it saves.
MIN_TASK_BYTES = 512 << 10
# Up to this (about half a second) more, evener tasks cost more than they save.
LARGE_TASK_BYTES = 64 << 20


def task_count(files: Sequence[JobFile], parallelism: int, small_bytes: int = 0) -> int:
    """Return one task per slot, two or four for large batches, fewer for small; at least one.

    Each task leaves its own output, with up to as many bytes as it reads. If two tasks per slot
    would leave outputs below ``small_bytes``, which are merged, there is one per slot.
    """
    cost = sum(_cost(file) for file in files)
    if cost <= parallelism * max(LARGE_TASK_BYTES, 2 * small_bytes):
        per_slot = 1
    else:
        per_slot = 4 if cost > 2 * parallelism * LARGE_TASK_BYTES else 2
    return max(1, min(len(files), per_slot * parallelism, cost // MIN_TASK_BYTES))


def pack(files: Sequence[JobFile], tasks: int) -> list[tuple[JobFile, ...]]:
    """Put every file into exactly one task: neighbours together, by directory and path.

    So a directory's rows come from as few tasks as possible, which leave one small output each, and
    an output's rows are close in time. No task's load exceeds the average by more than its largest
    file. Empty tasks are left out.
    """
    packed: list[list[JobFile]] = [[] for _ in range(tasks)]
    total = sum(_cost(file) for file in files)
    before = 0
    for file in sorted(files, key=lambda f: (order_key(f.partition), order_key(f.path))):
        cost = _cost(file)
        # The task that contains the middle of the file, if each takes the same share.
        packed[(2 * before + cost) * tasks // (2 * total)].append(file)
        before += cost
    return [tuple(some) for some in packed if some]


def _cost(file: JobFile) -> int:
    return file.size + FILE_COST_BYTES


# More threads than these would wait for the thread that reads and writes.
MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class IngestTask:
    """A job with the files of one Spark task, which has ``threads`` parser threads."""

    index: int
    job: IngestJob
    threads: int = 1


def tasks_of(
    job: IngestJob, packed: Sequence[tuple[JobFile, ...]], slots: int = 1
) -> list[IngestTask]:
    """Return the job's tasks for files packed by `packing.pack`; they share ``slots`` cores."""
    threads = min(MAX_THREADS, max(1, slots // max(1, len(packed))))
    return [
        IngestTask(index, replace(job, files=files), threads) for index, files in enumerate(packed)
    ]

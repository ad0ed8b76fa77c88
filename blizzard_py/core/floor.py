"""The floor: which partitions are closed, so that a poll's cost stays bounded. Pure.

A poll costs one listing per tracked partition. So only the newest are tracked,
and the floor rises over the others: what sorts below it is closed and is not
listed any more, which also means that it never looks new again. Two things
raise it: more partitions than may be tracked, and a lookback that moves with
time.

It never rises over work. These hold it down:

* a file that is discovered and not done;
* a partition in which something was done within the grace period;
* files above the partition depth (a source that mixes depths): they are
  tracked under their own directories, which no listing of partitions covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from blizzard_py.core.storage import order_key
from blizzard_py.core.watermark import Progress, joined, partition_key


def raised(
    progress: Progress, limit: int, lookback: str | None, pending: Iterable[str]
) -> Progress:
    """The progress with its floor as high as ``limit`` and ``lookback`` want and work allows.

    ``limit`` is how many partitions may be tracked, ``lookback`` the oldest
    partition that is still wanted. ``pending`` must hold every discovered file
    that is not done.
    """
    depth = progress.depth
    if not depth:
        return progress
    tracked = sorted(
        (p for p in progress.partitions if p and p.count("/") + 1 == depth), key=partition_key
    )
    wanted = [tracked[-limit]] if len(tracked) > limit else []
    if lookback is not None:
        wanted.append(lookback)
    if not wanted:
        return progress
    ceiling = _ceiling(progress, depth, pending)
    floor = max(wanted, key=partition_key)
    if ceiling is not None and partition_key(floor) > ceiling:
        # The highest whole partition that does not pass the work.
        below = [p for p in [*tracked, *wanted] if partition_key(p) <= ceiling]
        if not below:
            return progress
        floor = max(below, key=partition_key)
    if progress.floor is not None and partition_key(floor) <= partition_key(progress.floor):
        return progress
    low = partition_key(floor)
    return replace(
        progress,
        floor=floor,
        partitions={
            partition: known
            for partition, known in progress.partitions.items()
            if partition not in tracked or partition_key(partition) >= low
        },
    )


def _ceiling(progress: Progress, depth: int, pending: Iterable[str]) -> bytes | None:
    """What the floor must not pass, as the key of a path; None if nothing holds it."""
    held = [order_key(path) for path in pending]
    for partition, known in progress.partitions.items():
        if not partition or partition.count("/") + 1 < depth:
            held.append(order_key(joined(partition, known.before or "")))
        elif known.done:
            held.append(partition_key(partition))
    return min(held, default=None)

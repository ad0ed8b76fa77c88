"""The floor: which partitions are closed, so that a poll's cost stays bounded. Pure.

A poll costs one listing per tracked partition. So only the newest are tracked,
and the floor rises over the others: what sorts below it is closed and is not
listed any more, which also means that it never looks new again. Two things
raise it: more partitions than may be tracked, and a lookback that moves with
time.

It closes what was never seen as well, so it never rises further than names
whose grace is over allow:

* up to the highest partition in which scans start behind a name (``before``): what
  lies below that name and was to come within its grace period has been found;
* never over a partition in which a name is still in grace;
* never over a file that is discovered and not done;
* never over the newest partition of a family that is written now, by its name's time:
  families lie one behind the other in the order of names, and not in time;
* never over files above the partition depth (a source that mixes depths): they are
  tracked under their own directories, which no listing of partitions covers.

Partitions that are named by a time count apart from those that are not, if
there are both: a few odd directories must not close the real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from blizzard_py.core.partitiontime import family_of, is_timed, span_of
from blizzard_py.core.storage import order_key
from blizzard_py.core.watermark import Progress, joined, partition_key

# For so long after its time a partition counts as written to.
IN_USE_SECS = 7 * 86_400.0


def raised(
    progress: Progress, limit: int, lookback: str | None, pending: Iterable[str], now: float
) -> Progress:
    """The progress with its floor as high as ``limit`` and ``lookback`` want and work allows.

    ``limit`` is how many partitions may be tracked, ``lookback`` the oldest
    partition that is still wanted. ``pending`` must hold every discovered file
    that is not done, and how far a scan went that did not list everything. ``now``
    is in epoch seconds.
    """
    depth = progress.depth
    if not depth:
        return progress
    tracked = sorted(
        (p for p in progress.partitions if p and p.count("/") + 1 == depth), key=partition_key
    )
    counted = [p for p in tracked if is_timed(p)] or tracked
    ceiling = _ceiling(progress, counted, depth, [*pending, *_in_use(tracked, now)])
    free = [p for p in counted if partition_key(p) <= ceiling]
    wanted = []
    if len(counted) > limit and len(free) > 1:
        wanted.append(min(counted[-limit], free[-1], key=partition_key))
    if lookback is not None:
        wanted += [lookback] if partition_key(lookback) <= ceiling else free[-1:]
    if not wanted:
        return progress
    floor = max(wanted, key=partition_key)
    low = partition_key(floor)
    if progress.floor is not None and low <= partition_key(progress.floor):
        return progress
    return replace(
        progress,
        floor=floor,
        partitions={
            partition: known
            for partition, known in progress.partitions.items()
            if partition not in tracked or partition_key(partition) >= low
        },
    )


def _in_use(tracked: Sequence[str], now: float) -> list[str]:
    """The lowest of the newest partitions of each family whose time is not over for long."""
    newest: dict[str, tuple[float, str]] = {}
    for partition in tracked:
        span = span_of(partition)
        if span is not None and span.end + IN_USE_SECS >= now:
            family = family_of(partition)
            # They come in their order: of those with one time the first one is kept.
            if span.begin > newest.get(family, (-1.0, ""))[0]:
                newest[family] = span.begin, partition
    return [f"{partition}/" for _, partition in newest.values()]


def _ceiling(
    progress: Progress, counted: Sequence[str], depth: int, pending: Iterable[str]
) -> bytes:
    """What the floor must not pass, as the key of a path; ``b""`` holds it where it is."""
    over = [p for p in counted if progress.partitions[p].before is not None]
    held = [order_key(path) for path in pending]
    held.append(partition_key(over[-1]) if over else b"")
    for partition, known in progress.partitions.items():
        if not partition or partition.count("/") + 1 < depth:
            held.append(order_key(joined(partition, known.before or "")))
        elif known.done:
            held.append(partition_key(partition))
    return min(held)

"""Partition floors: close old partitions, so that the cost of a poll stays limited. Pure.

A poll costs one listing per tracked partition. So among partitions with a time in their names only
the newest are tracked, and a floor rises over the others. Everything that sorts below the floor
is closed and never listed again, so it never looks new again. Two things raise a floor: more
partitions than the limit, and a lookback that moves with time.

**No time.** Partitions without a time in their names (``partition=17``, ``device=a``) may all be
written for ever. The limit closes none of them, and they stay open below a floor. Only a lookback
closes them, since it defines the old names.

**Heads.** With another key before the time (``region=eu/date=2024-01-28``) partitions follow one
another in time only below one head (``region=eu``). So each head has its own floor for the
partitions below it. The source's floor rises over whole heads: if there are more than the limit,
over those that nobody writes to. It cannot rise over a head that is in use; unused heads above
such a head keep only their newest partition. Names between two heads stay open: a new head may
appear there.

A floor also closes partitions that were never seen, so it never rises

* above the highest partition in which scans start behind a name (``before``): all files below
  that name that were due within its grace period have been found;
* over a partition with a name in its grace period;
* over a file that is discovered and not done, or beyond the end of an incomplete scan;
* over the newest partition of a family that is in use by its name's time: families follow one
  another by name, not by time;
* over files above the partition depth (a source that mixes depths): they are tracked under their
  own directories, which no listing of partitions covers.

Only partitions named by a time count: unusual directories must not close the real ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.partition_time import family_of, head_of, is_timed, span_of
from blizzard_core.watermark.paths import joined, partition_key, split
from blizzard_core.watermark.progress import Progress

# How long after its time a partition counts as in use.
IN_USE_SECS = 7 * 86_400.0


def raise_floors(
    progress: Progress,
    limit: int,
    lookback: str | None,
    pending: Iterable[str],
    now: float,
    until: str | None = None,
) -> Progress:
    """Return the progress with its floors as high as the limits ask and pending work allows.

    ``limit`` is the number of partitions that may be tracked below a head, and of heads.
    ``lookback`` is the oldest wanted partition. ``pending`` must contain every discovered file that
    is not done. ``until`` is the end of an incomplete scan. ``now`` is in epoch seconds.
    """
    if not progress.depth:
        return progress
    held = list(pending)
    if lookback is not None:
        tracked = _tracked(progress, "")
        dated = [p for p in tracked if is_timed(p)] or tracked
        ceiling = _ceiling(progress, "", dated, tracked, held, now, until)
        free = [p for p in dated if partition_key(p) <= ceiling]
        wanted = [lookback] if partition_key(lookback) <= ceiling else free[-1:]
        progress = _closed(progress, "", wanted, tracked)
    timed = [p for p in _tracked(progress, "") if is_timed(p)]
    heads: dict[str, list[str]] = defaultdict(list)
    for partition in timed:
        heads[head_of(partition)].append(partition)
    # A head counts as one, by its lowest partition.
    units = [*heads.pop("", ()), *(found[0] for found in heads.values())]
    if len(units) > limit:
        ceiling = _ceiling(progress, "", timed, timed, held, now, until)
        wanted = _surplus(sorted(units, key=partition_key), limit, ceiling)
        progress = _closed(progress, "", wanted, timed)
    remaining = {
        head: [p for p in found if p in progress.partitions] for head, found in heads.items()
    }
    resting = _resting(remaining, limit, now)
    for head, counted in remaining.items():
        most = 1 if head in resting else limit
        if len(counted) > most:
            ceiling = _ceiling(progress, head, counted, counted, held, now, until)
            progress = _closed(progress, head, _surplus(counted, most, ceiling), counted)
    return progress


def untimed_partitions(progress: Progress, paths: Iterable[str] = ()) -> set[str]:
    """Return the partitions without a time in their names: tracked, or of one of ``paths``."""
    depth = progress.depth or 0
    found = {*progress.partitions, *(split(path, depth)[0] for path in paths)}
    return {p for p in found if p and p.count("/") + 1 == depth and not is_timed(p)}


def _resting(heads: Mapping[str, Sequence[str]], limit: int, now: float) -> set[str]:
    """Return the lowest unused heads beyond ``limit``.

    They lie above a head that is in use, or they would be closed. Writers may return to any of
    them, so each keeps a partition.
    """
    there = [head for head, found in heads.items() if found]
    if len(there) <= limit:
        return set()
    idle = [head for head in there if not _in_use(heads[head], now)]
    return set(sorted(idle, key=order_key)[: len(there) - limit])


def _tracked(progress: Progress, within: str) -> list[str]:
    """Return the tracked partitions of full depth that begin with ``within``, in order."""
    depth = progress.depth or 0
    partitions = (p for p in progress.partitions if p and p.startswith(within))
    return sorted((p for p in partitions if p.count("/") + 1 == depth), key=partition_key)


def _surplus(counted: Sequence[str], limit: int, ceiling: bytes) -> list[str]:
    """Return the floor that leaves ``limit`` partitions, as far as ``ceiling`` allows."""
    free = [p for p in counted if partition_key(p) <= ceiling]
    if len(counted) <= limit or len(free) <= 1:
        return []
    return [min(counted[-limit], free[-1], key=partition_key)]


def _closed(
    progress: Progress, head: str, wanted: Sequence[str], closing: Iterable[str]
) -> Progress:
    """Return the progress with ``head``'s floor at the highest of ``wanted``; never lower it.

    Without a head it is the source's floor. Partitions of ``closing`` below it are no longer
    tracked.
    """
    floor = max(wanted, key=partition_key, default=None)
    known = progress.floors.get(head) if head else progress.floor
    if floor is None or (known is not None and partition_key(floor) <= partition_key(known)):
        return progress
    low, within = partition_key(floor), f"{head}/" if head else ""
    below = {p for p in closing if partition_key(p) < low}
    floors = {
        other: its
        for other, its in progress.floors.items()
        if not other.startswith(within) or partition_key(its) > low
    }
    progress = replace(
        progress,
        partitions={p: known for p, known in progress.partitions.items() if p not in below},
        floors={**floors, head: floor} if head else floors,
    )
    return progress if head else replace(progress, floor=floor)


def _in_use(tracked: Sequence[str], now: float) -> list[str]:
    """Return the newest partition of each family that is still in use, as paths.

    If only the numbers of heads differ (``tenant=7/date=…``), each head is its own family.
    """
    newest: dict[tuple[str, str], tuple[float, str]] = {}
    for partition in tracked:
        span = span_of(partition)
        if span is not None and span.end + IN_USE_SECS >= now:
            family = head_of(partition), family_of(partition)
            # Partitions come in order: the first one of a time wins.
            if span.begin > newest.get(family, (-1.0, ""))[0]:
                newest[family] = span.begin, partition
    return [f"{partition}/" for _, partition in newest.values()]


def _ceiling(
    progress: Progress,
    head: str,
    partitions: Sequence[str],
    closing: Collection[str],
    pending: Iterable[str],
    now: float,
    until: str | None,
) -> bytes:
    """Return the ceiling of the floor, as the key of a path; ``b""`` holds it where it is.

    Partitions of the full depth that are not ``closing`` stay open below the floor.
    """
    within, depth = f"{head}/" if head else "", progress.depth or 0
    closing = frozenset(closing)
    over = [p for p in partitions if progress.partitions[p].before is not None]
    held = [partition_key(over[-1]) if over else b""]
    held += [order_key(path) for path in pending if path.startswith(within)]
    held += [order_key(path) for path in _in_use(_tracked(progress, within), now)]
    if until is not None:
        held.append(order_key(until))
    for partition, known in progress.partitions.items():
        if not f"{partition}/".startswith(within):
            continue
        if not partition or partition.count("/") + 1 < depth:
            held.append(order_key(joined(partition, known.before or "")))
        elif known.done and partition in closing:
            held.append(partition_key(partition))
    return min(held)

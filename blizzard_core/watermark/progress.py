"""The watermark: the files that are done, from their paths and from scans. Pure.

A watermark is the path of the last file done; paths above it are new. Paths compare as UTF-8
bytes, partitions as ``partition + "/"``, which is the order of stores' listings
(``date=2024-01-28-late/`` comes before ``date=2024-01-28/``).

The partition of a path is its first ``depth`` components, the name is the rest. A file above that
depth is tracked under its own directory, a file at the root under the partition ``""``. With
``depth`` 0 everything is in ``""``.

**Grace.** Writers do not finish in name order, and a listing misses names that appear behind its
cursor. So each partition keeps three things: the shown ``watermark``, the names ``done`` in their
grace period, and ``before``, where scans start. Names above ``before`` and not in ``done`` are new.

**Times.** A name is done with the time at which the scan that first *saw* it ended. Any name that
sorts below it and appears within the grace period of that moment will be found. So a name's grace
is over when a scan that *began* later than that has ended: all files of that time are listed, and
are done or pending. Nothing else moves ``before``: no clock that ran while nobody looked, no
modification time, no recovery. `mark_done` adds names. Only `expire_grace` moves ``before``; it
is called after a complete scan, with the scan's result.

**Pending.** A file that was found and is not done holds both ``watermark`` and ``before`` below
itself. Later names that are done are kept by name until then.

States: ``Initial`` (nothing done yet) → ``Active`` when a file is done → ``Idle`` when a poll finds
nothing (`mark_idle`). An empty source stays ``Initial``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from blizzard_core.storage.protocol import Range, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.partition_time import is_timed
from blizzard_core.watermark.paths import covers, depth_of, joined, partition_key, split

State = Literal["Initial", "Active", "Idle"]

# Stores have times in whole seconds, and our clock is read from one.
CLOCK_STEP_SECS = 1.0
# The smallest distinguishable difference of current times; a million fit in one step.
_APART_SECS = 1e-6

# The key of the lowest pending name of a partition, None if nothing of it is pending.
Lowest: TypeAlias = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: the shown watermark, the scan's start, and the names done above it.

    ``done`` maps each name to the end of the scan that first saw it (epoch seconds). ``before``
    never exceeds ``watermark``.
    """

    watermark: str | None = None
    before: str | None = None
    done: Mapping[str, float] = field(default_factory=dict)


# Returns, per partition, a filter of the names that move its watermark.
Moving: TypeAlias = Callable[[PartitionProgress], Callable[[str], bool]]


def _all_move(_known: PartitionProgress) -> Callable[[str], bool]:
    """Let every name move the watermark."""
    return _is_name


def _is_name(_name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of one source or table. ``Progress()`` is a cold start.

    ``value`` is the global watermark, a full path. ``floor`` closes every partition that sorts
    below it. ``floors`` close, per head (``region=eu``), the partitions below the head's own floor.
    ``depth`` is None until a file in a directory is seen.
    """

    state: State = "Initial"
    value: str | None = None
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)
    depth: int | None = None
    floor: str | None = None
    floors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScanTimes:
    """A finished scan: when it began and ended, how far it went, and what part it listed.

    Times in epoch seconds. Of its ``cover`` (None: all), everything up to ``until`` was listed
    (None: to the end).
    """

    began: float
    ended: float
    until: str | None = None
    cover: Ranges | None = None


def is_new(progress: Progress, path: str) -> bool:
    """Return whether a listed file still has to be done.

    While the depth is unknown only root files were done, so no directory was listed.
    """
    partition, name = _split(progress, path)
    known = progress.partitions.get(partition)
    if known is not None and (name in known.done or _is_below(name, known.before)):
        return False
    return closed_by(progress, path) is None


def is_passed(progress: Progress, path: str) -> bool:
    """Return whether no scan lists a path any more, whether it was done here or not."""
    if closed_by(progress, path) is not None:
        return True
    partition, name = _split(progress, path)
    known = progress.partitions.get(partition)
    return known is not None and _is_below(name, known.before)


def _is_below(name: str, before: str | None) -> bool:
    """Return whether a name is not above a partition's scan start."""
    return before is not None and order_key(name) <= order_key(before)


def _split(progress: Progress, path: str) -> tuple[str, str]:
    return split(path, path.count("/") if progress.depth is None else progress.depth)


def closed_by(progress: Progress, path: str) -> str | None:
    """Return the floor that a path sorts below and so is never listed; None if there is none.

    Tracked partitions without a time in their names stay open below floors.
    """
    floor = _floor_over(progress, path)
    if floor is None:
        return None
    partition, _ = split(path, progress.depth or 0)
    return None if partition in progress.partitions and _is_odd(progress, partition) else floor


def _is_odd(progress: Progress, partition: str) -> bool:
    """Return whether a partition has the full depth and a name that says no time."""
    return (
        bool(partition) and partition.count("/") + 1 == progress.depth and not is_timed(partition)
    )


def _floor_over(progress: Progress, path: str) -> str | None:
    if progress.floor is None and not progress.floors:
        return None
    key = order_key(path)
    if progress.floor is not None and key < partition_key(progress.floor):
        return progress.floor
    if not progress.floors:
        return None
    end = path.find("/")
    while end >= 0:
        floor = progress.floors.get(path[:end])
        if floor is not None and key < partition_key(floor):
            return floor
        end = path.find("/", end + 1)
    return None


def gaps(progress: Progress) -> tuple[Range, ...]:
    """Return the ranges that can hold new files: before, between and behind the done ones.

    With tracked partitions p₁ < p₂ < … of exactly the tracked depth and their scan starts bᵢ:
    ``[floor, p₁/)``, ``(p₁/b₁, p₂/)``, …, ``(pₙ/bₙ, ∞)``. A partition without a scan start needs no
    range of its own. Ranges closed by a head's floor are skipped, except partitions that stay open.
    Shallower files lie inside these ranges and are filtered later; skipping *their* directories
    would skip deeper partitions too.
    """
    depth = progress.depth
    start = f"{progress.floor}/" if progress.floor else ""
    if depth is None:
        return (Range(start, None),)
    if depth == 0:
        root = progress.partitions.get("", PartitionProgress())
        return (Range(max(start, root.before or "", key=order_key), None),)
    passed = [(f"{head}/", f"{floor}/") for head, floor in progress.floors.items()]
    passed += [
        (f"{partition}/", f"{partition}/{known.before}")
        for partition, known in progress.partitions.items()
        if partition.count("/") + 1 == depth and partition and known.before is not None
    ]
    found: list[Range] = []
    for low, high in sorted(passed, key=lambda item: order_key(item[0])):
        if order_key(start) < order_key(low):
            found.append(Range(start, low))
        start = max(start, high, key=order_key)
    found.append(Range(start, None))
    found += [
        # "0" follows "/".
        Range(f"{partition}/{known.before or ''}", f"{partition}0")
        for partition, known in progress.partitions.items()
        if _floor_over(progress, f"{partition}/") and _is_odd(progress, partition)
    ]
    return tuple(sorted(found, key=lambda gap: order_key(gap.after)))


def lowest_of(paths: Iterable[str], depth: int | None) -> dict[str, bytes]:
    """Return the lowest name of each partition, as its comparison key."""
    lowest: dict[str, bytes] = {}
    for path in paths:
        partition, name = split(path, depth or 0)
        key = order_key(name)
        lowest[partition] = min(lowest.get(partition, key), key)
    return lowest


def mark_done(
    progress: Progress,
    paths: Iterable[str],
    seen: float,
    lowest: Lowest,
    moving: Moving = _all_move,
) -> Progress:
    """Mark these files as done; a scan that ended at ``seen`` first saw them.

    ``lowest`` returns the lowest pending name of a partition, ``moving`` the names that move its
    watermark. The shown watermarks rise up to the pending names; scan starts stay. The cost depends
    on the partitions of ``paths`` only.
    """
    fresh: dict[str, list[str]] = defaultdict(list)
    depth = progress.depth
    paths = tuple(paths)
    if depth is None:
        depth = depth_of(paths)
    for path in paths:
        partition, name = split(path, depth or 0)
        fresh[partition].append(name)
    partitions = dict(progress.partitions)
    for partition, names in fresh.items():
        known = partitions.get(partition, PartitionProgress())
        done = {**known.done, **dict.fromkeys(names, seen)}
        known = replace(known, done=done)
        free = filter(moving(known), _free(names, lowest(partition)))
        partitions[partition] = replace(known, watermark=_highest(known.watermark, *free))
    return _update_value(
        replace(progress, partitions=partitions, depth=depth), fresh, active=bool(paths)
    )


def expire_grace(
    progress: Progress,
    scanned: ScanTimes,
    grace: float,
    lowest: Lowest,
    moving: Moving = _all_move,
) -> Progress:
    """Forget names whose grace is over, after a scan whose files are done or in ``lowest``.

    Names first seen more than ``grace`` seconds before the scan began need no memory: scans start
    behind them. Watermarks never go back. Names that do not move them are kept until one that does
    sorts above, and names of partitions that the scan did not cover until one does.
    """
    expiry = scanned.began - grace - CLOCK_STEP_SECS
    partitions = {
        partition: _expire_partition(
            known,
            expiry,
            lowest(partition),
            _listed_up_to(partition, scanned.until),
            moving(known),
        )
        if known.done and covers(scanned.cover, partition, known.before)
        else known
        for partition, known in progress.partitions.items()
    }
    return _update_value(replace(progress, partitions=partitions), partitions, active=False)


def _expire_partition(
    known: PartitionProgress,
    expiry: float,
    waiting: bytes | None,
    listed: bytes | None,
    moves: Callable[[str], bool],
) -> PartitionProgress:
    free = list(filter(moves, _free(known.done, waiting)))
    watermark = _highest(known.watermark, *free)
    if min(known.done.values()) > expiry:
        return replace(known, watermark=watermark)
    over = [
        name
        for name in free
        if known.done[name] <= expiry and (listed is None or order_key(name) <= listed)
    ]
    before = _highest(known.before, *over)
    done = known.done
    if over and before is not None:
        low = order_key(before)
        done = {name: at for name, at in done.items() if order_key(name) > low}
    return PartitionProgress(watermark, before, done)


def _free(names: Iterable[str], waiting: bytes | None) -> list[str]:
    """Return the names below the first pending one."""
    if waiting is None:
        return list(names)
    return [name for name in names if order_key(name) < waiting]


def lists_all(scanned: ScanTimes, partition: str, before: str | None) -> bool:
    """Return whether a scan lists all of a partition above its scan start."""
    is_reached = _listed_up_to(partition, scanned.until) is None
    return is_reached and covers(scanned.cover, partition, before)


def _listed_up_to(partition: str, until: str | None) -> bytes | None:
    """Return up to which name a scan that ended at ``until`` listed a partition.

    None: all of it, ``b""``: nothing.
    """
    if until is None:
        return None
    head = f"{partition}/" if partition else ""
    if until.startswith(head):
        return order_key(until[len(head) :])
    return None if order_key(head) < order_key(until) else b""


def _update_value(progress: Progress, changed: Iterable[str], *, active: bool) -> Progress:
    """Return the progress with the global watermark of its changed partitions."""
    known = ((partition, progress.partitions[partition].watermark) for partition in changed)
    value = _highest(progress.value, *(joined(p, name) for p, name in known if name is not None))
    # With everything that is done lying behind a pending file there is no
    # watermark to be active at.
    if value is not None and (active or progress.state == "Initial"):
        return replace(progress, state="Active", value=value)
    return replace(progress, value=value)


def _highest(*names: str | None) -> str | None:
    return max((n for n in names if n is not None), key=order_key, default=None)


def mark_idle(progress: Progress) -> Progress:
    """Return the progress after a poll that found nothing: ``Idle``, unless nothing is done yet."""
    return progress if progress.state == "Initial" else replace(progress, state="Idle")


def start_grace(progress: Progress, now: float) -> Progress:
    """Start the grace period at ``now`` for a checkpoint without times.

    Files below its names are done, as the checkpoint says. But no scan of ours has seen them. So
    the grace period, and the wait before partitions may be closed, begins now.
    """
    partitions = {
        partition: replace(known, done={known.before: now, **known.done})
        if known.before is not None
        else known
        for partition, known in progress.partitions.items()
    }
    return replace(progress, partitions=partitions)


def clamp_progress(progress: Progress, now: float) -> Progress:
    """Limit the times of names to ``now``; a later time comes from a wrong clock."""
    return replace_times(progress, clamp_each(times_of(progress), now))


def times_of(progress: Progress) -> set[float]:
    """Return the times at which the remembered names were first seen."""
    return {at for known in progress.partitions.values() for at in known.done.values()}


def clamp_each(times: Iterable[float], now: float) -> dict[float, float]:
    """Map times after ``now`` to ``now`` or just before.

    They stay distinct and in order, because times identify names: those that a checkpoint lists,
    and those that it leaves to a journal.
    """
    ahead = sorted({at for at in times if at > now}, reverse=True)
    return {at: now - place * _APART_SECS for place, at in enumerate(ahead)}


def replace_times(progress: Progress, times: Mapping[float, float]) -> Progress:
    """Replace times of the progress."""
    if not times:
        return progress
    partitions = {
        partition: replace(known, done={name: times.get(at, at) for name, at in known.done.items()})
        for partition, known in progress.partitions.items()
    }
    return replace(progress, partitions=partitions)

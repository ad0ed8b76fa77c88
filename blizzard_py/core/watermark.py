"""The watermark: which files are done, decided from paths alone. Pure.

A watermark is the path of the last file done; what sorts above it is new. Paths
compare as UTF-8 bytes, partitions as ``partition + "/"``, which is the order
stores list in (``date=2024-01-28-late/`` comes before ``date=2024-01-28/``).

The partition of a path is its first ``depth`` components, the name is the rest.
A file that lies higher up than that is tracked under its own directory, a file
at the root under the partition ``""``. With ``depth`` 0 everything is in ``""``.

**Grace.** Writers do not finish in name order, and a listing does not see what
appears behind its cursor. So each partition keeps three things: the
``watermark`` that is shown, the names ``done`` within the grace period, and
``before``, the watermark as it was that long ago. The scan starts at
``before``; what is above it and not in ``done`` is new. A file that appears
below the watermark within the grace period is therefore found, once.

**Pending.** A file that failed and will be tried again holds both ``watermark``
and ``before`` below itself; the ones done beyond it are kept by name until then.

States: ``Initial`` (nothing done yet) → ``Active`` on `advance` → ``Idle`` when a
poll finds nothing (`mark_idle`). ``Initial`` with an empty source stays so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from blizzard_py.core.model import Entry
from blizzard_py.core.storage import order_key

State = Literal["Initial", "Active", "Idle"]

# A name whose file is older than this when it is done needs no grace: whatever
# sorts below it was written just as long ago and has been listable ever since.
# (Modification time is when a multipart upload *began* on S3, hence a whole day.)
SETTLED_SECS = 86_400.0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: the shown watermark, the scan's start, the names done above it.

    ``done`` maps each name to the epoch seconds at which it was done, 0 for a
    name that needs no grace. ``before`` never exceeds ``watermark``.
    """

    watermark: str | None = None
    before: str | None = None
    done: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """All that is known of one source or table. ``Progress()`` is a cold start.

    ``value`` is the global watermark, a full path. ``floor`` closes every
    partition that sorts below it. ``depth`` is None until the first file.
    """

    state: State = "Initial"
    value: str | None = None
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)
    depth: int | None = None
    floor: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """One ordered listing: ``after < path < until``, both exclusive."""

    after: str
    until: str | None


def split(path: str, depth: int) -> tuple[str, str]:
    """Partition and name: at most ``depth`` leading components, and the rest."""
    parts = path.split("/")
    cut = min(depth, len(parts) - 1)
    return "/".join(parts[:cut]), "/".join(parts[cut:])


def joined(partition: str, name: str) -> str:
    """The path again: the inverse of `split`."""
    return f"{partition}/{name}" if partition else name


def is_hidden(path: str) -> bool:
    """Whether a component starts with ``_`` or ``.``: never data, for both daemons."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def depth_of(paths: Iterable[str]) -> int:
    """The depth that a first listing suggests: that of the first file not at the root."""
    return next((path.count("/") for path in paths if "/" in path), 0)


def partition_key(partition: str) -> bytes:
    """Orders partitions as stores list them."""
    return order_key(f"{partition}/") if partition else b""


def is_new(progress: Progress, path: str) -> bool:
    """Whether a listed file still has to be done. ``depth`` must be known."""
    partition, name = split(path, progress.depth or 0)
    known = progress.partitions.get(partition)
    if known is not None:
        if known.before is not None and order_key(name) <= order_key(known.before):
            return False
        return name not in known.done
    return progress.floor is None or order_key(path) > order_key(f"{progress.floor}/")


def gaps(progress: Progress) -> tuple[Gap, ...]:
    """Where new files can be: before, between and behind what is done.

    With tracked partitions p₁ < p₂ < … of exactly the tracked depth and their
    scan starts bᵢ: ``[floor, p₁/)``, ``(p₁/b₁, p₂/)``, …, ``(pₙ/bₙ, ∞)``.
    Shallower files lie inside these ranges and are filtered afterwards; jumping
    over *their* directories would jump over deeper partitions too.
    """
    depth = progress.depth
    start = f"{progress.floor}/" if progress.floor else ""
    if depth is None:
        return (Gap(start, None),)
    if depth == 0:
        root = progress.partitions.get("", PartitionProgress())
        return (Gap(max(start, root.before or "", key=order_key), None),)
    tracked = sorted(
        (
            (partition, known.before)
            for partition, known in progress.partitions.items()
            if partition.count("/") + 1 == depth and partition
        ),
        key=lambda item: partition_key(item[0]),
    )
    found: list[Gap] = []
    for partition, before in tracked:
        if order_key(start) < order_key(f"{partition}/"):
            found.append(Gap(start, f"{partition}/"))
        start = max(start, f"{partition}/{before or ''}", key=order_key)
    found.append(Gap(start, None))
    return tuple(found)


def advance(
    progress: Progress,
    done: Collection[Entry],
    pending: Iterable[str],
    now: float,
    grace: float,
) -> Progress:
    """The progress after ``done`` files, with ``pending`` ones known and not done.

    ``pending`` must hold every file that has been discovered and is not done:
    no scan start and no watermark passes one of them. ``now`` and ``grace`` are
    seconds. Watermarks never go back.
    """
    depth = progress.depth if progress.depth is not None else depth_of(e.path for e in done)
    fresh: dict[str, dict[str, float]] = defaultdict(dict)
    for entry in done:
        partition, name = split(entry.path, depth)
        settled = entry.modified < now - max(SETTLED_SECS, grace)
        fresh[partition][name] = 0.0 if settled else now
    waiting: dict[str, bytes] = {}
    for path in pending:
        partition, name = split(path, depth)
        key = order_key(name)
        waiting[partition] = min(waiting.get(partition, key), key)

    partitions = dict(progress.partitions)
    for partition in {*partitions, *fresh}:
        partitions[partition] = _advanced(
            partitions.get(partition, PartitionProgress()),
            fresh.get(partition, {}),
            waiting.get(partition),
            now - grace,
        )
    tops = [joined(p, known.watermark) for p, known in partitions.items() if known.watermark]
    if progress.value is not None:
        tops.append(progress.value)
    value = max(tops, key=order_key) if tops else None
    return replace(
        progress,
        # With everything that is done lying behind a pending file there is no
        # watermark to be active at.
        state="Active" if done and value is not None else progress.state,
        value=value,
        partitions=partitions,
        depth=depth if done else progress.depth,
    )


def _advanced(
    known: PartitionProgress, fresh: Mapping[str, float], waiting: bytes | None, expiry: float
) -> PartitionProgress:
    done = {**known.done, **fresh}
    free = [name for name in done if waiting is None or order_key(name) < waiting]
    watermark = _highest([known.watermark, *free])
    before = _highest([known.before, *(name for name in free if done[name] <= expiry)])
    if before is not None:
        low = order_key(before)
        done = {name: at for name, at in done.items() if order_key(name) > low}
    return PartitionProgress(watermark, before, done)


def _highest(names: Iterable[str | None]) -> str | None:
    return max((n for n in names if n is not None), key=order_key, default=None)


def mark_idle(progress: Progress) -> Progress:
    """The progress after a poll that found nothing: ``Idle``, unless nothing was ever done."""
    return progress if progress.state == "Initial" else replace(progress, state="Idle")


def with_depth(progress: Progress, paths: Iterable[str]) -> Progress:
    """The progress with its depth settled from a first listing, if it was unknown."""
    if progress.depth is not None:
        return progress
    return replace(progress, depth=depth_of(paths))

"""Names that may move the watermark, where Blizzard's files lie beside others. Pure.

Blizzard names its files by UUIDs of version 7, which sort in time. A foreign name may sort above
all future ones. If it moved the watermark, polls would look above it only, and all of Blizzard's
files would wait for the sweep. So while Blizzard writes to a partition only its names move the
watermark; foreign names that are done are kept by name.

A foreign name does move the watermark if it came first, after a day without Blizzard's files, or
if there are very many. The sweep that finds Blizzard's first file below it lowers the scans
(`lower_scans`).

Files of groups (`blizzard_core.handover.groups`) also have special names: they travel by manifest,
so listings ignore them, whatever ``file_pattern`` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.storage.protocol import order_key
from blizzard_core.storage.ranges import name_after
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import PartitionProgress, Progress

# For so long after the time in the newest of its names Blizzard counts as writing.
IN_USE_SECS = 86_400.0

# How many names of others are kept in a partition. They are in each commit if they are on
# record, so a flood of them moves the watermark after all.
MOST_HELD = 1000

_OURS = re.compile(
    r"(?:.*/)?([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.parquet"
)


def is_grouped(path: str) -> bool:
    """Return whether a file belongs to a group: its manifest makes it known, no listing."""
    return path.rpartition("/")[2].startswith(UNIT_FILE_PREFIX)


def behind_grouped(path: str) -> str | None:
    """Return the end of the names of groups' files in a file's folder; None for other files."""
    if not is_grouped(path):
        return None
    folder, slash, _name = path.rpartition("/")
    return name_after(f"{folder}{slash}{UNIT_FILE_PREFIX}")


def is_blizzards(name: str) -> bool:
    """Return whether a file is called as Blizzard calls its files."""
    return _OURS.fullmatch(name) is not None


def movers(now: float) -> Callable[[PartitionProgress], Callable[[str], bool]]:
    """Return, per partition, a filter of the names that may move its watermark at ``now``."""

    def of(known: PartitionProgress) -> Callable[[str], bool]:
        names = known.done if known.before is None else (known.before, *known.done)
        in_use = any(_written(name) + IN_USE_SECS >= now for name in names)
        if not in_use or sum(not is_blizzards(name) for name in known.done) > MOST_HELD:
            return _any
        return is_blizzards

    return of


def lower_scans(
    progress: Progress, stragglers: Iterable[str], refused: Collection[str], now: float
) -> Progress:
    """Return the progress with scans starting below Blizzard files hidden by other names.

    It is unchanged if there are none, or if too many names would have to be kept. ``refused`` are
    the recorded paths. The watermarks stay: files below them are subject to the horizon of a
    start's first poll, which has to come next.
    """
    depth = progress.depth or 0
    lowest: dict[str, str] = {}
    for path in stragglers:
        partition, name = split(path, depth)
        known = progress.partitions.get(partition)
        hidden = known is not None and known.before is not None and not is_blizzards(known.before)
        if hidden and is_blizzards(name):
            lowest[partition] = min(name, lowest.get(partition, name), key=order_key)
    partitions = dict(progress.partitions)
    for partition, name in lowest.items():
        known = partitions[partition]
        # Just below the name: only its own beginnings sort between the two.
        before = name[:-1]
        low, high = order_key(before), order_key(known.before or "")
        places = (split(path, depth) for path in refused)
        held = {
            other: now for at, other in places if at == partition and low < order_key(other) <= high
        }
        if len(held) <= MOST_HELD:
            partitions[partition] = replace(known, before=before, done={**known.done, **held})
    return replace(progress, partitions=partitions) if lowest else progress


def _written(name: str) -> float:
    """Return the time in one of Blizzard's names, 0 for others."""
    found = _OURS.fullmatch(name)
    return 0.0 if found is None else int(found[1] + found[2], 16) / 1000


def _any(_name: str) -> bool:
    return True

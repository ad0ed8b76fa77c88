"""Paths split into partition and name, in the order in which stores list them. Pure.

The **cover** of a scan is the part of a source that it lists. A scan is complete if it has none.
With a cover it is judged for these ranges alone. A partition is covered if everything above its
scan start lies in one range. What a scan found in other partitions proves nothing about them, so it
is left to a complete scan.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.storage.protocol import Range, order_key
from blizzard_core.storage.ranges import Ranges


def split(path: str, depth: int) -> tuple[str, str]:
    """Split a path into partition (at most ``depth`` components) and name.

    Object stores allow empty components (``a//b``); a partition ends before the
    first of them, so that no two paths have both in common.
    """
    if not depth:  # a folder of many files asks often
        return "", path
    *folders, name = path.split("/", depth)
    if "" in folders:
        cut = folders.index("")
        return "/".join(folders[:cut]), "/".join([*folders[cut:], name])
    return "/".join(folders), name


def joined(partition: str, name: str) -> str:
    """Join partition and name: the inverse of `split`."""
    return f"{partition}/{name}" if partition else name


def depth_of(paths: Iterable[str]) -> int | None:
    """Return the depth of the first file that is not at the root, if any.

    Paths with an empty component (``a//b``) decide only if all have one: their partition ends
    before the true depth.
    """
    odd: int | None = None
    for path in paths:
        folder, name = split(path, path.count("/"))
        if folder and "/" not in name:
            return folder.count("/") + 1
        if folder and odd is None:
            odd = folder.count("/") + 1
    return odd


def partition_key(partition: str) -> bytes:
    """Return the sort key of a partition, in the order of stores' listings."""
    return order_key(f"{partition}/") if partition else b""


def range_of(ranges: Ranges, partition: str, before: str | None) -> Range | None:
    """Return the range that holds all of a partition above its scan start, if one does."""
    # "0" follows "/".
    return ranges.range_over(
        joined(partition, before or ""), f"{partition}0" if partition else None
    )


def covers(cover: Ranges | None, partition: str, before: str | None) -> bool:
    """Return whether a scan lists all of a partition above its scan start."""
    return cover is None or range_of(cover, partition, before) is not None


def choose_ranges(gaps: Iterable[Range], partitions: Iterable[tuple[str, str | None]]) -> Ranges:
    """Return the gaps that hold these partitions, each given with its scan start."""
    every = Ranges(gaps)
    found = {range_of(every, partition, before) for partition, before in partitions}
    return Ranges(gap for gap in every.ranges if gap in found)

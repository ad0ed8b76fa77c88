"""Finds the source files that are still to be ingested.

Thin on purpose: `blizzard_py.core.scan` knows how to list little, this module
knows what a source file is called and where a cold start begins.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace

from blizzard_py.core.config import PartitionFilter, SourceCompression, SourceSettings
from blizzard_py.core.errors import StateError
from blizzard_py.core.model import Entry
from blizzard_py.core.scan import scan
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Progress

_PLAIN = (".ndjson", ".jsonl", ".json")
_ENDINGS: dict[SourceCompression, tuple[str, ...]] = {
    "none": _PLAIN,
    "gzip": tuple(f"{ending}.gz" for ending in _PLAIN),
    "zstd": tuple(f"{ending}.zst" for ending in _PLAIN),
}
_ENDINGS["auto"] = tuple(ending for endings in _ENDINGS.values() for ending in endings)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Files to do, oldest first, what finding them cost, and the progress they refer to."""

    files: tuple[Entry, ...]
    requests: int
    keys: int
    progress: Progress


def accepts(compression: SourceCompression) -> Callable[[str], bool]:
    """Whether a path has one of the endings that ``compression`` stands for."""
    endings = _ENDINGS[compression]
    return lambda path: path.endswith(endings)


def cold_floor(partition_filter: PartitionFilter | None, now: float) -> str | None:
    """The oldest partition a cold start looks at, or None for all.

    ``lookback`` units before ``now`` (UTC): hours where the template has an
    hour, days otherwise. Always a whole prefix, so it never cuts a name.
    """
    if partition_filter is None or partition_filter.lookback is None:
        return None
    hourly = any(code in partition_filter.prefix_template for code in ("%H", "%T", "%R"))
    unit = dt.timedelta(hours=1) if hourly else dt.timedelta(days=1)
    oldest = dt.datetime.fromtimestamp(now, dt.UTC) - partition_filter.lookback * unit
    return oldest.strftime(partition_filter.prefix_template)


def starting_point(progress: Progress, source: SourceSettings, now: float, where: str) -> Progress:
    """The progress to scan from: the configured depth, and the floor of a cold start.

    Raises `StateError` if the checkpoint was kept at another depth: its
    watermarks would be compared with names they do not belong to.
    """
    depth = source.partition_depth
    if depth is None and source.partition_filter is not None:
        depth = source.partition_filter.prefix_template.count("/") + 1
    if depth is not None and progress.depth not in (None, depth):
        raise StateError(
            f"{where}: was kept with a partition depth of {progress.depth}, the configuration now"
            f" says {depth}; set partition_depth: {progress.depth}, or use another source name"
        )
    if depth is not None:
        progress = replace(progress, depth=depth)
    if progress.state == "Initial" and not progress.partitions:
        progress = replace(progress, floor=cold_floor(source.partition_filter, now))
    return progress


def discover(
    storage: Storage, source: SourceSettings, progress: Progress, concurrency: int
) -> Discovery:
    """Everything above the watermarks. Raises `StorageError`, never returns a part."""
    found = scan(storage, progress, accepts(source.compression), concurrency)
    return Discovery(found.entries, found.requests, found.keys, found.progress)

"""Finds the source files that are still to be ingested.

Thin on purpose: `blizzard_py.core.scan` knows how to list little, this module
knows what a source file is called and where a cold start begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from blizzard_py.core.config import SourceCompression, SourceSettings
from blizzard_py.core.errors import StateError
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.model import Entry
from blizzard_py.core.scan import scan
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Gap, Progress
from blizzard_py.state import SourceState

_PLAIN = (".ndjson", ".jsonl", ".json")
ENDINGS: dict[SourceCompression, tuple[str, ...]] = {
    "none": _PLAIN,
    "gzip": tuple(f"{ending}.gz" for ending in _PLAIN),
    "zstd": tuple(f"{ending}.zst" for ending in _PLAIN),
}
ENDINGS["auto"] = tuple(ending for endings in ENDINGS.values() for ending in endings)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Files to do, oldest first, what finding them cost, and the progress they refer to.

    ``young`` are files that are left alone for now; no watermark passes them.
    """

    files: tuple[Entry, ...]
    young: tuple[Entry, ...]
    requests: int
    keys: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a source: the range to list, and which files of it to take."""

    within: Gap
    takes: Callable[[Entry], bool]


def accepts(compression: SourceCompression) -> Callable[[str], bool]:
    """Whether a path has one of the endings that ``compression`` stands for."""
    endings = ENDINGS[compression]
    return lambda path: path.endswith(endings)


def check_tracking(state: SourceState, source: SourceSettings, where: str) -> None:
    """Raise `StateError` if the state was kept the other way: it would ingest all again."""
    if not source.use_watermark and state.processed is None and state.progress.value is not None:
        raise StateError(
            f"{where}: was kept with a watermark, the configuration now says use_watermark: false;"
            " set it back, or use another source name (which ingests everything again)"
        )
    if source.use_watermark and state.processed is not None:
        raise StateError(
            f"{where}: was kept without a watermark, the configuration now says use_watermark:"
            " true; set it back, or use another source name (which ingests everything again)"
        )


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
        progress = replace(progress, floor=lookback_floor(source.partition_filter, now))
    return progress


def discover_unseen(
    storage: Storage,
    source: SourceSettings,
    unseen: Callable[[Sequence[Entry]], tuple[Entry, ...]],
    now: float,
) -> tuple[Discovery, frozenset[str]]:
    """A full listing less what is done, for names that do not sort; and all paths listed.

    Costs a request per thousand files stored: there is no watermark to start at.
    """
    found = scan(storage, Progress(depth=0), lambda _path: True, 1)
    accept = accepts(source.compression)
    new = unseen([entry for entry in found.entries if accept(entry.path)])
    ripe, young = _split_by_age(new, source, now)
    listed = frozenset(entry.path for entry in found.entries)
    return Discovery(ripe, young, found.requests, found.keys, Progress(depth=0)), listed


def _split_by_age(
    entries: Sequence[Entry], source: SourceSettings, now: float
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    if not source.min_age_secs:
        return tuple(entries), ()
    newest = now - source.min_age_secs
    return (
        tuple(entry for entry in entries if entry.modified <= newest),
        tuple(entry for entry in entries if entry.modified > newest),
    )


def discover(
    storage: Storage,
    source: SourceSettings,
    progress: Progress,
    now: float,
    concurrency: int,
    scope: Scope | None = None,
) -> Discovery:
    """Everything above the watermarks. Raises `StorageError`, never returns a part."""
    within = None if scope is None else scope.within
    found = scan(storage, progress, accepts(source.compression), concurrency, within)
    entries = [e for e in found.entries if scope is None or scope.takes(e)]
    ripe, young = _split_by_age(entries, source, now)
    return Discovery(ripe, young, found.requests, found.keys, found.progress)

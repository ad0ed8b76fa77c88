"""Finds the source files that are still to be ingested.

Thin on purpose: `blizzard_core.watermark.scan` knows how to list little, this module
knows what a source file is called and where a cold start begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_core.checkpoint.digests import Digests, np
from blizzard_core.errors import StateError
from blizzard_core.limits import SCAN_FILES
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Listing, Range, Storage, is_hidden
from blizzard_core.storage.ranges import Ranges, name_before
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.closed_partitions import untimed_partitions
from blizzard_core.watermark.partition_time import family_of, is_timed, lookback_floor, span_of
from blizzard_core.watermark.paths import partition_key, split
from blizzard_core.watermark.progress import Progress, ScanTimes
from blizzard_core.watermark.scan import scan
from blizzard_py.sources.files.file_names import FileFilter, accepts_file, selection_of
from blizzard_py.sources.ignored_names import NONE_SKIPPED, SkippedItems
from blizzard_py.sources.protocol import SourceScan
from blizzard_py.state.processed_set import digests_of
from blizzard_py.state.source_state import SourceState, under_way

# Until the depth is known the time comes from a file's whole folder.
_ANY_DEPTH = 99
# A file that is dated further ahead than this was not written then; see `FirstSeen`.
AHEAD_SLACK_SECS = 60.0
# Printable ASCII without the backslash.
_PLAIN = re.compile(r"[ -\[\]-~]+")


@dataclass(frozen=True, slots=True)
class Discovery(SourceScan):
    """Files to do, and the progress they refer to.

    No watermark passes the ``young``. ``skipped`` are files in skipped partitions: named by a time
    ahead of now, or without a time and beyond the limit.
    """

    progress: Progress


class FirstSeen:
    """The first sightings of files that are dated ahead of now: `min_age` for them.

    In memory only: after a restart they are as old as the first look at them.
    """

    def __init__(self) -> None:
        self._seen: dict[Entry, float] = {}

    def first_times(
        self, entries: Iterable[Entry], now: float, *, complete: bool = True
    ) -> Mapping[Entry, float]:
        """Return when these files were first seen.

        After a ``complete`` scan, forget files that are no longer listed.
        """
        times = {entry: self._seen.get(entry, now) for entry in entries}
        self._seen = times if complete else {**self._seen, **times}
        return times


def check_tracking(state: SourceState, source: SourceSettings, where: str) -> None:
    """Raise `StateError` if the state was kept the other way: it would ingest all again."""
    progress = state.position.progress
    has_begun = progress.value is not None or bool(progress.partitions or state.names.processed)
    # Without that an empty set says that a run started, not that anything was done by it.
    has_begun = has_begun or any(True for _ in under_way(state.work))
    if not source.use_watermark and state.names.processed is None and has_begun:
        raise StateError(
            f"{where}: was kept with a watermark, the configuration now says use_watermark: false;"
            " set it back, or give the source another id (which ingests everything again)"
        )
    if source.use_watermark and state.names.processed is not None and has_begun:
        raise StateError(
            f"{where}: was kept without a watermark, the configuration now says use_watermark:"
            " true; set it back, or give the source another id (which ingests everything again)"
        )


def notes_of(source: SourceSettings, progress: Progress, paths: Iterable[str] = ()) -> list[str]:
    """Return notes on the cost of a source's polls; ``paths`` are found and not done."""
    limit = source.advanced.max_tracked_partitions
    notes = [
        f"include {pattern!r} begins with a wildcard, so a poll costs a LIST for each folder that"
        " may match; begin it with names, such as {a,b}, if they are known"
        for pattern in selection_of(source).broadest()
    ]
    if source.advanced.modified_before is not None:
        notes.append("modified_before is a fixed time: what is modified later is passed for good")
    if not source.use_watermark or len(open_ones := untimed_partitions(progress, paths)) <= limit:
        return notes
    note = (
        f"{len(open_ones):,} partitions have names without a time, such as {min(open_ones)}."
        f" advanced.max_tracked_partitions ({limit}) closes none of them, and each may cost a LIST"
        " with every poll; poll less often, or set a smaller advanced.partition_depth"
    )
    return [*notes, note]


def starting_point(state: SourceState, source: SourceSettings, now: float, where: str) -> Progress:
    """Return the progress to scan from: the configured depth, and the floor of a cold start.

    Raises `StateError` if the checkpoint was kept at another depth: its
    watermarks would be compared with names they do not belong to.
    """
    progress = state.position.progress
    depth = source.depth
    if depth is not None and progress.depth not in (None, depth):
        raise StateError(
            f"{where}: was kept with a partition depth of {progress.depth}, the configuration now"
            f" says {depth}; set advanced.partition_depth: {progress.depth}, or give the source"
            " another id"
        )
    if depth is not None:
        progress = replace(progress, depth=depth)
    # After the first scan the checkpoint has the floor, and its own rules raise it.
    # A checkpoint of the original has none and continues like the original.
    # With a global watermark only it has a floor, but one that knows of no lookback.
    if state.position.origin is None and (
        progress.floor is None or not state.summary.totals.batches
    ):
        progress = _closed_below(progress, lookback_floor(source.partition_filter, now))
    return progress


def _closed_below(progress: Progress, floor: str | None) -> Progress:
    """Return the progress with everything below ``floor`` closed, tracked partitions included."""
    if floor is None:
        return progress
    floor = max(floor, progress.floor or "", key=partition_key)
    partitions = {
        partition: known
        for partition, known in progress.partitions.items()
        if partition.count("/") + bool(partition) != progress.depth
        or partition_key(partition) >= partition_key(floor)
    }
    return replace(progress, floor=floor, partitions=partitions)


def discover_unseen(
    storage: Listing,
    source: SourceSettings,
    unseen: Callable[[Sequence[str]], Sequence[str]],
    clock: Callable[[], float],
    first_seen: FirstSeen,
    reread: Callable[[Sequence[Entry], float], Sequence[str]] = lambda _entries, _now: (),
) -> tuple[Discovery, Digests]:
    """List everything but done files, for names that do not sort; return all paths' digests too.

    ``reread`` returns the processed files to read once more now.

    Costs a request per thousand files stored: there is no watermark to start at. Of
    what is done a page is in memory at a time, and 16 bytes a name.
    """
    began = clock()
    accept = FileFilter(source)
    new: dict[str, Entry] = {}
    listed: list[Digests] = []
    requests = keys = 0
    for page in storage.list_range("", None):
        requests += page.requests
        keys += page.keys
        entries = {e.path: e for e in page.entries if not is_hidden(e.path)}
        listed.append(digests_of(entries))
        wanted = [path for path, entry in entries.items() if accept(entry)]
        if len(new) < SCAN_FILES:  # the rest is for the next poll
            fresh = set(unseen(wanted))
            done = [entries[path] for path in wanted if path not in fresh]
            fresh.update(reread(done, began))
            new |= {path: entries[path] for path in wanted if path in fresh}
    now = clock()
    scanned = ScanTimes(began, now)
    ripe, young = _split_by_age(tuple(new.values()), source, scanned, first_seen)
    found = Discovery(
        ripe,
        young,
        requests,
        keys,
        scanned,
        NONE_SKIPPED,
        Progress(depth=0),
        ignored=accept.ignored,
    )
    return found, np.concatenate(listed) if listed else digests_of(())


def discover_named(
    storage: Storage,
    listing: Listing,
    source: SourceSettings,
    paths: Sequence[str],
    clock: Callable[[], float],
    concurrency: int,
) -> Discovery:
    """Ask for new files by name instead of a listing; those that are not there are left out.

    Stores take some spellings for another name: a disk ``a//b`` for ``a/b``, Azure a backslash for
    a slash. A file would be ingested once more under such a name. So a name that is not plain is
    looked for in a listing. Raises `StorageError`.
    """
    began = clock()

    def find(path: str) -> tuple[Entry | None, int, int]:
        if _is_plain(path):
            return storage.stat(path), 0, 1
        pages = list(listing.list_range(name_before(path), f"{path}\0"))
        entries = (entry for page in pages for entry in page.entries if entry.path == path)
        return (
            next(entries, None),
            sum(page.requests for page in pages),
            sum(page.keys for page in pages),
        )

    with ThreadPool(min(concurrency, max(1, len(paths))), "find") as pool:
        found = list(pool.map(find, paths))
    entries = tuple(
        filter(accepts_file(source), (each[0] for each in found if each[0] is not None))
    )
    requests, keys = sum(each[1] for each in found), sum(each[2] for each in found)
    ranges = Ranges(Range(name_before(path), f"{path}\0") for path in paths)
    scanned = ScanTimes(began, clock(), cover=ranges)
    ripe, young = _split_by_age(entries, source, scanned, FirstSeen())
    return Discovery(ripe, young, requests, keys, scanned, NONE_SKIPPED, Progress(depth=0))


def _is_plain(path: str) -> bool:
    """Return whether every store takes a name for itself alone."""
    parts = path.split("/")
    return _PLAIN.fullmatch(path) is not None and not any(p == "" or p[-1] in ". " for p in parts)


def _split_by_age(
    entries: tuple[Entry, ...], source: SourceSettings, scanned: ScanTimes, first_seen: FirstSeen
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Split the files into those that are old enough and those that are not.

    The age of a file counts from its modification time. If that lies ahead of now, it counts from
    the first scan that saw the file unchanged.
    """
    if not source.advanced.min_age:
        return entries, ()
    now = scanned.ended
    ahead = [entry for entry in entries if entry.modified > now + AHEAD_SLACK_SECS]
    since = first_seen.first_times(ahead, now, complete=scanned.cover is None)
    newest = now - source.advanced.min_age
    ripe = tuple(entry for entry in entries if since.get(entry, entry.modified) <= newest)
    young = tuple(entry for entry in entries if since.get(entry, entry.modified) > newest)
    return ripe, young


def discover(
    storage: Listing,
    source: SourceSettings,
    progress: Progress,
    clock: Callable[[], float],
    concurrency: int,
    first_seen: FirstSeen,
    limit: int | None = SCAN_FILES,
    cover: Ranges | None = None,
) -> Discovery:
    """List everything above the watermarks, up to a limit. Raises `StorageError`.

    With a ``cover`` only what lies in it. A failed listing never returns a part. ``clock`` is read
    before and after the listing.
    """
    began = clock()
    accept = FileFilter(source)
    places = PartitionSelector(progress, source, began)

    def wanted(entry: Entry) -> bool:
        # A bounded scan counts what is taken: the rest would fill it again and again.
        return accept(entry) and places.take(entry.path)

    found = scan(storage, progress, wanted, concurrency, limit, cover=cover)
    now = clock()
    entries = found.entries
    skipped = places.skipped
    if not progress.partitions:
        # Until partitions are tracked, only found paths show which have no time.
        places = PartitionSelector(found.progress, source, began, (e.path for e in entries))
        entries = tuple(e for e in entries if places.take(e.path))
        skipped = SkippedItems(
            skipped.files + places.skipped.files, skipped.first or places.skipped.first
        )
    scanned = ScanTimes(began, now, found.until, cover)
    ripe, young = _split_by_age(entries, source, scanned, first_seen)
    return Discovery(
        ripe,
        young,
        found.requests,
        found.keys,
        scanned,
        skipped,
        found.progress,
        ignored=accept.ignored,
        notes=tuple(notes_of(source, found.progress, (entry.path for entry in entries))),
    )


def nothing_scanned(progress: Progress, now: float) -> Discovery:
    """Return the discovery of a poll that lists nothing, because no scan is due."""
    scanned = ScanTimes(now, now, cover=Ranges(()))
    return Discovery((), (), 0, 0, scanned, NONE_SKIPPED, progress)


class PartitionSelector:
    """Return the partitions to scan, and the files in the skipped ones.

    Partitions named by a time ahead of now are skipped until that time. A partition with a
    processed file is always scanned, even if settings or the clock have changed. Scans continue
    above its names, so its unread files would be lost. Besides partitions named by a time, other
    and new families are scanned (see `family_of`). `max_tracked_partitions` limits them, because a
    few tiny objects must not displace the writers' files. Tracked partitions and the paths
    ``found`` show whether partitions are named by times.
    """

    def __init__(
        self,
        progress: Progress,
        source: SourceSettings,
        now: float,
        found: Iterable[str] = (),
    ) -> None:
        tracked = [partition for partition in progress.partitions if partition]
        self._depth = _ANY_DEPTH if progress.depth is None else progress.depth
        self._latest = now + source.advanced.max_ahead
        self._limit = source.advanced.max_tracked_partitions
        self._families = {_kind_of(partition) for partition in tracked}
        partitions = {split(path, self._depth)[0] for path in found}
        self._timed = any(map(is_timed, (*tracked, *partitions)))
        self._known = {"": True, **dict.fromkeys(tracked, True)}
        self._count = 0
        self._first: str | None = None

    @property
    def skipped(self) -> SkippedItems:
        """Return what lies in partitions that are not looked at."""
        return SkippedItems(self._count, self._first)

    def take(self, path: str) -> bool:
        """Return whether the file's partition is looked at; notes those that are not."""
        partition = split(path, self._depth)[0]
        looked_at = self._known.get(partition)
        if looked_at is None:
            looked_at = self._known[partition] = self._looks_at(partition)
        if not looked_at:
            self._count += 1
            self._first = path if self._first is None else self._first
        return looked_at

    def _looks_at(self, partition: str) -> bool:
        span = span_of(partition)
        if span is not None and span.begin > self._latest:
            return False
        family = _kind_of(partition)
        if not self._timed or family in self._families:
            return True
        if len(self._families) > self._limit:  # that of the real partitions is one of them
            return False
        self._families.add(family)
        return True


def _kind_of(partition: str) -> str:
    """Return the family of a partition with a time; any other is a family of its own."""
    return family_of(partition) if is_timed(partition) else partition

"""The advance of a watermark: done files, what holds it back, what a complete scan moves. Pure.

Batches and recovery only say what is done (`finish_batch`). What scans need look at no
more is decided after a complete scan, with everything it found (`end_scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Lowest, Progress, ScanTimes, lowest_of, mark_done
from blizzard_core.watermark.progress import expire_grace as settled_progress
from blizzard_py.sources.meter import BatchLimits, next_count
from blizzard_py.sources.protocol import PlainWork
from blizzard_py.state.batch import Batch
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.retries import retries_after
from blizzard_py.state.source_state import PendingWork, Retry, SourceState
from blizzard_py.state.transitions import done_of, is_below_origin


class FileWork(PlainWork):
    """The pending files of one scan in their order, and other paths that wait.

    ``files`` begin with ``late`` files below scan starts, which hold no watermark back. The rest is
    in byte order. ``waiting`` are paths that wait for other reasons.
    """

    def __init__(
        self, files: Sequence[Entry], late: int, waiting: Iterable[str], depth: int | None
    ) -> None:
        super().__init__(files)
        self._depth = depth or 0
        self._places: dict[str, list[int]] = {}
        for place in range(late, len(files)):
            partition = split(files[place].path, self._depth)[0]
            self._places.setdefault(partition, []).append(place)
        for places in self._places.values():
            places.reverse()
        self._lowest_waiting = lowest_of(waiting, depth)

    def lowest(self, partition: str) -> bytes | None:
        """Return the lowest pending name of the partition; see `Lowest`."""
        places = self._places.get(partition, [])
        while places and places[-1] < self._next:
            places.pop()
        keys = [self._lowest_waiting[partition]] if partition in self._lowest_waiting else []
        if places:
            keys.append(order_key(split(self._files[places[-1]].path, self._depth)[1]))
        return min(keys, default=None)


class KeyedWork(FileWork):
    """Work in which a batch takes only files of one key; files of some keys stay together.

    ``whole`` returns whether all files of a key must go into one batch, whatever the limits.
    """

    def __init__(
        self, files: Sequence[Entry], key: Callable[[str], str], whole: Callable[[str], bool]
    ) -> None:
        super().__init__(files, len(files), (), None)
        self._key = key
        self._whole = whole

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        files, first = self._files, self._next
        key = self._key(files[first].path)
        end = first
        while end < len(files) and self._key(files[end].path) == key:
            end += 1
        if not self._whole(key):
            end = min(end, first + next_count(files, first, limits, bytes_per_sec))
        return self._next_files(end - first)


# For callers without pending files.
NOTHING = FileWork((), 0, (), None)


def finish_batch(state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:
    """Move the watermarks past the batch's done files (step 5).

    ``lowest`` returns the lowest pending name, without the files of this batch. Files that wait for
    another attempt are considered here. In recovery the pending files are unknown, so no name may
    be passed: ``lowest`` is then `hold_all`.
    """
    # Queued files are outside of scans; they move no watermark.
    queued = {entry.path for entry in state.work.queue}
    fresh = [entry.path for entry in done_of(batch) if entry.path not in queued]
    again = [path for path in retries_after(state.work.retries, batch, now) if path not in queued]
    seen = min(batch.seen_ts, now)  # later only if a clock was wrong
    progress = state.position.progress
    progress = mark_done(progress, fresh, seen, with_waiting(again, progress.depth, lowest))
    window = (*state.position.window, (batch.batch, seen)) if fresh else state.position.window
    return state.with_position(progress=progress, window=window)


def with_reached(state: SourceState, paths: Iterable[str]) -> SourceState:
    """Return the state after requests brought files, maybe from below the source's beginning.

    Or will begin: nothing may have been polled yet.
    """
    is_cold = state.position.origin is None
    below = [p for p in paths if is_cold or is_below_origin(state.position.origin, p)]
    below = [p for p in below if not is_of_records(p)]
    known = [state.position.reached] if state.position.reached else []
    return state.with_position(reached=min([*known, *below], key=order_key, default=""))


def last_of_partitions(paths: Iterable[str], depth: int | None) -> tuple[str, ...]:
    """Return of each partition the path that scans reach last; all while the depth is unknown."""
    if depth is None:
        return tuple(dict.fromkeys(paths))
    found: dict[str, str] = {}
    for path in sorted(paths, key=order_key):
        found[split(path, depth)[0]] = path
    return tuple(found.values())


def hold_all(_partition: str) -> bytes:
    """Hold every name back: the `Lowest` of a caller that does not know the pending files."""
    return b""


def with_waiting(paths: Iterable[str], depth: int | None, lowest: Lowest) -> Lowest:
    """Return ``lowest`` extended by these waiting paths."""
    more = lowest_of(paths, depth)

    def combined(partition: str) -> bytes | None:
        keys = [key for key in (lowest(partition), more.get(partition)) if key is not None]
        return min(keys, default=None)

    return combined


@dataclass(frozen=True, slots=True)
class FloorRules:
    """The rules by which a scan moves floors and scan starts: grace period, limit and look-back."""

    grace: float
    tracked: int
    lookback: str | None


def end_scan(
    state: SourceState,
    progress: Progress,
    pending: Collection[str],
    scanned: ScanTimes,
    rules: FloorRules,
) -> SourceState:
    """Move scan starts and floors after a discovery, and forget vanished files.

    ``progress`` is the discovery's, ``pending`` everything that it found. A file that waits for
    another attempt but is no longer listed was deleted at its source. It must not hold the
    watermark for ever. A file that is both found and queued leaves the queue, unless a request
    queued it.

    A scan with a cover moves scan starts of covered partitions only. It raises no floor: a floor
    closes what was never seen, so everything has to be found. It forgets no file, since it does not
    notice a disk that is not mounted.
    """
    found = set(pending)
    listed = {*found, *(entry.path for entry in state.work.queue)}
    retries = still_there(state.work, pending, scanned)
    held = [*pending, *(path for path in retries if path not in listed)]
    moved = settled_progress(
        progress, scanned, rules.grace, with_waiting(held, progress.depth, lambda _partition: None)
    )
    if scanned.cover is None:
        moved = raise_floors(
            moved, rules.tracked, rules.lookback, held, scanned.ended, scanned.until
        )
    alive = {at for known in moved.partitions.values() for at in known.done.values()}
    return state.with_position(
        progress=moved, window=tuple(item for item in state.position.window if item[1] in alive)
    ).with_work(
        queue=tuple(each for each in state.work.queue if each.request or each.path not in found),
        retries=retries,
    )


def still_there(
    work: PendingWork, pending: Collection[str], scanned: ScanTimes
) -> dict[str, Retry]:
    """Return the files that wait for another attempt, without those that are no longer listed.

    Only a complete scan tells which are listed.
    """
    if scanned.cover is not None:
        return dict(work.retries)
    listed = {*pending, *(entry.path for entry in work.queue)}
    return {
        path: retry
        for path, retry in work.retries.items()
        if path in listed or not _was_listed(path, scanned.until)
    }


def _was_listed(path: str, until: str | None) -> bool:
    return until is None or order_key(path) <= order_key(until)


def noted(progress: Progress, done: Sequence[Entry]) -> Progress:
    """Return the progress with the highest path, for display only: there is no watermark."""
    paths = [entry.path for entry in done]
    paths += [progress.value] if progress.value is not None else []
    if not done:
        return progress
    return replace(progress, state="Active", value=max(paths, key=order_key))

"""Files whose names sort in time: a watermark for each partition, and a grace period."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from blizzard_core.errors import OrderError
from blizzard_core.limits import SCAN_FILES
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Listing, is_hidden, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.paths import depth_of, split
from blizzard_core.watermark.progress import Lowest, Progress, gaps, is_new, is_passed
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import FloorRules, end_scan, finish_batch
from blizzard_py.sources.files.discovery import (
    Discovery,
    PartitionSelector,
    discover,
    nothing_scanned,
    starting_point,
)
from blizzard_py.sources.files.file_names import FileFilter
from blizzard_py.sources.files.hint_pacing import HintedNames, NamesByWatermark
from blizzard_py.sources.files.late_file_sweep import grace_of, start_sweep
from blizzard_py.sources.files.order_guard import TOLERANCE_SECS, inspect
from blizzard_py.sources.files.small_samples import disorder
from blizzard_py.sources.files.source import FileSource, NameLookup
from blizzard_py.sources.files.story import WatermarkFileStatus
from blizzard_py.sources.ignored_names import SkippedItems
from blizzard_py.sources.protocol import Backlog, CheckpointServices
from blizzard_py.sources.story import ItemStatus
from blizzard_py.state.batch import Batch
from blizzard_py.state.lateness import EarlierScans, measure_lateness
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import is_below_origin

# The number of names after which a scan leaves a range, and of requests after which it leaves all.
# That is at most two requests a range on an object store. On a disk a request is a directory.
NAMES_PER_GAP = 1000
REQUESTS = 200


def backlog(
    storage: Listing,
    progress: Progress,
    source: SourceSettings,
    now: float,
    queued: Iterable[Entry],
) -> Backlog:
    """Return what is above the watermarks or ``queued``, from the beginning of each range.

    Raises `StorageError`.
    """
    found: list[Entry] = []
    accept, complete = FileFilter(source), True
    remaining = REQUESTS
    for gap in gaps(progress):
        if remaining <= 0:
            complete = False
            break
        names = 0
        for page in storage.list_range(gap.after, gap.until):
            found += (e for e in page.entries if not is_hidden(e.path) and accept(e))
            names += page.keys
            remaining -= page.requests
            # There may be nothing behind this page; then it says too much, and never too little.
            if names > NAMES_PER_GAP or remaining <= 0:
                complete = False
                break
    if progress.depth is None:
        progress = replace(progress, depth=depth_of(entry.path for entry in found))
    places = PartitionSelector(progress, source, now)
    waiting = {
        entry.path: entry.modified
        for entry in chain(queued, (e for e in found if is_new(progress, e.path)))
        if places.take(entry.path)
    }
    oldest = min(waiting.values(), default=None)
    return Backlog(len(waiting), oldest, complete, places.skipped, accept.ignored)


@dataclass(frozen=True, slots=True)
class KnownByWatermark:
    """Names that polls find: above watermarks, from ``soon`` on also in skipped partitions."""

    state: SourceState
    source: SourceSettings
    soon: float

    def finds(self, path: str) -> bool:
        progress = self.state.position.progress
        if progress.state == "Initial" and not progress.partitions:
            return True
        looked_at = PartitionSelector(progress, self.source, self.soon).take(path)
        return looked_at and is_new(progress, path)

    def is_older(self, path: str) -> bool:
        state = self.state
        passed = not is_new(state.position.progress, path) and not is_below_origin(
            state.position.origin, path
        )
        return (
            passed
            and not state.late_files.sweep.whole
            and state.position.progress.state != "Initial"
        )


# A partition whose newest file is younger was in use when it was closed.
ACTIVE_SECS = 86_400.0


class WatermarkFiles(FileSource):
    """Lists what lies above the scan start of each partition."""

    def __init__(self, parts: SourceContext, upkeep: CheckpointServices) -> None:
        super().__init__(parts, upkeep)
        self._earlier = EarlierScans()
        self._young = 0
        self._warned: set[str] = set()  # kinds of problems, each told once a process
        # By partition the time of the newest file that this process has found in it.
        self._written: dict[str, float] = {}

    def discover(self, state: SourceState, *, full: bool = False) -> Discovery:
        return self._found(state, self._start(state), full=full)

    def _scan(self, state: SourceState) -> Discovery:
        start, scans = self._start(state), self._scans
        if scans is None:
            return self._found(state, start)
        scan = scans.due(state, start)
        if scan is None:
            return nothing_scanned(start, self._clock())
        found = self._found(state, start, scan.cover_in(start))
        scans.scanned(scan, found, state)
        return found

    def _hinted_names(self, state: SourceState) -> HintedNames:
        return NamesByWatermark(self._start(state))

    def _found(
        self,
        state: SourceState,
        start: Progress,
        cover: Ranges | None = None,
        *,
        full: bool = False,
    ) -> Discovery:
        return discover(
            self._listing,
            self._source,
            start,
            self._clock,
            self._parts.concurrency,
            self._first_seen,
            # What waits must not take the places of what could be done.
            None if full else SCAN_FILES + len(state.work.retries) + self._young,
            cover,
        )

    def backlog(self, state: SourceState) -> Backlog | None:
        now = self._clock()
        start = starting_point(state, self._source, now, self._where)
        return backlog(self._listing, start, self._source, now, state.work.queue)

    def name_lookup(self, state: SourceState, soon: float) -> NameLookup:
        return KnownByWatermark(state, self._source, soon)

    def clean_up(self) -> None:
        """Nothing is written aside."""

    def _learned(self, state: SourceState, found: Discovery) -> SourceState:
        self._guard_order(found, state)
        self._log_skipped(found.skipped)
        self._log_ignored(found)
        if found.notes and "notes" not in self._warned:
            self._warned.add("notes")
            self._log.warning("polls_cost_much", notes=found.notes)
        scanned = found.scanned
        paths = [file.path for file in (*found.files, *found.young)]
        lateness = measure_lateness(
            state.late_files.lateness,
            found.progress,
            (*found.files, *found.young),
            self._earlier,
            scanned,
        )
        state = state.with_late_files(lateness=lateness)
        self._earlier = self._earlier.plus(scanned, found.progress)
        is_complete = scanned.cover is None
        self._young = len(found.young) if is_complete else max(self._young, len(found.young))
        grace = grace_of(self._source, state, scanned.ended)
        oldest = lookback_floor(self._source.partition_filter, scanned.ended)
        rules = FloorRules(grace, self._source.advanced.max_tracked_partitions, oldest)
        cold = state.position.origin is None and state.position.progress.state == "Initial"
        before = state.position.progress.partitions.keys()
        state = end_scan(state, found.progress, paths, scanned, rules)
        ahead = tuple(
            path for path in state.position.ahead if not is_passed(state.position.progress, path)
        )
        state = state.with_position(ahead=ahead)
        self._log_closed(found, before - state.position.progress.partitions.keys())
        if state.position.origin is None and is_complete:
            # Where this source began, also if nothing is there yet: a floor that followed the
            # clock would pass over what comes while nobody looks. What an original did is not
            # known, so nothing of its source is a backfill's.
            state = state.with_position(origin=(found.progress.floor or "") if cold else "")
            if cold:
                state = start_sweep(state, scanned.ended)
            self._upkeep.save(state)
        return state

    def _moved(self, state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:
        return finish_batch(state, batch, lowest, now)

    def _status_of(self, state: SourceState, entry: Entry) -> ItemStatus:
        return WatermarkFileStatus(self._parts, state, self._start(state), entry)

    def _start(self, state: SourceState) -> Progress:
        return starting_point(state, self._source, self._clock(), self._where)

    def _guard_order(self, found: Discovery, state: SourceState) -> None:
        """Say (or fail) if names do not sort in time, before a watermark moves over them.

        Disorder within the grace period is what the grace period is for. Raises
        `OrderError` with ``order_guard: fail``.
        """
        if self._source.advanced.order_guard == "off":
            return
        grace = grace_of(self._source, state, self._clock())
        entries = sorted([*found.files, *found.young], key=lambda e: order_key(e.path))
        known = found.progress.partitions
        for finding in inspect(
            entries, found.progress.depth or 0, known, max(grace, TOLERANCE_SECS)
        ):
            if self._source.advanced.order_guard == "fail":
                raise OrderError(f"{self._storage.uri}: {finding.message}")
            if finding.kind not in self._warned:
                self._warned.add(finding.kind)
                self._log.warning("order_guard", kind=finding.kind, problem=finding.message)
        if "random_names" not in self._warned and (few := disorder(entries)):
            self._warned.add("random_names")
            self._log.warning("order_guard", kind="random_names", problem=few.message)

    def _log_closed(self, found: Discovery, closed: Collection[str]) -> None:
        """Say which partitions are not looked at any more, and warn where one was in use."""
        depth = found.progress.depth or 0
        for entry in found.files:
            partition = split(entry.path, depth)[0]
            self._written[partition] = max(self._written.get(partition, 0.0), entry.modified)
        if not closed:
            return
        newest = {partition: self._written.pop(partition, 0.0) for partition in closed}
        active = [p for p, at in newest.items() if at > found.scanned.ended - ACTIVE_SECS]
        self._log.info("partitions_closed", partitions=len(closed), highest=max(closed))
        if active:
            self._log.warning(
                "active_partitions_closed",
                partitions=len(active),
                example=max(active),
                remedy="files came there within a day, and what comes from now on is late; set"
                " advanced.max_tracked_partitions above the number of partitions that are written"
                " to",
            )

    def _log_skipped(self, skipped: SkippedItems) -> None:
        if skipped.files and "apart" not in self._warned:
            self._warned.add("apart")
            self._log.warning(
                "files_left_apart",
                files=skipped.files,
                first=skipped.first,
                remedy="their partitions lie ahead of time, or are odd and too many; see"
                " advanced.max_ahead, or take them with `blizzard ingest`",
            )

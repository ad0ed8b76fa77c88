"""A source of files, as far as it is the same however done files are told from new ones.

It separates the files in ``replacing`` of the state from all others: an operator may request a
replacement of any.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from blizzard_core.errors import StorageError, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, is_bare, order_key, root_exists
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Lowest
from blizzard_py.cleaning.eligible import cleaning_notes
from blizzard_py.job import LEFT_STAGE, FinishedFile, JobFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.directories import PartitionError
from blizzard_py.sources.files.advance import (
    NOTHING,
    FileWork,
    hold_all,
    with_reached,
    with_waiting,
)
from blizzard_py.sources.files.completion import complete_partitions, resume_counts
from blizzard_py.sources.files.discovery import Discovery, FirstSeen, check_tracking, notes_of
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.files.file_names import why_ignored
from blizzard_py.sources.files.hint_pacing import (
    HintedNames,
    hinted_scans,
    notification_notes,
)
from blizzard_py.sources.files.late_file_outcomes import LateFiles
from blizzard_py.sources.files.late_file_sweep import changed_notes, grace_of, is_due
from blizzard_py.sources.files.list_budget import budget_notes
from blizzard_py.sources.files.listing import listing_of, outside
from blizzard_py.sources.files.replacements import Replacements
from blizzard_py.sources.files.scan_pacing import CountedListing, PacedScans, ScanPacing, limits_of
from blizzard_py.sources.protocol import (
    Backlog,
    CheckpointServices,
    PollPlan,
    Requested,
    Withheld,
)
from blizzard_py.sources.records import place_files, requested_files
from blizzard_py.sources.shared_files import check_ranges, ranges_of_others
from blizzard_py.sources.stale import World, require_current
from blizzard_py.sources.story import ItemStatus, Story
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.checkpoint_file import read_ledger
from blizzard_py.state.completeness import completeness_notes
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import SourceState, checkpoint_path, under_way

# What a request has settled before polls reach it, by its outcome in the ledger.
_AHEAD = {
    "rows": "a request has brought it",
    "unknown": "a request has claimed it, and its batch was lost or given up",
}


class NameLookup(Protocol):
    """A state, asked about names that the source's listings take."""

    def finds(self, path: str) -> bool:
        """Return whether polls will find a file of that name."""

    def is_older(self, path: str) -> bool:
        """Return whether polls have passed the name, maybe before there was a ledger to say so."""


class FileSource(ABC):
    """Files below a root. A `Source`."""

    items = "file"
    is_failing = False

    def __init__(self, parts: SourceContext, upkeep: CheckpointServices) -> None:
        self._parts = parts
        self._source = parts.files
        self._storage = parts.stores.source
        self._listing = listing_of(parts)
        # None if each poll scans everything.
        self._scans: ScanPacing[Any] | None = hinted_scans(parts, self._hinted_names, upkeep.clock)
        limits = None if parts.once else limits_of(self._source)
        if limits is not None:
            counted_listing = CountedListing(self._listing)
            self._listing = counted_listing
            self._scans = PacedScans(parts, limits, counted_listing)
        self._upkeep = upkeep
        self._clock = upkeep.clock
        self._where = f"{parts.stores.sink.uri}/{checkpoint_path(parts.id)}"
        self._first_seen = FirstSeen()
        self._late = LateFiles(parts, upkeep, self._listing)
        self._replacements = Replacements(parts)
        self._has_told_ignored = False
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def check(self, state: SourceState) -> None:
        check_tracking(state, self._source, self._where)

    @abstractmethod
    def discover(self, state: SourceState, *, full: bool = False) -> Discovery:
        """See `Source`."""

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        if batch.request:
            return state
        return self._moved(state, batch, NOTHING.lowest, batch.results.committed_ts)

    @abstractmethod
    def backlog(self, state: SourceState) -> Backlog | None:
        """See `Source`."""

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        progress, now = state.position.progress, self._clock()
        scans = chain(
            budget_notes(self._source, state, progress, now), notification_notes(self._source)
        )
        return {
            "partition_watermarks": {
                partition: known.watermark
                for partition, known in sorted(progress.partitions.items())
                if partition and known.watermark is not None
            },
            "grace_period_secs": grace_of(self._source, state, now),
            "notes": [
                *notes_of(self._source, progress),
                *changed_notes(state),
                *completeness_notes(state.complete),
                *self._cleaning_notes(state, now),
                *scans,
            ],
        }

    def _cleaning_notes(self, state: SourceState, now: float) -> list[str]:
        clean = self._source.clean
        if clean is None:
            return []
        last = state.ids.last_batch
        return cleaning_notes(state.cleaning, last, now, is_dry_run=clean.dry_run)

    def explain(self, name: str) -> Story:
        entry = self._storage.stat(name) if name else None
        folder = None
        with contextlib.suppress(PartitionError):  # the table was partitioned in another way then
            folder = self._parts.folder_of(name) or None
        why = why_ignored(name, self._source, None if entry is None else entry.modified)
        why = why or outside(self._parts.identity.range, name) or None

        def status_in(state: SourceState) -> ItemStatus:
            self.check(state)
            return self._status_of(state, entry or Entry(name, 0, 0.0))

        return Story(entry, why, status_in, folder)

    def close(self) -> None:  # noqa: B027  # every kind of files has nothing to close
        """Do nothing: stores are shared, and nothing else is open."""

    def start_over(self, state: SourceState, epoch: int) -> SourceState:
        self._late.load(epoch)
        return self._late.start_over(state)

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._replacements.forget()
        self._late.load(epoch)
        if self._scans is not None:
            self._scans.start_over()
        state = resume_counts(self._source, state, epoch, self._clock())
        # `check` let it pass, so the set is empty; left there it would be taken for one later.
        return state.with_names(processed=None) if self._source.use_watermark else state

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        check_ranges(self._parts, state, self._clock())
        return require_current(state, self._parts, world)

    def plan(self, state: SourceState) -> PollPlan[FileWork]:
        found = self._scan(state)
        self._log.debug(
            "discovered", files=len(found.files), requests=found.requests, keys=found.keys
        )
        if found.scanned.cover is None and not (found.files or found.young):
            self._check_shown(state)
        ended = found.scanned.ended
        state = self._learned(state, found)
        passed = 0.0 if self._scans is None else self._scans.passed
        if is_due(state, self._source, ended, passed):
            state = self._sweep(state)
        state = self._completed(state, found)
        waits = waiting(state.work.retries, ended)
        requested = {entry.path for entry in state.work.queue if entry.request}
        queued = {entry.path for entry in state.work.queue}
        late = [e.entry for e in state.work.queue if e.path not in waits and not e.request]
        fresh = [e for e in found.files if e.path not in waits and e.path not in queued]
        # What a request has is held where polls have come upon it: they are not to pass it before.
        come_upon = requested.intersection(file.path for file in found.files)
        held = [*(waits - requested), *come_upon, *(file.path for file in found.young)]
        if self._scans is not None:
            is_cut = found.scanned.until is not None  # then it goes on at once
            found = replace(found, next_at=self._scans.next_at(state), needs_rescan=is_cut)
        return PollPlan(
            state, found, FileWork([*late, *fresh], len(late), held, state.position.progress.depth)
        )

    def _completed(self, state: SourceState, found: Discovery) -> SourceState:
        """Return the state with its complete partitions, saved if there are new ones."""
        shown, complete = complete_partitions(self._source, state, found)
        counted, late = {} if shown.complete is None else shown.complete.partitions, set()
        for name in complete:
            counts = counted[name].completion.contents
            state, has_late = self._late.find_late(state, name, counts)
            if has_late:
                late.add(name)
        if complete:  # the state may have changed since
            shown, complete = complete_partitions(self._source, state, found, late)
        if not complete:
            return shown
        highest = max(complete, key=order_key)
        self._log.info("partitions_complete", partitions=len(complete), highest=highest)
        return self._upkeep.save(shown)

    def _scan(self, state: SourceState) -> Discovery:
        """Scan what is due."""
        return self.discover(state)

    @abstractmethod
    def _hinted_names(self, state: SourceState) -> HintedNames:
        """Return what a state says of names in hints."""

    def _sweep(self, state: SourceState) -> SourceState:
        """List one slice of the sweep, unless the budget has to be saved up first."""
        if self._scans is None:
            return self._late.go_on(state)
        if not self._scans.may_sweep():
            return state
        state = self._late.go_on(state, self._scans.pages)
        self._scans.swept()
        return state

    def job_items(
        self, state: SourceState, batch: Batch
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        """Return the batch's files with their table directories, and the outcomes of the others."""
        theirs = self._theirs(state, batch)
        files, lost = place_files(self._parts, (e for e in batch.files if e.path not in theirs))
        left = (FinishedFile(p, "reported", error=w, stage=LEFT_STAGE) for p, w in theirs.items())
        return files, [*left, *lost]

    def reading(self, state: SourceState, batch: Batch) -> AbstractContextManager[None]:  # noqa: ARG002  # the seam gives it
        return contextlib.nullcontext()

    def know_earlier(self, batches: EarlierBatches) -> None:
        """Go by batches of files of a request, which were looked up when these were chosen."""
        self._replacements.know(batches)

    def requested_items(self, state: SourceState, now: float) -> Requested:
        first, files = requested_files(state, now)
        return Requested(first, self._replacements.work(state, files))

    def replacement(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld | None:
        if not self._replacements.concerns(state, batch):
            return None
        return self._replacements.replacement(state, batch, finished)

    def is_missing(self, name: str) -> bool:
        try:
            there = self._storage.stat(name) is not None
        except StorageError:
            return False
        return not there and root_exists(self._storage, name)

    def advance(
        self, state: SourceState, batch: Batch, work: FileWork | None, now: float
    ) -> SourceState:
        if batch.request:
            # A request moves no watermark of the source.
            state = with_reached(state, (entry.path for entry in batch.files))
        else:
            state = self._moved(state, batch, _lowest(state, batch, work), now)
        return self._replacements.without_finished(state, batch)

    @abstractmethod
    def name_lookup(self, state: SourceState, soon: float) -> NameLookup:
        """Return what the state, as it is in storage, says of names from now until ``soon``.

        Raises `StateError`, `StorageError`.
        """

    @abstractmethod
    def clean_up(self) -> None:
        """See `Source`."""

    @abstractmethod
    def _learned(self, state: SourceState, found: Discovery) -> SourceState:
        """Return the state after a scan: expired names dropped, lateness measured."""

    @abstractmethod
    def _moved(self, state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:
        """Return the state with watermarks past the batch's files; ``lowest`` holds back. Pure."""

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        """Return the files of a batch that are left out, with the reason."""
        if self._replacements.concerns(state, batch):
            return self._replacements.changed_files(state, batch)
        theirs = self._ingested_ahead(state, batch)
        # Another source may have begun since a request chose them; it sees this batch, or we it.
        for names, name in ranges_of_others(self._parts) if batch.request else ():
            held = (entry.path for entry in batch.files if names.holds(entry.path))
            theirs |= dict.fromkeys(held, f"{name} reads it ({names})")
        return theirs

    def _ingested_ahead(self, state: SourceState, batch: Batch) -> dict[str, str]:
        """Return the files that a request brought before polls reached their partitions."""
        depth = state.position.progress.depth or 0
        ordered = sorted(state.position.ahead, key=order_key)
        highest = {split(path, depth)[0]: order_key(path) for path in ordered}
        paths = [
            entry.path
            for entry in batch.files
            if order_key(entry.path) <= highest.get(split(entry.path, depth)[0], b"")
        ]
        if batch.request or not paths:
            return {}
        ledger = read_ledger(self._parts.stores.sink, self._parts.id)
        settled = {path: ledger.outcome_of(path) for path in paths}
        return {path: _AHEAD[kind] for path, kind in settled.items() if kind in _AHEAD}

    @abstractmethod
    def _status_of(self, state: SourceState, entry: Entry) -> ItemStatus:
        """Return how a file stands to a state."""

    def _check_shown(self, state: SourceState) -> None:
        """Raise `Unavailable` where files wait and the source shows nothing at all.

        It may be a disk that is not mounted; that they are not listed would let them go.
        """
        waits = {path for path in under_way(state.work) if not is_of_records(path)}
        if waits and is_bare(self._storage):
            raise Unavailable(
                f"{self._storage.uri} shows nothing at all, and {len(waits)} file(s) of it"
                f" are still to be done, among them {min(waits)}; mount it, or, if all was"
                " removed on purpose, put anything there, such as a hidden file, and they are"
                " let go of"
            )

    def _log_ignored(self, found: Discovery) -> None:
        """Report ignored names once a process."""
        if not found.ignored.files or self._has_told_ignored:
            return
        self._has_told_ignored = True
        ignored = found.ignored
        told = {"files": ignored.files, "first": ignored.first, "reason": ignored.reason}
        if ignored.wanted:
            self._log.info("files_ignored", **told)
        else:
            self._log.warning("files_ignored", **told)


def _lowest(state: SourceState, batch: Batch, work: FileWork | None) -> Lowest:
    """Return what waits while a batch is advanced; see `Lowest`."""
    if work is None:
        return hold_all
    others = (other for other in state.work.in_flight if other.batch != batch.batch)
    paths = [entry.path for other in others for entry in other.files]
    return with_waiting(paths, state.position.progress.depth, work.lowest)

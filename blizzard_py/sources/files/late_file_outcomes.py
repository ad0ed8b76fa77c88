"""The treatment of late files: the sweep's slices, and what follows from each.

With ``late_files: ingest`` a late file is queued for ingestion. Otherwise its outcome, a dead
letter or a report, is committed as a batch that ingests nothing. This batch has the same commit
point, journal and dead letters as any other. So a replaced daemon writes none, and each file is
reported once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from uuid_utils import uuid7

from blizzard_core.checkpoint.digests import Digests, among, np
from blizzard_core.errors import StorageError
from blizzard_core.handover.complete import PartitionCounts
from blizzard_core.handover.published import first_name
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, Listing
from blizzard_py.cleaning.lists import REMEMBERED_SECS, CleaningLists
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import NOTHING
from blizzard_py.sources.files.completion import list_partition, number_and_digest
from blizzard_py.sources.files.discovery import AHEAD_SLACK_SECS
from blizzard_py.sources.files.late_file_sweep import (
    LATE_AT_ONCE,
    LateSweep,
    Slice,
    grace_of,
    lists,
    partitions_behind,
    sweeps,
    verdicts,
)
from blizzard_py.sources.protocol import CheckpointServices
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.journal import Journal, RecordFile
from blizzard_py.state.journal_tally import JournalTally, raise_id
from blizzard_py.state.lateness import with_worst
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import Segment, digests_of
from blizzard_py.state.source_state import SourceState, queue_file
from blizzard_py.state.transitions import begin_batch

# Batches are named by a machine's clock, and files may wait for so long between look and batch.
_EARLIER_SECS = 86_400.0


@dataclass(frozen=True, slots=True)
class _Listed:
    """Digests of what the journal has listed since a moment: sorted paths, sorted `stamp_of`."""

    since: float
    paths: Digests
    stamps: Digests


class ChangedFiles:
    """Comparison of a sweep's listing with the journal of the source.

    It holds 32 bytes for each file in about two days of the journal. If these do not explain a
    file, it holds all thirty days. `forget` frees them.
    """

    def __init__(self, parts: SourceContext) -> None:
        self._parts = parts
        self._listed: _Listed | None = None

    def forget(self) -> None:
        """Forget the sweep, which is over."""
        self._listed = None

    def among(self, settled: Sequence[Entry], before: float, now: float) -> list[Entry]:
        """Return the settled files that were changed; ``before`` is when the last sweep began.

        Raises `StateError`, `StorageError`.
        """
        listed = self._listed_since(max(0.0, before - _EARLIER_SECS))
        candidates = _unlike(listed, settled, before)
        if candidates and listed.since:
            listed = self._listed_since(0.0)
            candidates = _unlike(listed, candidates, 0.0)
        known = among(digests_of(entry.path for entry in candidates), listed.paths)
        recent = before - AHEAD_SLACK_SECS, now + AHEAD_SLACK_SECS
        return [
            entry
            for entry, reading in zip(candidates, known, strict=True)
            if reading or (before and recent[0] <= entry.modified <= recent[1])
        ]

    def _listed_since(self, since: float) -> _Listed:
        if self._listed is None or self._listed.since > since:
            self._listed = self._read(since)
        return self._listed

    def _read(self, since: float) -> _Listed:
        paths: list[Digests] = []
        stamps: list[Digests] = []
        journal = Journal(self._parts.stores.sink, self._parts.id, self._parts.concurrency)
        for record in journal.read(journal.batches_from(first_name(since))):
            paths.append(digests_of(record.done_paths))
            stamps.append(digests_of(map(stamp_of, record.done)))
        return _Listed(since, _sorted(paths), _sorted(stamps))


def _unlike(listed: _Listed, entries: Sequence[Entry], before: float) -> list[Entry]:
    """Return the files that were modified since, or that differ from their journal entry."""
    paths = among(digests_of(entry.path for entry in entries), listed.paths)
    stamps = among(digests_of(map(stamp_of, entries)), listed.stamps)
    limit = before - AHEAD_SLACK_SECS
    return [
        entry
        for entry, there, same in zip(entries, paths, stamps, strict=True)
        if not same and (there or entry.modified >= limit)
    ]


def stamp_of(entry: Entry | RecordFile) -> str:
    """Return a file with its size and time as one text; a store may give times in seconds only."""
    return f"\0{entry.size}/{int(entry.modified)}/{entry.path}"


def _sorted(parts: Sequence[Digests]) -> Digests:
    return np.unique(np.concatenate([digests_of(()), *parts]))


# Late files that are named one by one in the log for each slice.
_NAMED = 20


class LateFiles:
    """The late files of one source."""

    def __init__(self, parts: SourceContext, upkeep: CheckpointServices, listing: Listing) -> None:
        self._parts = parts
        self._source = parts.files
        self._upkeep = upkeep
        self._sink = parts.stores.sink
        self._ledger = Ledger(self._sink, parts.id, parts.concurrency)
        self._cleaned = CleaningLists(self._sink, parts.id)
        self._changed = ChangedFiles(parts)
        self._listing = listing
        self._sweep = LateSweep(listing, parts.files, self._ledger)
        self._epoch = 0
        self._loaded = False
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def load(self, epoch: int) -> None:
        """Note the ``epoch`` of the take-over. The ledger is read when it is needed."""
        self._epoch = epoch
        self._loaded = False

    def start_over(self, state: SourceState) -> SourceState:
        """Return the state with a ledger that ignores the journal so far."""
        self._ledger.load((), self._epoch)
        reported = [batch for batch, _ in Mailbox(self._sink, self._parts.id).outcomes()]
        return state.with_names(ledger=self._ledger.start_over(reported), unfolded=JournalTally())

    def go_on(self, state: SourceState, pages: int | None = None) -> SourceState:
        """List one slice of the sweep and act on it. A failed listing is only logged.

        ``pages`` may make the slice shorter. Raises what saving raises.
        """
        now = self._upkeep.clock()
        if not self._sweep.may_go_on(now):
            return state
        self._read_ledger(state)
        sweep = state.late_files.sweep
        if sweep.cursor is None:
            sweep = replace(sweep, began=now, before=sweep.began, cursor="")
            state = state.with_late_files(sweep=sweep)
        state = self._folded(state)
        if not lists(self._source):
            state = state.with_late_files(sweep=replace(sweep, cursor=None))
            return self._dealt_with(state, ())
        try:
            found = self._sweep.next_slice(state, pages)
            changed = self._changed_in(state, found.listed, now)
        except StorageError as error:
            # Polls continue; a later slice lists these files again.
            self._sweep.rest(now, self._source.advanced.late_sweep_interval)
            self._log.warning("late_sweep_failed", error=str(error))
            return state
        state = self._noted(state, self._ledger.note_history(found.history))
        if state.late_files.sweep.noted and found.history:
            self._log.warning(
                "files_below_origin",
                files=len(found.history),
                first=found.history[0],
                remedy=f"they came below {state.position.origin!r}, where the cold start began;"
                " `blizzard backfill` takes them in",
            )
        state = self._log_changed(state, changed)
        state = self._noted(state, self._ledger.note(found.unrecorded))
        state = self._moved_on(state, found)
        return self._dealt_with(state, found.late)

    def find_late(
        self, state: SourceState, partition: str, counts: PartitionCounts
    ) -> tuple[SourceState, bool]:
        """List a partition and act on its late files; return whether there are any.

        Scans list what sorts above a partition's scan start, and a sweep may come much later. The
        ledger is asked only if other files lie there than the ``counts`` have. Raises
        `StorageError`, and what saving raises.
        """
        found = number_and_digest(list_partition(self._listing, self._source, partition))
        if found == (counts.files, counts.digest):
            return state, False
        self._read_ledger(state)
        state = self._folded(state)
        late: list[Entry] = []
        for entries in list_partition(self._listing, self._source, partition):
            late += self._sweep.late_among(state, entries)
            if len(late) > LATE_AT_ONCE:
                break  # the rest is found when these are settled
        return self._dealt_with(state, late[:LATE_AT_ONCE]), bool(late)

    def _read_ledger(self, state: SourceState) -> None:
        if not self._loaded:
            self._ledger.load(state.names.ledger, self._epoch)
            self._loaded = True

    def _folded(self, state: SourceState) -> SourceState:
        """Return the state with everything of the journal in its ledger."""
        state = self._noted(state, self._ledger.fold(state.names.unfolded))
        return state.with_names(unfolded=JournalTally())

    def _noted(self, state: SourceState, segments: tuple[Segment, ...] | None) -> SourceState:
        return state if segments is None else state.with_names(ledger=segments)

    def _changed_in(
        self, state: SourceState, listed: Sequence[Entry], now: float
    ) -> Sequence[Entry]:
        """Return the files that changed after they were processed and were not reported yet."""
        if self._source.units is not None:
            return ()  # what is offered again is read again
        unsettled = set(self._ledger.unprocessed([entry.path for entry in listed]))
        busy = {entry.path for batch in state.work.in_flight for entry in batch.files}
        busy.update(entry.path for entry in state.work.queue)
        settled = [e for e in listed if e.path not in unsettled and e.path not in busy]
        changed = (
            self._changed.among(settled, state.late_files.sweep.before, now) if settled else []
        )
        fresh = set(self._ledger.not_reported([stamp_of(entry) for entry in changed]))
        # Those without rows have letters or reports.
        return [
            entry
            for entry in changed
            if stamp_of(entry) in fresh and self._ledger.outcome_of(entry.path) != "none"
        ]

    def _log_changed(self, state: SourceState, changed: Sequence[Entry]) -> SourceState:
        """Say which files were changed after they were settled; nothing more of them is read."""
        for entry in changed[:_NAMED]:
            self._log.warning(
                "file_changed",
                path=entry.path,
                bytes=entry.size,
                remedy="it was changed after it was listed for its batch, and is not read again;"
                " `blizzard backfill --replace` with --from and --to of this path reads it in the"
                " place of its rows, `units: {}` does so with every change",
            )
        if len(changed) > _NAMED:
            self._log.warning("files_changed_more", files=len(changed) - _NAMED)
        if not changed:
            return state
        self._upkeep.activity().changed(len(changed))
        state = self._noted(state, self._ledger.note_changed(map(stamp_of, changed)))
        number = state.late_files.sweep.changed + len(changed)
        sweep = replace(state.late_files.sweep, changed=number, last_changed=changed[-1].path)
        return state.with_late_files(sweep=sweep)

    def _moved_on(self, state: SourceState, found: Slice) -> SourceState:
        sweep = replace(state.late_files.sweep, cursor=found.cursor)
        if found.cursor is None:
            sweep = replace(sweep, cursor=None, whole=True, noted=True)
            self._changed.forget()
            now = self._upkeep.clock()
            remembered = now - REMEMBERED_SECS
            listed = self._sweep.over(lambda: self._cleaned.count(remembered))
            if not self._sweep.has_outgrown:
                state = self._noted(state, self._ledger.spare())
            elif listed is not None:
                names = self._cleaned.names(remembered, self._parts.concurrency)
                there = [listed, *map(self._ledger.digests_listed, names)]
                state = self._noted(state, self._ledger.forget(np.concatenate(there), now))
            if sweeps(self._source):
                self._log.info("late_sweep_done")
        return state.with_late_files(sweep=sweep)

    def _dealt_with(self, state: SourceState, late: Sequence[Entry]) -> SourceState:
        """Queue late files or commit their outcomes, with the notes of the slice."""
        now = self._upkeep.clock()
        grace = grace_of(self._source, state, now)
        if late:
            self._log_late(state, late)
            # They were later than the period in use, so it was too short for them.
            lateness = with_worst(state.late_files.lateness, grace, now)
            queue = (*state.work.queue, *map(queue_file, late))
            state = state.with_late_files(lateness=lateness).with_work(queue=queue)
        if not late or self._source.late_files == "ingest":
            state = self._upkeep.save(state)
            self._ledger.clean_up()
        else:
            state = self._commit(state, late, grace, now)
        if state.late_files.sweep.cursor is None:
            # Not those that the checkpoint may leave names in grace to.
            window = (batch for batch, _ in state.position.window)
            above = None if state.cleaning is None else state.cleaning.done
            self._ledger.prune(now, window, above)
            self._ledger.unload()
            self._loaded = False
        return state

    def _commit(
        self, state: SourceState, late: Sequence[Entry], grace: float, now: float
    ) -> SourceState:
        """Commit the verdicts as a batch that ingests nothing."""
        batch = Batch(
            raise_id(str(uuid7()), state.ids.last_batch),
            1,
            "publishing",
            now,
            tuple(late),
            now,
            results=BatchResults(finished=verdicts(late, self._source, grace), committed_ts=now),
        )
        state = self._upkeep.save(begin_batch(state, batch))
        self._ledger.clean_up()
        return self._upkeep.finish(state, batch, now, NOTHING)

    def _log_late(self, state: SourceState, late: Sequence[Entry]) -> None:
        for entry in late[:_NAMED]:
            self._log.warning("late_file", path=entry.path, late_files=self._source.late_files)
        if len(late) > _NAMED:
            self._log.warning("late_files_more", files=len(late) - _NAMED)
        for entry in late:
            self._upkeep.activity().late(partitions_behind(state.position.progress, entry.path))

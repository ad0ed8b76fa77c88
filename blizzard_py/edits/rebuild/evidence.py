"""Evidence of a source's earlier work: journal, segments, outputs, other runs. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from blizzard_core.delta_json import commits
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Entry, Storage, listed, read_each
from blizzard_core.table.committed import committed_versions, paths_in
from blizzard_core.threads import ThreadPool
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.edits.rebuild.decide import Doubt, LostReports, Place, read_lost
from blizzard_py.ingest.group_publishing import GroupManifests
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.stale import World, newer_work, world_of
from blizzard_py.state import processed_set
from blizzard_py.state.batch import Batch, PlannedOutput
from blizzard_py.state.checkpoint_file import batches_in_journal
from blizzard_py.state.fence_record import contradiction
from blizzard_py.state.journal import KEPT_SECS, Journal, Record, moment_of
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import ProcessedSet, Segment
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import JOURNAL_FOLDER, StatePaths
from blizzard_py.state.transitions import as_journaled
from blizzard_py.state.waiting_outputs import OUTPUT_NAME

# Without a checkpoint to say which, the last two batches may not be finished.
_LAST = 2
_DAY_SECS = 86_400.0


class Evidence:
    """Everything that is known of one source. ``state`` is its checkpoint if there is one.

    Raises `StateError` for what is damaged, `StorageError`.
    """

    def __init__(
        self, parts: SourceContext, state: SourceState | None, world: World | None = None
    ) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._state = state
        self._journal = Journal(self._sink, parts.id, parts.concurrency)
        self._written = dict(self._journal.list_batches())
        self.batches = sorted(self._written)
        paths = StatePaths(parts.id)
        self._found = [
            processed_set.list_segments(self._sink, folder)
            for folder in (paths.ledger, paths.processed)
        ]
        self.segments, self.set_segments = map(self._counting, self._found)
        self._set = ProcessedSet(self._sink, paths.processed)
        self._set.load(self.set_segments)
        self.ledger = Ledger(self._sink, parts.id, parts.concurrency)
        self.ledger.load(self.segments)
        self.unfolded = self.ledger.not_folded(self.batches)
        self.folded = frozenset(self.batches).difference(self.unfolded)
        self.ledger.look()
        staged = (path for path in self._staged_paths() if path.count("/") > 1)
        self._staged = frozenset(path.split("/")[1] for path in staged)
        self._lost = self._lost_reports()
        self.unknown: frozenset[str] = frozenset()
        self.add_unknown(self._lost.paths)
        self.world = world or world_of(parts, state)
        self._groups = GroupManifests(self._sink, parts.letters_id)
        self.records: list[Record] = [
            record for record in self._journal.read(self.batches) if self._counts(record)
        ]

    @property
    def is_any(self) -> bool:
        """Return whether the source has left a trace."""
        return bool(self.batches or any(self._found))

    @property
    def _reset_ts(self) -> float:
        return 0.0 if self._state is None else self._state.position.reset_ts

    def _counting(self, found: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the segments that count: all, or since a reset those that it names."""
        if self._state is None or not self._reset_ts:
            return found
        named = {
            s.segment for s in (*self._state.names.ledger, *(self._state.names.processed or ()))
        }
        return tuple(segment for segment in found if segment.segment in named)

    def _counts(self, record: Record) -> bool:
        """Return whether a batch is not one from before a start over, of which nothing is left."""
        settled = record.done_paths
        return not self._reset_ts or not settled or len(self.unprocessed(settled)) < len(settled)

    def unprocessed(self, paths: Sequence[str]) -> list[str]:
        """Return which of the paths the source itself has not settled."""
        return self._set.unseen(self.ledger.unprocessed(paths))

    def _lost_reports(self) -> LostReports:
        """Read the reports of batches of which nothing else tells."""
        state = self._state or SourceState()
        known = {batch.batch for batch in state.work.in_flight if batch.phase == "publishing"}
        mailbox = Mailbox(self._sink, self._parts.id)
        reports = dict(mailbox.outcomes())
        unknown = self.ledger.not_folded(sorted(reports.keys() - self._written.keys() - known))
        return read_lost(mailbox, {batch: reports[batch] for batch in unknown})

    def add_unknown(self, paths: Iterable[str]) -> None:
        """Count files as done whose rows may be in the table or not."""
        self.unknown = self.unknown.union(paths)
        self.ledger.add_unknown(self.unknown)

    def epochs(self) -> int:
        """Return the highest epoch in which anything of the source was written."""
        names = [segment.segment for found in self._found for segment in found]
        staged = (path.split("/")[0] for path in self._staged_paths())
        return max(
            (*map(processed_set.epoch_of, names), *(int(e) for e in staged if e.isdigit())),
            default=0,
        )

    def processed_by_requests(self, more: Iterable[str]) -> set[str]:
        """Return the paths that requests alone have settled, those of unfinished batches as well.

        ``more`` are these. A batch of a request moves no mark, and polls may still reach its files.
        """
        own = {p for r in self.records if not r.request for p in r.done_paths}
        requested = {p for r in self.records if r.request for p in r.done_paths}
        return requested.union(self.unknown, more) - own

    def last_written(self) -> float | None:
        """Return the store's time of the source's last trace; None without a trace.

        It is past by as much as the source has rested, but no machine's clock had a part in it.
        """
        paths = StatePaths(self._parts.id)
        kept = self._sink.stat(paths.checkpoint)
        times = [
            entry.modified
            for folder in (paths.ledger, paths.processed)
            for entry in self._below(folder)
        ]
        times += [*self._written.values(), *([] if kept is None else [kept.modified])]
        return max(times, default=None)

    def _below(self, folder: str) -> Iterator[Entry]:
        return listed(self._sink, f"{folder}/", f"{folder}0")

    # -- batches that may not be finished ----------------------------------------

    def unpublished_batches(self) -> Iterator[tuple[Batch, bool]]:
        """Batches that were committed and perhaps not published, and whether that is certain."""
        state = self._state or SourceState()
        known = {batch.batch for batch in state.work.in_flight if batch.phase == "publishing"}
        told = {batch.batch: batch for batch in self._journal.read_committed(known)}
        for batch in as_journaled(state, told.values()).work.in_flight:
            left = self._left_of(batch) if batch.batch in known else None
            if left and (batch.batch in told or not self._is_of_a_fork(batch)):
                yield left, True
        suspects = self._journal.read_committed(sorted(self._suspects() - known))
        for batch in filter(None, map(self._left_of, suspects)):
            kept = tuple(one for one in batch.results.letters if self._is_there(one.staged))
            has_failed = any(f.outcome == "quarantined" for f in batch.results.finished)
            lacks_letters = has_failed and not any(
                self._parts.stores.dlq.stat(path) is not None
                for path in put_away(self._parts.letters_id, batch.batch)
            )
            published = replace(batch, phase="publishing").with_results(letters=kept)
            yield published, bool(kept) or lacks_letters

    def _is_of_a_fork(self, batch: Batch) -> bool:
        """Return whether a stale writer committed the batch but published none of it.

        It was refused before its first output went into the table.
        """
        record = self.world.record
        if record is None or self._state is None:
            return False
        is_stale = contradiction(self._state.ids.committed, record) is not None
        return is_stale and all(self._place(output) == "staged" for output in batch.results.outputs)

    def _is_over(self, batch: Batch) -> bool:
        """Return whether a sweep has folded the batch, as it does once none is under way.

        One that slept may have folded those of others; what is staged of them is not over.
        """
        folded = batch.batch in self.folded
        return folded and "staged" not in map(self._place, batch.results.outputs)

    def _left_of(self, batch: Batch) -> Batch | None:
        """Return the batch without retries that are finished; None if nothing is left.

        A checkpoint that was brought back from a copy says of it that it is to be tried again, or
        of a batch that the ledger has taken in since that it is not over.
        """
        if self._is_over(batch):
            return None
        again = [file.path for file in batch.results.finished if file.outcome == "retry"]
        since = set(again).difference(self.unprocessed(again))
        if not since:
            return batch
        if len(since) == len(batch.files):
            return None
        files = tuple(entry for entry in batch.files if entry.path not in since)
        finished = tuple(file for file in batch.results.finished if file.path not in since)
        return replace(batch, files=files).with_results(finished=finished)

    def _suspects(self) -> set[str]:
        """Batches of the journal of which the checkpoint, if there is one, does not say the end.

        One that was brought back from a copy says nothing of what came after it.
        """
        state = self._state or SourceState()
        last, begun = state.ids.last_batch, {batch.batch for batch in state.work.in_flight}
        since = {batch for batch in self.batches if batch > last} if last else self._last()
        return since | (self._staged | begun).intersection(self.batches)

    def _last(self) -> set[str]:
        """Return the batches that were written last, by the store's time.

        Names are from the clocks of machines, which differ. They count as well, for a
        journal that was brought back from a copy has the copy's times.
        """
        newest = sorted(self._written.values())[-_LAST:]
        by_time = {batch for batch, at in self._written.items() if at >= newest[0]}
        return by_time.union(self.batches[-_LAST:])

    def _staged_paths(self) -> Iterator[str]:
        """Everything staged of the source, below ``{epoch}/{batch}/``."""
        root = StatePaths(self._parts.id).staging
        for entry in listed(self._sink, f"{root}/", f"{root}0"):
            yield entry.path[len(root) + 1 :]

    def places(self, batch: Batch) -> tuple[list[Place], bool]:
        """Return where each output of a batch is, and whether the log tells of all commits."""
        # Staged first: a rename that goes on meanwhile is found in its place then.
        with ThreadPool(max_workers=self._parts.concurrency) as pool:
            places = list(pool.map(self._place, batch.results.outputs))
        wanted = {
            path
            for output, place in zip(batch.results.outputs, places, strict=True)
            if place == "nowhere"
            for path in output.finals
        }
        if not wanted:
            return places, True
        versions, whole = committed_versions(
            self._sink, wanted, batch.started_ts, self._parts.concurrency
        )
        return [
            "logged" if place == "nowhere" and not versions.keys().isdisjoint(o.finals) else place
            for o, place in zip(batch.results.outputs, places, strict=True)
        ], whole

    def is_unannounced(self, batch: Batch) -> bool:
        """Return whether the batch is a group of which no committer has been told.

        Committers remove the manifests of what they have taken, but none before it is as old as
        the journal gets.
        """
        newest = max(self._written.values(), default=0.0)
        recent = batch.batch > first_name(newest - KEPT_SECS + _DAY_SECS)
        return batch.results.group is not None and recent and not self._groups.has(batch)

    def _place(self, output: PlannedOutput) -> Place:
        staged = bool(output.staged) and self._is_there(output.staged)
        if any(self._is_there(path) for path in output.finals):
            return "placed"
        return "staged" if staged else "nowhere"

    def _is_there(self, path: str) -> bool:
        return self._sink.stat(path) is not None

    # -- what nothing accounts for -------------------------------------------------

    def doubts(self) -> list[Doubt]:
        """Return what tells of work that neither journal nor ledger know, the oldest first."""
        found = [*self._missing_segments(), *self._missing_names(), *self._lost.damaged]
        if not self.is_confirmed():
            found += (*self._unknown_points(), *self.unknown_work())
        return sorted(found, key=lambda doubt: doubt.since or 0.0)

    def _missing_segments(self) -> Iterator[Doubt]:
        if self._state is None:
            record, known = self.world.record, len(self.batches)
            # The newest commit point may have died before its batch was journaled.
            lost = 0 if record is None else record.number - known - len(self._staged) - 1
            if record is not None and lost > 0 and not any(self._found):
                yield Doubt(
                    f"the fence record counts {record.number:,} commit points, the journal has"
                    f" {known:,} batches, and there is no ledger",
                    moment_of(record.batch),
                )
            return
        for segment in (
            *processed_set.missing_segments(self._state.names.ledger, self.segments),
            *processed_set.missing_segments(self._state.names.processed or (), self.set_segments),
        ):
            yield Doubt(f"segment {segment.segment}, which the checkpoint names, is missing")

    def _missing_names(self) -> Iterator[Doubt]:
        """Batches whose names in grace stood in the journal only."""
        named = () if self._state is None else batches_in_journal(self._state.position)
        for batch in self.ledger.not_folded([b for b in named if b not in self._written]):
            yield Doubt(f"batch {batch}, which the checkpoint needs, is missing", moment_of(batch))

    def lacks_batches(self) -> bool:
        """Return whether the journal lacks batches that the checkpoint, being the newest, knows."""
        state = self._state
        if state is None or state.names.unfolded is None or not self.is_confirmed():
            return False
        flying = {batch.batch for batch in state.work.in_flight}
        return not state.names.unfolded.agrees_with(b for b in self.unfolded if b not in flying)

    def is_confirmed(self) -> bool:
        """Return whether the checkpoint is the newest: what the journal lacks was passed."""
        state, world = self._state, self.world
        if state is None or world.record is None:
            return False
        return newer_work(state, self._parts, world) is None

    def _unknown_points(self) -> Iterator[Doubt]:
        """Commit points of which neither journal nor ledger have the batch."""
        flying = () if self._state is None else self._state.work.in_flight
        known = {*self.batches, *(batch.batch for batch in flying)}
        # Who died before its journal entry has published nothing; a report comes after that entry.
        known |= self._staged - self._lost.batches
        record = self.world.record
        if record is not None and record.batch and record.batch not in known:
            for batch in self.ledger.not_folded([record.batch]):
                yield Doubt(f"the fence record names batch {batch}", moment_of(batch))
        newest = self.world.committed_ms / 1000
        since = self._newest_segment()
        is_recent = since is None or newest > since - KEPT_SECS + _DAY_SECS
        if newest and is_recent and first_name(newest) not in {batch[:13] for batch in known}:
            yield Doubt("the table's log commits a batch of that time", newest)

    def unknown_work(self) -> Iterator[Doubt]:
        """Return what the table has of batches that neither journal nor ledger know."""
        names = map(re.escape, self.world.names)
        ours = re.compile(rf'"(?:{"|".join(names)})/([0-9a-f-]{{36}})/\d+/'.encode())
        batches: set[str] = set()
        committed: set[str] = set()
        log = iter(commits(self._sink))
        for where, raw in read_each(self._sink, log, self._parts.concurrency):
            batches.update(found.decode() for found in ours.findall(raw))
            added = paths_in(raw, where, self._sink.uri, "add")
            committed.update(path.rpartition("/")[2] for path in added)
        left = sorted(batches - set(self.batches))
        # Journals are kept for thirty days; what is older may have been folded and let go of.
        # The ledger was written when it let go of a batch, so the store tells how old that is.
        newest = self._newest_segment()
        since = "" if newest is None else first_name(newest - KEPT_SECS + _DAY_SECS)
        for batch in self.ledger.not_folded(left):
            if batch > since:
                yield Doubt(f"the table's log commits batch {batch}", moment_of(batch))
        yield from self._unknown_outputs(committed, since)

    def _newest_segment(self) -> float | None:
        """Return the store's time of the ledger's last segment."""
        return max(
            (entry.modified for entry in self._below(StatePaths(self._parts.id).ledger)),
            default=None,
        )

    def _unknown_outputs(self, committed: set[str], since: str) -> Iterator[Doubt]:
        """Return uncommitted outputs that no journal of the table names."""
        loose = {
            entry.path: named[1]
            for entry in listed(self._sink, "", None)
            if entry.path[:1] not in "._"
            and (named := OUTPUT_NAME.fullmatch(entry.path.rpartition("/")[2]))
            and named[1] > since
            and named[0] not in committed
        }
        known = set(_planned(self._sink, self._parts.concurrency)) if loose else set()
        for path in sorted(loose.keys() - known):
            yield Doubt(f"output {path} is in no journal", moment_of(loose[path]))


def _planned(sink: Storage, concurrency: int) -> Iterator[str]:
    """Return the final paths of all outputs in the table's journals."""
    folders = {
        entry.path.split("/")[2]
        for entry in listed(sink, f"{JOURNAL_FOLDER}/", f"{JOURNAL_FOLDER}0")
    }
    for source_id in sorted(folders):
        journal = Journal(sink, source_id, concurrency)
        for batch in journal.read_committed(journal.batches()):
            for output in batch.results.outputs:
                yield from output.finals

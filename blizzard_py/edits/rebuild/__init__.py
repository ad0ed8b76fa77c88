"""``blizzard checkpoint rebuild``: a lost checkpoint is made again from what earlier work left.

What was settled is known: the journal says it batch by batch, and the segments of the
ledger (or, with ``use_watermark: false``, of the set) that it is folded into; all segments
count that are there, since each holds only names that were done. So of everything that
the source lists, what is settled is done, and everything else is new. Names lower than the one that
the next scan has to start behind are remembered with the time that the journal gives, and no clock
moves the start.

**Batches that were being published** are in the journal, too, with their outputs. What
is still staged comes back as ``publishing`` and the next start finishes it. Outputs that
are neither staged nor in place nor in the table's log are lost:

* if none of the batch's rows can be in the table, its files are tried again;
* if some are, or the log does not tell, every file of it gets a dead letter: to ingest
  it again could double rows, to say nothing would lose them.

Both are put into the rebuilt checkpoint as a batch in ``publishing`` with these outcomes,
so the batch protocol carries them out and a death at any moment leaves nothing half done.

**Where it would be guessing it refuses**: if the table tells of batches, or holds
outputs, that neither journal nor ledger know, or a segment is gone that the old
checkpoint names. Then it says from when on, and the operator says what is done
(``done_before``). What was said so is noted in the ledger, and so is what only the checkpoint that
is there says, as of files that an original has done.

The checkpoint of a query over event time is kept, and only what it counts on is made again
(`blizzard_py.edits.rebuild.query`).

Everything is read first; then one conditional write replaces exactly what was looked at.
A daemon that runs is fenced by it; one that saved meanwhile makes it refuse. The
old checkpoint is kept beside the new one.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.checkpoint.digests import SUFFIX
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.paths import partition_key
from blizzard_core.watermark.progress import Progress, is_new
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.edits.checkpoint_store import (
    CheckpointStore,
    EditRefused,
    Note,
    Stored,
    current_user,
)
from blizzard_py.edits.rebuild.assemble import KnownFiles, rebuilt_state
from blizzard_py.edits.rebuild.decide import (
    Frame,
    Rebuilt,
    bound_of,
    depth_from,
    first_seen_times,
    judge_batch,
    new_progress,
    origin_of,
    unmarked,
    unrecorded_paths,
)
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.edits.rebuild.names import (
    check_record,
    segment_paths,
    with_segments,
    without_requested,
)
from blizzard_py.edits.rebuild.query import members_of, paths_of, rebuild_query
from blizzard_py.sources.cold_start import other_names
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.discovery import check_tracking, starting_point
from blizzard_py.sources.files.file_names import accepts_file, can_count
from blizzard_py.sources.files.late_file_sweep import grace_of
from blizzard_py.sources.files.listing import listing_of
from blizzard_py.sources.shared_files import check_ranges
from blizzard_py.sources.stale import World, world_of
from blizzard_py.state.batch import Batch
from blizzard_py.state.checkpoint_file import check_identity
from blizzard_py.state.composite_state import with_source
from blizzard_py.state.fence_record import FenceRecord
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_query import check_query


class Rebuild:
    """Makes the checkpoint of one source again."""

    def __init__(self, parts: SourceContext, whose: str = "") -> None:
        """``whose`` source an operator speaks of, where ``parts`` are of several."""
        self._parts = parts
        self._whose = whose or parts.source_name
        self._sink = parts.stores.sink
        self._store = CheckpointStore(self._sink, parts.id)
        self._accepts = accepts_file(parts.files)
        self._can_count = can_count(parts.files)

    def plan(self, done_before: str | None) -> Rebuilt:
        """Return what the checkpoint would be. Writes nothing.

        Raises `EditRefused` where that would be guessing and ``done_before`` is None,
        `StateError`, `StorageError`.
        """
        if self._parts.home_id != self._parts.id:
            raise EditRefused(
                f"{self._parts.name}: shares its checkpoint with the other sources of its query, so"
                " it has none of its own to be made again"
            )
        found = self._found()
        saved = None if found.document is None else found.state
        if self._parts.event_time is not None:
            world = world_of(self._parts, saved)
            return rebuild_query(self._parts, found, world, done_before, self._whose)
        evidence = Evidence(self._parts, saved)
        record = evidence.world.record or FenceRecord()
        check_record(self._parts, record, is_lost=saved is None)
        if found.raw is None and done_before is None and not evidence.is_any:
            self._check_name(evidence.world)
        # In the past of the store rather than by a machine's clock: a lookback that begins too
        # early is put right by the next poll, one too late closes what is still wanted.
        last = evidence.last_written()
        now = self._parts.clock() if last is None else last
        doubts = evidence.doubts()
        if doubts and done_before is None:
            raise EditRefused(
                f"{self._parts.name}: {len(doubts):,} things tell of work that neither journal nor"
                f" ledger know, the first: {doubts[0]}; from then on it would be guessing which"
                " files are done. Bring back what is missing below _blizzard/, or find out in the"
                " table up to where rows are in and say so with --done-before PARTITION_OR_PATH"
            )
        batches = tuple(
            judge_batch(
                batch,
                places,
                log_is_whole=whole,
                unfinished=certain,
                unannounced=evidence.is_unannounced(batch),
            )
            for batch, certain in evidence.unpublished_batches()
            for places, whole in [evidence.places(batch)]
        )
        flying = tuple(
            each.batch
            for each in batches
            if each.judgement != "done" and not _is_request_restarted(each.batch)
        )
        old = None if saved is None else without_requested(saved)
        known = self._known(evidence, flying, old or SourceState(), done_before)
        state = self._state(old, evidence, known, flying, now)
        check_ranges(self._parts, state, now, is_new=True)
        written = 0 if found.writer is None else found.writer.epoch
        epoch = max(evidence.epochs(), record.epoch, written) + 1
        return Rebuilt(
            found,
            state,
            epoch,
            len(known.listed),
            sum(path in known.processed for path in known.listed),
            tuple(sorted(known.by_operator, key=order_key)),
            self._new(state, known),
            batches,
            tuple(known.processed),
            evidence.is_confirmed(),
            evidence.unknown,
        )

    def _check_name(self, world: World) -> None:
        """Raise `EditRefused` where nothing was done under this name, but under another."""
        for trace in other_names(self._parts, self._sink, world):
            raise EditRefused(
                f"{self._parts.name}: nothing is known of work under this name, but {trace}, so"
                " everything would be ingested again. Take that state over: give the source the"
                " earlier name as `id:`, or run `blizzard rename`. If it is lost, find out in the"
                " table up to where rows are in and say so with --done-before PARTITION_OR_PATH."
                " If these files are to come here as well, start with --fresh"
            )

    def write(self, rebuilt: Rebuilt) -> str | None:
        """Put it in the place of what was looked at; the path of the old one's copy, if any.

        Raises `EditRefused` if a checkpoint has changed meanwhile.
        """
        state = self._with_segments(rebuilt)
        note = Note(current_user(), self._parts.clock(), "rebuilt")
        try:
            copy = self._store.swap(rebuilt.checkpoint, state, rebuilt.epoch, note)
        except EditRefused:
            if rebuilt.by_operator:
                # The next plan would take their names for evidence, and tell nobody of them.
                self._discard(rebuilt, state)
            raise
        for batch in (each.batch.batch for each in rebuilt.batches if each.judgement == "again"):
            # Its files come again, each with its bad records.
            records, _ = put_away(self._parts.letters_id, f"{batch}.records")
            self._parts.stores.dlq.delete(records)
        return copy

    def _discard(self, rebuilt: Rebuilt, state: SourceState) -> None:
        """Remove the segments that were written for a state that does not count."""
        planned = {p.source_name: own for p, own in members_of(self._parts, rebuilt.state)}
        try:
            there = self._sink.read(self._store.path)
        except NotFound:
            there = b""
        for parts, own in members_of(self._parts, state):
            before = planned[parts.source_name]
            # Our write may have arrived after all, and somebody have gone on with it.
            for path in sorted(
                segment_paths(parts.id, own.names) - segment_paths(parts.id, before.names)
            ):
                if path.rpartition("/")[2].removesuffix(SUFFIX).encode() not in there:
                    self._sink.delete(path)

    def _with_segments(self, rebuilt: Rebuilt) -> SourceState:
        """Return the state with its names in permanent segments.

        If the checkpoint is stale, a daemon with a newer one may still remove segments that it
        has replaced, even after it was fenced.
        """
        state, old = rebuilt.state, rebuilt.checkpoint.state
        after = {parts.source_name: own for parts, own in members_of(self._parts, state)}
        for parts, before in members_of(self._parts, old):
            said = paths_of(self._parts, parts, rebuilt.by_operator)
            settled = paths_of(self._parts, parts, rebuilt.settled)
            stay = before if rebuilt.is_newest else before.with_names(ledger=(), processed=None)
            states = stay, after[parts.source_name]
            if states[0] == states[1] and not (said or rebuilt.unknown):
                continue  # it was left as it is
            done = said, settled, rebuilt.unknown
            own = with_segments(self._sink, parts.id, states, done, rebuilt.epoch)
            state = with_source(state, parts.source_name, own) if self._parts.members else own
        return state

    def _found(self) -> Stored:
        found, where = self._store.read(), self._store.where
        if found.document is None:  # lost or damaged: that is what a rebuild is for
            return found
        for parts, own in members_of(self._parts, found.state):
            check_identity(own, parts.identity, parts.source.id, where)
            check_tracking(own, parts.files, where)
            # No daemon would go on with another depth, wherever the checkpoint came from.
            starting_point(own, parts.files, parts.clock(), where)
        # What a query remembers is not to be made again from names, whoever asks for none by now.
        check_query(found.state, self._parts.query_fingerprint, where)
        return found

    def _known(
        self,
        evidence: Evidence,
        flying: Iterable[Batch],
        old: SourceState,
        done_before: str | None,
    ) -> KnownFiles:
        pages = listing_of(self._parts).list_range("", None)
        listed = {entry.path: entry for page in pages for entry in page.entries}
        # What was settled counts, whatever endings count today; what is new has one of them.
        there = {path: entry for path, entry in listed.items() if self._can_count(path)}
        paths = list(there)
        whole = not evidence.lacks_batches()
        if not whole:
            unsettled = evidence.unprocessed(list(listed))
            evidence.add_unknown(unmarked(old, unsettled, lambda p: self._accepts(listed[p])))
        asked = {path for batch in flying if batch.request for path in _finished_paths(batch)}
        held = frozenset(e.path for batch in flying if not batch.request for e in batch.files)
        journaled = {
            path: record.seen_ts
            for record in evidence.records
            for path in record.done_paths
            if self._can_count(path)
        }
        for path in evidence.unprocessed(list(journaled)):
            del journaled[path]  # from before a start over
        settled = frozenset(journaled).union(set(paths).difference(evidence.unprocessed(paths)))
        history = frozenset(evidence.ledger.in_history(paths)) - settled
        done = dict.fromkeys(settled | history | asked, 0.0) | journaled
        taken = [path for path, entry in there.items() if self._accepts(entry)]
        told = unrecorded_paths(old, taken, is_journal_whole=whole)
        if done_before is not None:
            bound = bound_of(done_before, self._can_count)
            told |= {p for p in paths if order_key(p) < bound}
        said = frozenset(told.difference(done, held))
        done |= dict.fromkeys(said, 0.0)
        # What began its grace by a scan of before goes on with it.
        done |= {
            path: at
            for path, at in first_seen_times(old.position.progress).items()
            if done.get(path) == 0.0
        }
        for path in held:
            done.pop(path, None)
        requested = frozenset(
            evidence.processed_by_requests(asked).intersection(done)
        )  # since a start over
        # What waits for another try is not to be passed either, whatever its ending.
        kept = held.union(done, old.work.retries)
        counted = {p: e for p, e in there.items() if self._accepts(e) or p in kept}
        return KnownFiles(counted, done, held, history, requested, said)

    def _state(
        self,
        old: SourceState | None,
        evidence: Evidence,
        known: KnownFiles,
        flying: tuple[Batch, ...],
        now: float,
    ) -> SourceState:
        progress, origin = self._progress(old or SourceState(), evidence, known, now)
        return rebuilt_state(self._parts, old, evidence, known, flying, progress, origin)

    def _progress(
        self, before: SourceState, evidence: Evidence, known: KnownFiles, now: float
    ) -> tuple[Progress, str]:
        """Return the progress and the origin; without a watermark those shown."""
        source = self._parts.files
        if not source.use_watermark:
            value = max(known.processed.keys() - known.requested, key=order_key, default=None)
            return Progress("Initial" if value is None else "Active", value), ""
        depth = before.position.progress.depth if source.depth is None else source.depth
        if depth is None:
            depth = depth_from([*known.listed, *known.processed])
        lookback = lookback_floor(source.partition_filter, now)
        origin = before.position.origin
        if origin is None:
            origin = ""
            if lookback is not None or known.history:
                live = known.processed.keys() & known.listed.keys() - known.requested
                origin = origin_of(live, known.history, known.listed, depth)
                # It began at the first batch or before: what may come above that is wanted, too.
                first = min([now, *(record.seen_ts for record in evidence.records)])
                wanted = lookback_floor(source.partition_filter, first)
                if wanted is not None:
                    origin = min(origin or wanted, wanted, key=partition_key)
        began = min([now, *(record.seen_ts for record in evidence.records[-1:])])
        frame = Frame(
            depth,
            origin or None,
            began,
            grace_of(source, before, now),
            source.advanced.max_tracked_partitions,
            lookback,
        )
        by_polls = {p: at for p, at in known.processed.items() if p not in known.requested}
        progress = new_progress(
            known.listed.keys() - known.requested, by_polls, known.in_flight, frame
        )
        has_older = any(order_key(path) < partition_key(origin) for path in known.listed)
        if before.position.origin is None and not (known.history or has_older):
            origin = ""  # whatever comes there comes late
        return progress, origin

    def _new(self, state: SourceState, known: KnownFiles) -> tuple[str, ...]:
        fresh = [
            path
            for path, entry in known.listed.items()
            if path not in known.processed and path not in known.in_flight and self._accepts(entry)
        ]
        if state.names.processed is None:
            fresh = [path for path in fresh if is_new(state.position.progress, path)]
        return tuple(sorted(fresh, key=order_key))


def _is_request_restarted(batch: Batch) -> bool:
    """Return whether a batch's request, accepted anew, selects the files of the batch again."""
    return bool(batch.request) and batch.phase == "running"


def _finished_paths(batch: Batch) -> set[str]:
    return {file.path for file in batch.results.finished if file.outcome != "retry"}

"""Files that two runs of a source may come upon, and how each of them ends up with one.

A source has several runs beside each other: the live daemon, backfills, the replay of whole
files (also ``blizzard ingest``). Mostly what they do lies apart, and whose a file is was asked
before it was taken (`blizzard_py.replay.ownership`, `blizzard_py.sources.ranges`). But between
that answer and the save that takes the file another run may take it as well: a late sweep queues
what a backfill is about to read, an operator names a file whose partition is looked at by now.

So each run claims first and asks afterwards, and of two at least the later one sees the other's
claim. A claim is a save: a file is in the ``queue`` or in a batch that is ``running``. Then

* who finds files by scans (the live daemon and backfills) asks once its batch is saved, and
  leaves out what another run has queued, has under way, or has ingested since, and a backfill
  also what the live daemon is going to find by now (`OutOfTurn.theirs`);
* who has files in a queue (late ones, and those of a replay) lets those wait that a run which
  finds them by scans has under way (`OutOfTurn.waiting`), and once that has ended leaves out
  what it has ingested.

Scans give way and queues wait, so a file that both have claimed is never left by both.
A file that is left out is settled without a row; the other's ledger says what came of it.

What another run had done before a backfill began over is done again. What it had done is known
by the batches that were in its journal then (`OutOfTurn.begun` notes them), not by times: each
daemon counts on from a time that a store told it, in whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import is_new
from blizzard_py.dead_letters.reader import original_of, stem_of
from blizzard_py.sources.files.replaced_since import ReplacedSince
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_document import state_from_json
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import Ingested, Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.siblings import BACKFILL, RECORDS_SUFFIX, backfills_of, replays_of
from blizzard_py.state.source_state import SourceState, checkpoint_path, under_way

_BY_REPLAY = "a replay has taken it"
_BY_LIVE = "the live daemon has taken it"


class OutOfTurn:
    """Claims of a source's other runs on the files of the one that ``parts`` are of.

    A request or two per question while no other ever ran. All raise `StateError`, `StorageError`.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._live_id = parts.letters_id
        self._replay_id = replays_of(self._live_id)[0]
        self._is_backfill = parts.suffix.startswith(BACKFILL)
        self._replayed = Ingested(self._sink, self._replay_id, parts.concurrency)
        self._ledger: Ledger | None = None
        self._folded: tuple[tuple[Segment, ...], float] = ((), 0.0)
        self._lived = Ingested(self._sink, self._live_id, parts.concurrency)
        self._replaced = ReplacedSince(self._sink, self._live_id)
        self._own: Ledger | None = None

    def begun(self, state: SourceState, epoch: int) -> SourceState:
        """The state of a backfill that begins over now: what is done by now is to be done again."""
        ledger = Ledger(self._sink, self._parts.id, self._parts.concurrency)
        ledger.load(state.ledger, epoch)
        journals = (Journal(self._sink, run) for run in (self._live_id, self._replay_id))
        found = [batch for journal in journals for batch in journal.batches()]
        return replace(state, ledger=ledger.note_before(found) or state.ledger)

    def theirs(self, state: SourceState, entries: Sequence[Entry]) -> dict[str, str]:
        """Return the files that are another run's, with the reason; ``state`` claims them all.

        What was ingested before an operator had this run start over counts no more.
        """
        paths = {entry.path for entry in entries}
        found: dict[str, str] = {}
        # States first: what they have not finished yet the journals may have by now.
        if not self._parts.is_replay and (replay := self._state(self._replay_id)) is not None:
            taken = {*under_way(replay), *self._by_replay(sorted(paths), replay, state)}
            found |= dict.fromkeys(paths & taken, _BY_REPLAY)
        if self._is_backfill:
            taken = self._claimed([self._live_id])
            # Without --replay what the live daemon does lies apart.
            if state.anew_ts:
                taken |= self._new_to_live(paths) | self._since_begun(self._lived, state)
            found |= dict.fromkeys(paths & taken, _BY_LIVE)
        if self._parts.suffix == RECORDS_SUFFIX:
            found |= self._replaced.of(sorted(paths))
        queued = sorted(paths.intersection(entry.path for entry in state.queue))
        for source_id in self._scanning() if queued else ():
            ledger = read_ledger(self._sink, source_id)
            done = [path for path in queued if ledger.settled_as(path) == "rows"]
            found |= dict.fromkeys(done, f"{source_id} has ingested it")
        return found

    def waiting(self, queue: Sequence[Entry]) -> set[str]:
        """Return the queued files that a run which finds files by scans has under way."""
        runs = self._scanning() if queue else ()
        return self._claimed(runs).intersection(entry.path for entry in queue)

    def records_under_way(self, paths: Iterable[str]) -> set[str]:
        """Return the files of which a replay may be bringing single records just now.

        What it has only queued it asks for again before it brings it (`ReplacedSince`).
        """
        state = self._state(replays_of(self._live_id)[1])
        if state is None or not state.in_flight:
            return set()
        files = (entry.path for batch in state.in_flight for entry in batch.files)
        stems = set(map(original_of, files))
        return {path for path in paths if stem_of(path) in stems}

    def unfinished(self, entries: Sequence[Entry]) -> set[str]:
        """Return the files that any other run has still to do."""
        others = (self._replay_id, *self._scanning()) if entries else ()
        return self._claimed(others).intersection(entry.path for entry in entries)

    def _scanning(self) -> tuple[str, ...]:
        """The other runs that find files by scans. Those of single records have none of them."""
        if self._parts.suffix == RECORDS_SUFFIX:
            return ()
        runs = (self._live_id, *backfills_of(self._sink, self._live_id))
        return tuple(source_id for source_id in runs if source_id != self._parts.id)

    def _by_replay(self, paths: Sequence[str], replay: SourceState, state: SourceState) -> set[str]:
        """Return what the replay has ingested, of a source that was started over since then."""
        if self._is_backfill and state.anew_ts:
            return self._since_begun(self._replayed, state)
        ledger = self._ledger
        if ledger is None or self._folded != (replay.ledger, state.anew_ts):
            ledger = self._ledger = read_ledger(self._sink, self._replay_id, state.anew_ts)
            self._folded = (replay.ledger, state.anew_ts)
        else:
            # Nothing is missed: what is pruned meanwhile was there for thirty days.
            ledger.look()
        return ledger.ingested_since(paths)

    def _since_begun(self, run: Ingested, state: SourceState) -> set[str]:
        """Return what a run has ingested since this backfill began over."""
        own = self._own
        if own is None:
            own = self._own = Ledger(self._sink, self._parts.id, self._parts.concurrency)
            own.load(state.ledger)
        if own.not_before([]) is None:
            return run.since(state.anew_ts)
        return run.of_batches(lambda batches: own.not_before(batches) or [])

    def _new_to_live(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that are new to the live daemon, also after a rebuild of its state."""
        live = read_state(self._sink, self._live_id)
        return set() if live is None else {path for path in paths if is_new(live.progress, path)}

    def _claimed(self, runs: Iterable[str]) -> set[str]:
        states = (self._state(source_id) for source_id in runs)
        return {path for state in states if state is not None for path in under_way(state)}

    def _state(self, source_id: str) -> SourceState | None:
        return checkpoint.load(self._sink, checkpoint_path(source_id), state_from_json)

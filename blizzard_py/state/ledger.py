"""The ledger: everything that was ever settled, so that nothing has to be guessed from times.

Polls know what is done from watermarks. What asks about files below them (the late
sweep, requests of operators) needs a list: the journal has one,
batch by batch, and is folded into digest segments (`blizzard_py.state.processed_set`, 16 bytes
a name) before its objects are thirty days old. Both together are the ledger.

Folding does not go by the names or times of batches, since the clocks they are from
may have been wrong: a batch that was folded is in the set itself. Other facts are
kept as digests of the path behind a mark:

=============  =================================================================
path           a batch has settled it
``none``       … and no row of it came of that: a dead letter, or a report
``rows``       … and at another time rows did
``noted``      it was passed before there was a ledger, or given up: nobody knows of its rows
``history``    it lay below the origin of the cold start, which nobody asked for
``changed``    a sweep has told that it was changed since, as it is now
=============  =================================================================

A reading that is to replace rows and fails says nothing of a file: what was known of it stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Literal

import numpy as np

from blizzard_core.checkpoint.digests import TAIL, Digests
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.journal import Journal, Record
from blizzard_py.state.journal_tally import JournalTally, check_tally
from blizzard_py.state.processed_set import Segment, digests_of
from blizzard_py.state.processed_tracker import ProcessedTracker
from blizzard_py.state.state_paths import StatePaths

Settled = Literal["rows", "none", "noted"]

# No path of a listing begins like these.
_BATCH = "\0batch/"
_NONE = "\0none/"
_ROWS = "\0rows/"
_NOTED = "\0noted/"
_HISTORY = "\0history/"
_CHANGED = "\0changed/"
_MARKS = ("", _NONE, _ROWS, _NOTED, _HISTORY)


class Ledger:
    """One source's ledger. The writer of the checkpoint `fold`s; anyone may `look`."""

    def __init__(self, storage: Storage, source_id: str, concurrency: int = 8) -> None:
        self._journal = Journal(storage, source_id, concurrency)
        self._set = ProcessedTracker(storage, StatePaths(source_id).ledger)
        self._beside: set[str] = set()

    def load(self, segments: Sequence[Segment], epoch: int = 0) -> None:
        """Read the segments that a checkpoint lists; its writer gives its epoch."""
        self._set.load(segments, epoch)
        self._beside.clear()

    def unload(self) -> None:
        """Let go of the memory; `load` it before it is asked again."""
        self._set.unload()
        self._beside.clear()

    def outgrows(self, files: int) -> bool:
        """Return whether it holds so much more than the source that it is time to `forget`.

        Never by a source that shows nothing: that is rather a disk that is not there.
        """
        return files > 0 and len(self._set) > 2 * len(_MARKS) * files + TAIL

    def fold(self, expected: JournalTally | None = None) -> tuple[Segment, ...] | None:
        """Take in what the journal has more; the segments to save, then `saved`. None: nothing.

        Raises as `look` does.
        """
        self.look(expected)
        segments = self._set.adding(self._beside)
        self._beside.clear()
        return segments

    def start_over(self) -> tuple[Segment, ...]:
        """Count nothing of the journal as it is now. Return the segments to save.

        For a source that is told to start over. Its batches count as folded, and nothing of
        them has been: what comes again is to be ingested, or called late, like a new file.
        """
        return self._set.adding(f"{_BATCH}{batch}" for batch in self._journal.batches()) or ()

    def look(
        self,
        expected: JournalTally | None = None,
        ignored: Container[str] = (),
        last: str = "",
    ) -> None:
        """Take in what the journal has more, for this process only.

        With ``expected`` it must hold exactly these batches. Those ``ignored``, and above ``last``,
        are of a daemon that goes on meanwhile. Raises `StateError`, `StorageError`.
        """
        fresh = self._unfolded()
        if expected is not None:
            counted = (b for b in fresh if b not in ignored and not (last and b > last))
            check_tally(expected, counted, self._journal.where)
        self.take(self._journal.read(fresh))

    def take(self, records: Iterable[Record]) -> None:
        """Take in batches that the journal has lost, for this process only."""
        for record in records:
            self._beside.update(self._names_of(record))

    def _names_of(self, record: Record) -> set[str]:
        settled = record.settled
        if record.replaces:
            settled = [path for path in settled if record.outcomes[path] == "ingested"]
        fresh = set(self._without("", settled))
        empty = set(settled) - set(self._without(_NONE, settled))
        names = {f"{_BATCH}{record.batch}", *(f"{_NOTED}{path}" for path in record.unknown)}
        settled = [path for path in settled if path not in record.unknown]
        names.update(settled)
        for path in settled:
            ingested = record.outcomes[path] == "ingested"
            if not ingested and path in fresh:
                names.add(f"{_NONE}{path}")
            elif path not in fresh and ingested == (path in empty):
                # Settled with rows the one time and without the other.
                names.add(f"{_ROWS}{path}")
        return names

    def note(self, paths: Iterable[str], lost: Iterable[Record] = ()) -> tuple[Segment, ...] | None:
        """These are not to be looked at again; the segments to save, then `saved`.

        ``lost`` are batches that the journal has no more.
        """
        names = {f"{_NOTED}{path}" for path in paths}
        return self._set.adding(names.union(*map(self._names_of, lost)))

    def note_history(self, paths: Iterable[str]) -> tuple[Segment, ...] | None:
        """These lie below the origin of the cold start; the segments to save, then `saved`."""
        return self._set.adding(f"{_HISTORY}{path}" for path in paths)

    def note_changed(self, stamps: Iterable[str]) -> tuple[Segment, ...] | None:
        """These files, as they are now, were told to be changed; segments to save, then `saved`."""
        return self._set.adding(f"{_CHANGED}{stamp}" for stamp in stamps)

    def not_reported(self, stamps: Sequence[str]) -> list[str]:
        """Return the files, as they are now, that were not told to be changed."""
        return self._without(_CHANGED, stamps)

    def forget(self, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        """Names that have vanished from the source for good are let go of; then `saved`.

        ``listed`` is a full listing, as `digests_listed` gives it.
        """
        batches = digests_of(f"{_BATCH}{batch}" for batch in self._journal.batches())
        return self._set.forgetting(np.concatenate([listed, batches]), now)

    def spare(self) -> tuple[Segment, ...] | None:
        """A sweep did not find that it outgrows the source: nothing is on its way to be forgotten.

        Else what one listing lacked years ago could go with the next that lacks it. Then `saved`.
        """
        return self._set.sparing()

    @staticmethod
    def digests_listed(paths: Sequence[str]) -> Digests:
        """Return what `forget` has to know of files that are there."""
        return digests_of(f"{mark}{path}" for mark in _MARKS for path in paths)

    def saved(self) -> None:
        """The segments are in the checkpoint."""
        self._set.saved()

    def prune(self, now: float, needed: Iterable[str]) -> int:
        """Remove folded batches of the journal, thirty days old and older, but none ``needed``."""
        kept = {*self._unfolded(), *needed}
        folded = [batch for batch in self._journal.batches() if batch not in kept]
        return self._journal.prune(now, folded)

    def unprocessed(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that no batch has settled and that were not noted."""
        return self._without(_NOTED, self._without("", paths))

    def not_history(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that were not noted as history."""
        return self._without(_HISTORY, paths)

    def outcome_of(self, path: str) -> Settled | None:
        """Return what came of a path: rows, none, or what nobody knows. None: nothing yet."""
        if not self._without(_ROWS, [path]):
            return "rows"
        is_settled = not self._without("", [path])
        if is_settled and self._without(_NONE, [path]):
            return "rows"
        if not self._without(_NOTED, [path]):
            return "noted"
        return "none" if is_settled else None

    def _without(self, mark: str, paths: Sequence[str]) -> list[str]:
        marked = [f"{mark}{path}" for path in paths]
        unseen = [name for name in self._set.unseen(marked) if name not in self._beside]
        return [name[len(mark) :] for name in unseen]

    def in_history(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that are known to lie below the origin of the cold start."""
        others = set(self.not_history(paths))
        return [path for path in paths if path not in others]

    def not_folded(self, batches: Sequence[str]) -> list[str]:
        """Return the batches that the ledger has not taken in."""
        return self._without(_BATCH, batches)

    def _unfolded(self) -> list[str]:
        return self._without(_BATCH, list(self._journal.batches()))

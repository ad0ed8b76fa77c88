"""The ledger: the durable set of all processed names, so that no time has to be trusted.

Polls use watermarks to know which files are done. The late sweep and operators' requests look at
files below the watermarks, so they need a list. The journal has one, batch by batch. It is folded
into digest segments (`blizzard_py.state.processed_set`, 16 bytes a name) before its objects are
thirty days old. Journal and segments together are the ledger.

Folding does not use the names or times of batches, because their clocks may have been wrong. The
set contains each folded batch itself. Other facts are kept as digests of the path behind a mark:

=============  =================================================================
path           a batch has processed it
``none``       … without any row: a dead letter, or a report
``rows``       … and another time with rows
``unknown``    its batch was given up or lost, so it is unknown whether its rows are in
``noted``      it was passed before there was a ledger, so the same is unknown
``replaced``   a batch has replaced its rows; the stem stands for the path
``history``    it lies below the origin of the cold start, so it was not requested
``changed``    a sweep has reported that it was changed, in its present version
=============  =================================================================

A failed replacement changes nothing that is known of a file.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain
from typing import Literal

from blizzard_core.checkpoint.digests import TAIL, Digests, np
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.journal import Journal, Record
from blizzard_py.state.journal_tally import JournalTally, check_tally
from blizzard_py.state.processed_set import ProcessedSet, Segment, digests_of
from blizzard_py.state.record_names import stem_of
from blizzard_py.state.state_paths import StatePaths

Settled = Literal["rows", "none", "noted", "unknown"]

# No path of a listing begins like these.
_BATCH = "\0batch/"
_NONE = "\0none/"
_ROWS = "\0rows/"
_UNKNOWN = "\0unknown/"
_REPLACED = "\0replaced/"
_NOTED = "\0noted/"
_HISTORY = "\0history/"
_CHANGED = "\0changed/"
_MARKS = ("", _NONE, _ROWS, _UNKNOWN, _NOTED, _HISTORY)


class Ledger:
    """One source's ledger. The writer of the checkpoint `fold`s; anyone may `look`."""

    def __init__(self, storage: Storage, source_id: str, concurrency: int = 8) -> None:
        self._journal = Journal(storage, source_id, concurrency)
        self._set = ProcessedSet(storage, StatePaths(source_id).ledger)
        self._beside: set[str] = set()

    def load(self, segments: Sequence[Segment], epoch: int = 0) -> None:
        """Read the segments that a checkpoint lists; its writer gives its epoch."""
        self._set.load(segments, epoch)
        self._beside.clear()

    def unload(self) -> None:
        """Free the memory. Call `load` before the next question."""
        self._set.unload()
        self._beside.clear()

    def outgrows(self, files: int) -> bool:
        """Return whether it is so much larger than the source that `forget` is due.

        Never for an empty source: that is more likely a disk that is not mounted.
        """
        return files > 0 and len(self._set) > 2 * (len(_MARKS) + 1) * files + TAIL

    def fold(self, expected: JournalTally | None = None) -> tuple[Segment, ...] | None:
        """Add new journal batches. Return the segments to save, None if there is nothing new.

        Call `clean_up` after the save. Raises as `look` does.
        """
        self.look(expected)
        segments = self._set.adding(self._beside)
        self._beside.clear()
        return segments

    def start_over(self, reported: Iterable[str]) -> tuple[Segment, ...]:
        """Ignore everything that the journal has now. Return the segments to save.

        For a source that starts over. Its batches count as folded, and so do those ``reported`` to
        requests, but none of their files are in the ledger. A file that comes again is ingested, or
        reported as late, like a new file.
        """
        batches = {*self._journal.batches(), *reported}
        return self._set.adding(f"{_BATCH}{batch}" for batch in batches) or ()

    def look(
        self,
        expected: JournalTally | None = None,
        ignored: Container[str] = (),
        last: str = "",
    ) -> None:
        """Add new journal batches for this process only.

        With ``expected`` the journal must hold exactly these batches. Batches in ``ignored`` and
        above ``last`` come from a daemon that runs meanwhile. Raises `StateError`, `StorageError`.
        """
        fresh = self._unfolded()
        if expected is not None:
            counted = (b for b in fresh if b not in ignored and not (last and b > last))
            check_tally(expected, counted, self._journal.where)
        for record in self._journal.read(fresh):
            self._beside.update(self._names_of(record))

    def add_unknown(self, paths: Iterable[str]) -> None:
        """Add paths whose batch the journal has lost, for this process only."""
        self._beside.update(f"{_UNKNOWN}{path}" for path in paths)

    def _names_of(self, record: Record) -> set[str]:
        settled, names = record.done, {f"{_BATCH}{record.batch}"}
        names.update(f"{_UNKNOWN}{file.path}" for file in record.files if file.is_unknown)
        if record.group is not None:
            settled = [file for file in settled if file.is_ingested]
            names.update(f"{_REPLACED}{stem_of(file.path)}" for file in settled)
        settled = [file for file in settled if not file.is_unknown]
        paths = [file.path for file in settled]
        names.update(paths)
        fresh = set(self._without("", paths))
        empty = set(paths) - set(self._without(_NONE, paths))
        for file in settled:
            path, is_ingested = file.path, file.is_ingested
            if not is_ingested and path in fresh:
                names.add(f"{_NONE}{path}")
            elif path not in fresh and is_ingested == (path in empty):
                # Processed once with rows and once without.
                names.add(f"{_ROWS}{path}")
        return names

    def note(self, paths: Iterable[str], unknown: Iterable[str] = ()) -> tuple[Segment, ...] | None:
        """Note paths that must not be reported again. Return the segments to save.

        ``unknown`` are paths whose batch the journal has lost. Call `clean_up` after the save.
        """
        names = {f"{_NOTED}{path}" for path in paths}
        return self._set.adding(names.union(f"{_UNKNOWN}{path}" for path in unknown))

    def note_history(self, paths: Iterable[str]) -> tuple[Segment, ...] | None:
        """Note paths below the cold start's origin. Save the segments, then call `clean_up`."""
        return self._set.adding(f"{_HISTORY}{path}" for path in paths)

    def note_changed(self, stamps: Iterable[str]) -> tuple[Segment, ...] | None:
        """Note files, as they are now, reported as changed. Save the segments, then `clean_up`."""
        return self._set.adding(f"{_CHANGED}{stamp}" for stamp in stamps)

    def not_reported(self, stamps: Sequence[str]) -> list[str]:
        """Return the files that were not reported as changed in their present version."""
        return self._without(_CHANGED, stamps)

    def forget(self, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        """Forget names that have left the source for good. Return the segments to save.

        ``listed`` is a full listing from `digests_listed`. Call `clean_up` after the save.
        """
        batches = digests_of(f"{_BATCH}{batch}" for batch in self._journal.batches())
        return self._set.forgetting(np.concatenate([listed, batches]), now)

    def spare(self) -> tuple[Segment, ...] | None:
        """Cancel the forgetting of names, because the ledger does not outgrow the source.

        Otherwise two listings years apart that lack a name could remove it. Then call `clean_up`.
        """
        return self._set.sparing()

    @staticmethod
    def digests_listed(paths: Sequence[str]) -> Digests:
        """Return what `forget` needs to know about the files that still exist."""
        marked = (f"{mark}{path}" for mark in _MARKS for path in paths)
        return digests_of(chain(marked, (f"{_REPLACED}{stem_of(path)}" for path in paths)))

    def clean_up(self) -> None:
        """Confirm that the checkpoint lists the segments."""
        self._set.clean_up()

    def prune(self, now: float, needed: Iterable[str], above: str | None = None) -> int:
        """Remove folded batches of the journal, thirty days old and older, but none ``needed``.

        Nor those ``above`` a batch, whose source files are still to be cleaned.
        """
        kept = {*self._unfolded(), *needed}
        folded = [
            batch
            for batch in self._journal.batches()
            if batch not in kept and not (above is not None and batch > above)
        ]
        return self._journal.prune(now, folded)

    def unprocessed(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that no batch has processed, given up or lost, and that nobody noted."""
        return self._without(_UNKNOWN, self._without(_NOTED, self._without("", paths)))

    def not_history(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that were not noted as history."""
        return self._without(_HISTORY, paths)

    def outcome_of(self, path: str) -> Settled | None:
        """Return a path's outcome; None if it was not processed yet."""
        if not self._without(_ROWS, [path]):
            return "rows"
        is_settled = not self._without("", [path])
        if is_settled and self._without(_NONE, [path]):
            return "rows"
        if not self._without(_UNKNOWN, [path]):
            return "unknown"
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

    def doubtful(self, paths: Sequence[str]) -> set[str]:
        """Return the paths of which a batch was given up or lost, whatever others did."""
        return set(paths).difference(self._without(_UNKNOWN, paths))

    def was_replaced(self, path: str) -> bool:
        """Return whether a batch has replaced the rows of the whole file that a path is of."""
        return not self._without(_REPLACED, [stem_of(path)])

    def not_folded(self, batches: Sequence[str]) -> list[str]:
        """Return the batches that the ledger has not taken in."""
        return self._without(_BATCH, batches)

    def _unfolded(self) -> list[str]:
        return self._without(_BATCH, list(self._journal.batches()))

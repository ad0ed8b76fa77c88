"""Files that a server offers again under their names (``units``), which replace what they had.

A file that was taken is taken again if it was modified after the scan that had found it, and
then only once ``abstinent_days`` are over since it was done with: what is put there every day
is read once in so many days, and one that does not change once for ever. When that was the
journal says, for thirty days; of a file that is in no journal any more only a modification since
then counts. A reading that fails has its letter and waits as long as one that did not.

What comes again comes in batches of its own, which are groups: each takes out the rows of its
files, in one commit (`blizzard_py.sources.files.replacements`). What a replay has of these
files is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from blizzard_core.settings.sources import FileUnits
from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile
from blizzard_py.sources.files.advance import Work
from blizzard_py.sources.files.discovery import Discovery, Scope
from blizzard_py.sources.files.replacements import Replacements
from blizzard_py.sources.files.set_files import SetFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Plan, Upkeep, Withheld
from blizzard_py.state.journal import KEPT_SECS, Journal
from blizzard_py.state.siblings import replays_of
from blizzard_py.state.source_state import Batch, Replaced, SourceState, ToReplace

DAY_SECS = 86_400.0
# The journal keeps what is younger than this for certain, whatever the clocks.
_TOLD_SECS = KEPT_SECS - DAY_SECS


class OfferedFiles(SetFiles):
    """Lists everything, and takes what is new or has changed since."""

    def __init__(self, parts: Parts, units: FileUnits, upkeep: Upkeep, scope: Scope | None) -> None:
        super().__init__(parts, upkeep, scope)
        self._units = units
        self._replacements = Replacements(parts)
        self._taken = LastTaken(parts)

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._replacements.forget()
        return super().recover(state, epoch)

    def discover(self, state: SourceState, *, whole: bool = False) -> Discovery:
        self._taken.look()
        return super().discover(state, whole=whole)

    def plan(self, state: SourceState) -> Plan[Work]:
        plan = super().plan(state)
        files = plan.work.files
        names = self._names()
        fresh = set(names.unseen([entry.path for entry in files]))
        flying = {entry.path for batch in plan.state.in_flight for entry in batch.files}
        theirs = self._others.unfinished([e for e in files if e.path not in fresh])
        again = {e.path: ToReplace() for e in files if e.path not in fresh | theirs}
        kept = {path: asked for path, asked in plan.state.replacing.items() if path in flying}
        known = replace(plan.state, replacing=kept | again)
        left = [entry for entry in files if entry.path not in theirs]
        return Plan(known, plan.found, self._replacements.work(known, left))

    def replaced(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld | None:
        if not self._replacements.concerns(state, batch):
            return None
        return self._replacements.replaced(state, batch, finished)

    def advance(
        self, state: SourceState, batch: Batch, work: Work | None, now: float
    ) -> SourceState:
        return self._replacements.settled(super().advance(state, batch, work, now), batch)

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        if not self._replacements.concerns(state, batch):
            return super()._theirs(state, batch)
        moved = self._replacements.moved(state, batch)
        taken = self._others.unfinished(batch.files)
        if moved:
            self._log.warning("files_not_replaced", files=len(moved), why=min(moved.values()))
        return moved | dict.fromkeys(taken, "a replay has taken it")

    def _again(self, entries: Sequence[Entry], now: float) -> list[str]:
        """Those of the files that were done with and are to be taken again."""
        wait = self._units.abstinent_days * DAY_SECS
        return [entry.path for entry in entries if self._taken.is_due(entry, wait, now)]


class LastTaken:
    """When files were last taken, by the source or a replay of it, as far as journals tell."""

    def __init__(self, parts: Parts) -> None:
        ids = (parts.letters_id, replays_of(parts.letters_id)[0])
        sink = parts.stores.sink
        self._journals = [Journal(sink, source_id, parts.concurrency) for source_id in ids]
        self._read: set[str] = set()
        # By path: when the scan ended that found it, and when it was done with.
        self._taken: dict[str, tuple[float, float]] = {}

    def look(self) -> None:
        """Read what is new. Raises `StateError`, `StorageError`."""
        for journal in self._journals:
            fresh = [batch for batch in journal.batches() if batch not in self._read]
            for record in journal.read(fresh):
                self._read.add(record.batch)
                for path in record.settled:
                    seen, done = self._taken.get(path, (0.0, 0.0))
                    self._taken[path] = max(seen, record.seen_ts), max(done, record.finished_ts)

    def is_due(self, entry: Entry, wait: float, now: float) -> bool:
        """Whether a file that was done with has changed since, and ``wait`` is over."""
        seen, done = self._taken.get(entry.path, (now - _TOLD_SECS, 0.0))
        # Stores tell times in whole seconds, so within one nobody can say which came first.
        return entry.modified >= math.floor(seen) and now >= done + max(wait, 1)

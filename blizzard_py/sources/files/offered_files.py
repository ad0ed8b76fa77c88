"""Files that a server offers again under their names (``units``); each replaces its rows.

An ingested file is read again if its size or modification time has changed since its scan. It is
also read again if its time is not before that scan. It is read only after ``cooldown`` since its
last outcome. So a file that is replaced every day is read once per cooldown. A file that does not
change is read once, or twice if it is dated ahead of our clock. The journal has these facts for
thirty days; later only a modification since then counts. A failed reading has its dead letter and
waits as long as a successful one.

Files that are read again have batches of their own, which are groups: each replaces the rows of its
files in one commit (`blizzard_py.sources.files.replacements`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from blizzard_core.settings.units import FileUnits
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import CLOCK_STEP_SECS
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import FileWork
from blizzard_py.sources.files.discovery import Discovery
from blizzard_py.sources.files.processed_name_files import SetFiles
from blizzard_py.sources.protocol import CheckpointServices, PollPlan
from blizzard_py.state.batch import Batch
from blizzard_py.state.journal import KEPT_SECS, Journal
from blizzard_py.state.record_names import is_of_records, stem_of
from blizzard_py.state.source_state import SourceState, ToReplace, under_way

DAY_SECS = 86_400.0
# The journal certainly has all younger records, whatever the clocks.
_TOLD_SECS = KEPT_SECS - DAY_SECS


class ReplaceableFiles(SetFiles):
    """Lists everything, and takes what is new or has changed since."""

    def __init__(self, parts: SourceContext, units: FileUnits, upkeep: CheckpointServices) -> None:
        super().__init__(parts, upkeep)
        self._units = units
        self._readings = ReadHistory(parts)

    def discover(self, state: SourceState, *, full: bool = False) -> Discovery:
        self._readings.look()
        return super().discover(state, full=full)

    def plan(self, state: SourceState) -> PollPlan[FileWork]:
        plan = super().plan(state)
        found = plan.work.files
        fresh = set(self._names().unseen([entry.path for entry in found]))
        # Requested records come first, and leave the queue once their file is read. If they left
        # earlier and the file could not replace its rows, they would be lost.
        records = {stem_of(f.path) for f in plan.state.work.queue if is_of_records(f.path)}
        files = [e for e in found if e.path in fresh or stem_of(e.path) not in records]
        again = {entry.path: ToReplace() for entry in files if entry.path not in fresh}
        # What is in flight, or requested, stays as it was asked for.
        in_work = set(under_way(plan.state.work))
        replacing = {
            path: each for path, each in plan.state.work.replacing.items() if path in in_work
        }
        known = plan.state.with_work(replacing=again | replacing)
        if not again and len(files) == len(found):
            return replace(plan, state=known)
        return replace(plan, state=known, work=self._replacements.work(known, files))

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        theirs = super()._theirs(state, batch)
        if theirs and self._replacements.concerns(state, batch):
            self._log.warning("files_not_replaced", files=len(theirs), why=min(theirs.values()))
        return theirs

    def _again(self, entries: Sequence[Entry], now: float) -> list[str]:
        """Return the processed files that are to be ingested again."""
        wait = self._units.cooldown
        return [entry.path for entry in entries if self._readings.is_due(entry, wait, now)]

    def _forget(self, state: SourceState, now: float) -> SourceState:  # noqa: ARG002  # the seam gives it
        """Forget no name: a file that is offered again would duplicate its rows."""
        self._listed = None
        return state


class ReadHistory:
    """The times at which files were last taken, as the journal tells."""

    def __init__(self, parts: SourceContext) -> None:
        self._journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
        self._read: set[str] = set()
        # By path: when the scan ended that found it, and when it was done with.
        self._readings: dict[str, tuple[float, float]] = {}
        # Size and modification time when it was found last, and since when it was found so.
        self._listed: dict[str, _Listed] = {}

    def look(self) -> None:
        """Read what is new. Raises `StateError`, `StorageError`."""
        fresh = [batch for batch in self._journal.batches() if batch not in self._read]
        for record in self._journal.read(fresh):
            self._read.add(record.batch)
            for file in record.done:
                seen, done = self._readings.get(file.path, (0.0, 0.0))
                self._readings[file.path] = max(seen, record.seen_ts), max(done, record.finished_ts)
                found = _Listed((file.size, file.modified), record.seen_ts, record.seen_ts)
                self._listed[file.path] = found.behind(self._listed.get(file.path))

    def is_due(self, entry: Entry, wait: float, now: float) -> bool:
        """Return whether a file that was done with has changed since, and ``wait`` is over."""
        seen, done = self._readings.get(entry.path, (now - _TOLD_SECS, 0.0))
        # Stores tell times in whole seconds, so within one nobody can say which came first.
        changed = entry.modified >= math.floor(seen)
        listed = self._listed.get(entry.path)
        if listed is not None:
            if listed.stamp != (entry.size, entry.modified):
                changed = True  # also one with an older time, or of a clock behind ours
            elif listed.last - listed.first >= CLOCK_STEP_SECS:
                changed = False  # read twice as it is: its time lies ahead of our clock
        return changed and now >= done + max(wait, 1)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The size and modification time of a file in readings, and when it was found like that."""

    stamp: tuple[int, float]
    first: float
    last: float

    def behind(self, other: _Listed | None) -> _Listed:
        """Return the later of two listings; for an unchanged file it keeps the first time."""
        if other is None:
            return self
        if other.stamp == self.stamp:
            return _Listed(self.stamp, min(self.first, other.first), max(self.last, other.last))
        return max(self, other, key=lambda one: one.last)

"""Sources of files of which some take the place of what they were ingested as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.sources.files.advance import Work
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.replacements import Replacements
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Plan, Upkeep, Withheld
from blizzard_py.state.source_state import Batch, Replaced, SourceState

_RECORDS = "a replay is bringing single records of it; if none runs, `blizzard dlq replay` ends it"


class Replacing(FileSource):
    """Takes those apart that stand in ``replacing`` of the state, and leaves the others alone.

    To be mixed in before a kind of files. What a replay of single records has of a file goes
    with the file's rows, so the file waits until that is over.
    """

    # Whether somebody has looked at files before they were taken.
    chosen = True

    def __init__(self, parts: Parts, upkeep: Upkeep, scope: Scope | None = None) -> None:
        super().__init__(parts, upkeep, scope)
        self._replacements = Replacements(parts, chosen=self.chosen)
        # What waited when it was looked last.
        self._waiting: set[str] = set()

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._replacements.forget()
        return super().recover(state, epoch)

    def plan(self, state: SourceState) -> Plan[Work]:
        plan = super().plan(state)
        known, files = self._asked(plan)
        asked = known.replacing
        if not asked and known is plan.state:
            return plan
        busy = self._others.records_under_way(asked) if asked else set()
        if busy - self._waiting:
            self._log.info("files_wait", files=len(busy), why=_RECORDS, example=min(busy))
        self._waiting = busy
        free = [entry for entry in files if entry.path not in busy]
        return replace(plan, state=known, work=self._replacements.work(known, free))

    def placed(self, state: SourceState, batch: Batch) -> tuple[list[JobFile], list[FinishedFile]]:
        asked = [entry.path for entry in batch.files if entry.path in state.replacing]
        # Before it is looked where rows are: what was brought by now is found then.
        busy = self._others.records_under_way(asked) if asked else set()
        files, lost = super().placed(state, batch)
        wait = [FinishedFile(f.path, "retry", error=_RECORDS) for f in files if f.path in busy]
        return [file for file in files if file.path not in busy], [*lost, *wait]

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

    def _asked(self, plan: Plan[Work]) -> tuple[SourceState, Sequence[Entry]]:
        """The plan's state with what is to be replaced, and its files without those of others."""
        return plan.state, plan.work.files

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        if not self._replacements.concerns(state, batch):
            return super()._theirs(state, batch)
        return self._replacements.moved(state, batch)


class ReplacingFiles(Replacing, WatermarkFiles):
    """Files in a replay's queue. What scans find they have ingested before, or they wait."""

"""The whole files of a replay, of which some take the place of what they were ingested as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blizzard_py.dead_letters.reader import stem_of
from blizzard_py.job import FinishedFile
from blizzard_py.sources.files.advance import Work
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.replacements import Replacements
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Plan, Upkeep, Withheld
from blizzard_py.state.source_state import Batch, Replaced, SourceState


class ReplacingFiles(WatermarkFiles):
    """What waits in a replay's queue, each file by what is asked of it."""

    def __init__(self, parts: Parts, upkeep: Upkeep, scope: Scope | None = None) -> None:
        super().__init__(parts, upkeep, scope)
        self._replacements = Replacements(parts)

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._replacements.forget()
        return super().recover(state, epoch)

    def plan(self, state: SourceState) -> Plan[Work]:
        plan = super().plan(state)
        asked = plan.state.replacing
        if not asked:
            return plan
        # A replay of single records of the file may be at work: its rows go with the others.
        busy = self._others.records_waiting()
        free = [e for e in plan.work.files if e.path not in asked or stem_of(e.path) not in busy]
        return replace(plan, work=self._replacements.work(plan.state, free))

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
        # Who scans has ingested what is to be replaced, so only what is moved is theirs.
        if not self._replacements.concerns(state, batch):
            return super()._theirs(state, batch)
        return self._replacements.moved(state, batch)

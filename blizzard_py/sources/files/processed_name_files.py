"""Files whose names do not sort: the set of names done decides (``use_watermark: false``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blizzard_core.checkpoint.digests import Digests
from blizzard_core.limits import HINTED_FILES
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import Lowest, Progress
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import FileWork, noted, still_there
from blizzard_py.sources.files.discovery import (
    Discovery,
    discover_named,
    discover_unseen,
    nothing_scanned,
)
from blizzard_py.sources.files.file_names import selection_of
from blizzard_py.sources.files.hint_pacing import HintedScans
from blizzard_py.sources.files.source import FileSource, NameLookup
from blizzard_py.sources.files.story import SetFileStatus
from blizzard_py.sources.protocol import Backlog, CheckpointServices
from blizzard_py.sources.story import ItemStatus
from blizzard_py.state.batch import Batch
from blizzard_py.state.checkpoint_file import read_names
from blizzard_py.state.processed_set import ProcessedSet
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.transitions import done_of

if TYPE_CHECKING:
    from blizzard_core.notifications.inbox import HintKind


@dataclass(frozen=True, slots=True)
class NamesInSet:
    """Names of which each is a part by itself. A `HintedNames`, and a `NameLookup`."""

    progress: Progress
    names: ProcessedSet

    def part_of(self, path: str) -> str | None:
        return path

    def is_tracked(self, part: str) -> bool:  # noqa: ARG002  # as above
        return True  # a scan asks for a limited number of files

    def kind_without_scan(self, path: str) -> HintKind | None:
        return None if self.names.unseen([path]) else "doubled"

    def still_open(self, paths: Mapping[str, float]) -> dict[str, float]:
        return {path: paths[path] for path in self.names.unseen(list(paths))}

    def finds(self, path: str) -> bool:
        return bool(self.names.unseen([path]))

    def is_older(self, path: str) -> bool:
        return not self.finds(path)  # in the set, and in no journal that is left


class SetFiles(FileSource):
    """Lists everything, and leaves out what is done."""

    def __init__(self, parts: SourceContext, upkeep: CheckpointServices) -> None:
        super().__init__(parts, upkeep)
        self._tracker = ProcessedSet(parts.stores.sink, StatePaths(parts.id).processed)
        # Whoever owns the state has the set in step with it.
        self._owns = False
        self._listed: Digests | None = None

    def discover(self, state: SourceState, *, full: bool = False) -> Discovery:  # noqa: ARG002  # the seam gives it
        found, self._listed = discover_unseen(
            self._listing,
            self._source,
            self._names().unseen,
            self._clock,
            self._first_seen,
            self._again,
        )
        return replace(found, progress=state.position.progress)

    def _scan(self, state: SourceState) -> Discovery:
        progress, hinted = state.position.progress, self._scans
        if not isinstance(hinted, HintedScans):
            return self.discover(state)
        scan = hinted.due(state, progress)
        if scan is None:
            return nothing_scanned(progress, self._clock())
        if scan.parts is None:
            found = self.discover(state)
        else:
            paths = sorted(scan.parts)[:HINTED_FILES]
            scan = replace(scan, parts=frozenset(paths))
            found = discover_named(
                self._storage,
                self._listing,
                self._source,
                paths,
                self._clock,
                self._parts.concurrency,
            )
            found = replace(found, progress=progress)
        hinted.scanned(scan, found, state)
        return found

    def _hinted_names(self, state: SourceState) -> NamesInSet:
        return NamesInSet(state.position.progress, self._names())

    def backlog(self, state: SourceState) -> Backlog | None:  # noqa: ARG002  # the seam gives it
        return None

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._tracker.load(state.names.processed or (), epoch)
        self._owns = True
        return super().recover(state, epoch).with_names(processed=state.names.processed or ())

    def advance(
        self, state: SourceState, batch: Batch, work: FileWork | None, now: float
    ) -> SourceState:
        after = super().advance(state, batch, work, now)
        done = [file.path for file in batch.results.finished if file.outcome != "retry"]
        return after.with_names(processed=self._tracker.adding(done) or after.names.processed)

    def name_lookup(self, state: SourceState, soon: float) -> NameLookup:  # noqa: ARG002  # for kinds that do
        return self._hinted_names(state)

    def clean_up(self) -> None:
        self._tracker.clean_up()

    def _names(self) -> ProcessedSet:
        """Return the set of processed names; a reader that is not the owner loads its own copy."""
        return self._tracker if self._owns else read_names(self._parts.stores.sink, self._parts.id)

    def _again(self, entries: Sequence[Entry], now: float) -> Sequence[str]:  # noqa: ARG002  # for kinds that do
        """Return the processed files that are to be ingested again: none."""
        return ()

    def _learned(self, state: SourceState, found: Discovery) -> SourceState:
        self._log_ignored(found)
        paths = [file.path for file in (*found.files, *found.young)]
        state = state.with_work(retries=still_there(state.work, paths, found.scanned))
        return self._forget(state, found.scanned.ended)

    def _moved(self, state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:  # noqa: ARG002  # the seam gives it
        return state.with_position(progress=noted(state.position.progress, done_of(batch)))

    def _status_of(self, state: SourceState, entry: Entry) -> ItemStatus:
        return SetFileStatus(self._parts, state, replace(state.position.progress, depth=0), entry)

    def _forget(self, state: SourceState, now: float) -> SourceState:
        """Forget names that the source no longer has."""
        if self._listed is None or not selection_of(self._source).lists_all:
            return state  # what is not listed may be there, and be selected again
        segments = self._tracker.forgetting(self._listed, now)
        self._listed = None
        if segments is None:
            return state
        state = self._upkeep.save(state.with_names(processed=segments))
        self._tracker.clean_up()
        return state

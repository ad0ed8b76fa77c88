"""Claims of a source on its files: which are its own polls' to do, and which are done.

This is what keeps rows from coming twice when an operator asks for files. The state, the ledger
and the names of the source decide; no time does, but that of a partition that scans leave alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, is_hidden
from blizzard_core.watermark.progress import is_new
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts, accepts_file
from blizzard_py.sources.files.late_file_sweep import sweeps
from blizzard_py.sources.files.listing import outside
from blizzard_py.sources.files.source import NameLookup
from blizzard_py.sources.shared_files import ranges_of_others
from blizzard_py.sources.story import DOUBTFUL
from blizzard_py.state.ledger import Ledger, Settled
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.source_state import SourceState, under_way
from blizzard_py.state.transitions import is_below_origin

_NONE: Mapping[str, str] = MappingProxyType({})

_UNKNOWN = (
    "unknown whether its rows are in the table: it was passed before there was a ledger. Look into"
    " the table, and give it to `blizzard ingest --assume-missing` if they are not"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a source on a file, and the reason.

    ``waits``: the source has still to do it, or another one does it. ``rows``: its rows are in.
    ``empty``: it was settled without a row. ``unknown``: it was passed before there was a ledger,
    and only an operator can know. ``doubtful``: its batch was lost or given up, so that not even
    its dead letter tells. ``free``: nobody has settled it and nobody is going to.
    """

    standing: Literal["free", "waits", "rows", "empty", "unknown", "doubtful"]
    reason: str = ""


class Claims:
    """Claims of the source that ``parts`` are of, as ``state`` and ``ledger`` tell of them.

    ``known`` tells of polls, ``now`` is the store's time, ``replaced`` are files of records whose
    whole file was replaced since, ``unsure`` those where it may have been. A table or an API has
    files of records alone, and no ``known``.
    """

    def __init__(
        self,
        parts: SourceContext,
        state: SourceState,
        ledger: Ledger,
        known: NameLookup | None,
        now: float,
        replaced: Mapping[str, str] = _NONE,
        unsure: Mapping[str, str] = _NONE,
    ) -> None:
        self.now = now
        self._state = state
        self._ledger = ledger
        self._replaced = replaced
        self._unsure = unsure
        self._source = parts.source.as_files
        self._known = known
        self._names = parts.identity.range
        # Of names that another source reads this one has no word to say.
        self._others = ranges_of_others(parts)
        self._under_way = frozenset(under_way(state.work))

    @property
    def depth(self) -> int | None:
        """Return the depth of the source's partitions."""
        return self._state.position.progress.depth

    @property
    def ahead(self) -> tuple[str, ...]:
        """Return files that requests have claimed before scans reach them."""
        return self._state.position.ahead

    def opens(self, path: str) -> bool:
        """Return whether the source can read a file of that name, if it is there."""
        return self._source is not None or is_of_records(path)

    def claim_on(self, path: str, entry: Entry | None = None) -> Claim:
        """Return the claim on a file; ``entry`` is what is there now."""
        if elsewhere := self._elsewhere(path):
            return Claim("waits", elsewhere)
        settled = self._ledger.outcome_of(path)
        waits = self._waits_for(path, entry, settled)
        if waits:
            return Claim("waits", waits)
        if settled == "rows" or path in self._replaced:
            return Claim("rows", self._replaced.get(path, "its rows are in"))
        if settled == "unknown" or (settled is None and path in self._unsure):
            return Claim("doubtful", self._unsure.get(path, DOUBTFUL))
        if settled == "none":
            return Claim("empty", "it was settled without a row")
        return Claim("unknown", _UNKNOWN) if self._is_older(path, settled) else Claim("free")

    def _elsewhere(self, path: str) -> str:
        """Return why the file is none of this source's, empty if it is."""
        if is_of_records(path):
            return ""
        others = (f"{name} reads it ({its})" for its, name in self._others if its.holds(path))
        return outside(self._names, path) or next(others, "")

    def _waits_for(self, path: str, entry: Entry | None, settled: Settled | None) -> str:
        """Return what the source has still to do with the file; empty if nothing."""
        if path in self._under_way:
            return "it is queued, in a batch, or waits for another try"
        # Polls leave a file that a request has claimed, also where its batch was lost.
        if settled != "unknown" and self._finds(path, entry):
            return "polls have still to do it"
        if settled != "rows" and self._sweep_takes(path, entry):
            return "the next late sweep ingests it (late_files: ingest)"
        return ""

    def is_ahead(self, path: str) -> bool:
        """Return whether polls that ignore a file of that name now may find it later.

        They may once its partition is read, once its ending is accepted, or if it is written again.
        """
        source = self._source
        if source is None or not source.use_watermark or is_of_records(path) or is_hidden(path):
            return False
        return is_new(self._state.position.progress, path)

    def _source_of(self, path: str, entry: Entry | None = None) -> SourceSettings | None:
        """Return the settings of the source if its listings take such a file, else None."""
        source = self._source
        if source is None or is_of_records(path) or is_hidden(path):
            return None
        is_taken = accepts(source)(path) if entry is None else accepts_file(source)(entry)
        return source if is_taken else None

    def _finds(self, path: str, entry: Entry | None) -> bool:
        """Return whether polls will find the file."""
        known = self._known
        return known is not None and self._source_of(path, entry) is not None and known.finds(path)

    def _sweep_takes(self, path: str, entry: Entry | None) -> bool:
        """Return whether the late sweep would ingest the file, which no poll finds."""
        source, state = self._source_of(path, entry), self._state
        if source is None or source.late_files != "ingest" or not sweeps(source):
            return False
        # What is new is no sweep's, also where polls do not look yet.
        if is_new(state.position.progress, path) or not self._ledger.unprocessed([path]):
            return False
        return state.late_files.sweep.whole and not is_below_origin(state.position.origin, path)

    def _is_older(self, path: str, settled: Settled | None) -> bool:
        """Return whether the file may have been ingested before there was a ledger to say so."""
        if settled is not None:
            return settled == "noted"
        known = self._known
        return known is not None and self._source_of(path) is not None and known.is_older(path)

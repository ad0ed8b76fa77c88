"""What a state says of any number of paths, for those who look beside its owner. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from blizzard_core.settings.sources import SourceSettings
from blizzard_core.watermark.progress import is_new
from blizzard_py.sources.files.discovery import Places
from blizzard_py.state.processed_tracker import ProcessedTracker
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import is_below_origin


class Known(Protocol):
    """A state, asked about names that the source's listings take."""

    def finds(self, path: str) -> bool:
        """Whether polls will find a file of that name."""

    def is_older(self, path: str) -> bool:
        """Whether polls have passed the name, maybe before there was a ledger to say so."""


@dataclass(frozen=True, slots=True)
class KnownByWatermark:
    """Polls look above watermarks, and from ``soon`` on where they leave partitions apart now."""

    state: SourceState
    source: SourceSettings
    soon: float

    def finds(self, path: str) -> bool:
        progress = self.state.progress
        if progress.state == "Initial" and not progress.partitions:
            return True
        looked_at = Places(progress, self.source, self.soon).take(path)
        return looked_at and is_new(progress, path)

    def is_older(self, path: str) -> bool:
        state = self.state
        passed = not is_new(state.progress, path) and not is_below_origin(state, path)
        return passed and not state.sweep.whole and state.progress.state != "Initial"


@dataclass(frozen=True, slots=True)
class KnownBySet:
    """Polls take whatever is not in the set."""

    names: ProcessedTracker

    def finds(self, path: str) -> bool:
        return bool(self.names.unseen([path]))

    def is_older(self, path: str) -> bool:
        return not self.finds(path)  # in the set, and in no journal that is left

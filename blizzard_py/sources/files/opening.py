"""The choice of how done files are told from new ones: the one place that asks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from blizzard_core.settings.sources import SourceSettings
from blizzard_core.watermark.progress import is_new
from blizzard_py.sources.files.discovery import Places
from blizzard_py.sources.files.offered_files import OfferedFiles
from blizzard_py.sources.files.replacements import Replacing
from blizzard_py.sources.files.set_files import SetFiles
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Upkeep
from blizzard_py.state.checkpoint_file import read_names
from blizzard_py.state.processed_tracker import ProcessedTracker
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import is_below_origin


class Known(Protocol):
    """A state, asked about names that the source's listings take."""

    def finds(self, path: str) -> bool:
        """Return whether polls will find a file of that name."""

    def is_older(self, path: str) -> bool:
        """Return whether polls have passed the name, maybe before there was a ledger to say so."""


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


def open_files(parts: Parts, upkeep: Upkeep) -> Replacing:
    """The source of files that the parts describe. Asks no store."""
    if parts.files.units is not None:
        return OfferedFiles(parts, parts.files.units, upkeep)
    return WatermarkFiles(parts, upkeep) if parts.files.use_watermark else SetFiles(parts, upkeep)


def known_of(parts: Parts, state: SourceState, soon: float) -> Known:
    """Return what the state, as it is in storage, says of paths from now until ``soon``.

    Raises `StateError`, `StorageError`.
    """
    if parts.files.use_watermark:
        return KnownByWatermark(state, parts.files, soon)
    return KnownBySet(read_names(parts.stores.sink, parts.id))

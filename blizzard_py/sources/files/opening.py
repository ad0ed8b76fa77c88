"""How done files are told from new ones, as the settings say: the one place that asks them."""

from __future__ import annotations

from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.known import Known, KnownBySet, KnownByWatermark
from blizzard_py.sources.files.offered_files import OfferedFiles
from blizzard_py.sources.files.set_files import SetFiles
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Upkeep
from blizzard_py.state.checkpoint_file import read_names
from blizzard_py.state.source_state import SourceState


def open_files(parts: Parts, upkeep: Upkeep, scope: Scope | None = None) -> FileSource:
    """The source of files that the parts describe. Asks no store."""
    if parts.files.units is not None:
        return OfferedFiles(parts, parts.files.units, upkeep, scope)
    kind = WatermarkFiles if parts.files.use_watermark else SetFiles
    return kind(parts, upkeep, scope)


def known_of(parts: Parts, state: SourceState, soon: float) -> Known:
    """What the state, as it is in storage, says of paths from now until ``soon``.

    Raises `StateError`, `StorageError`.
    """
    if parts.files.use_watermark:
        return KnownByWatermark(state, parts.files, soon)
    return KnownBySet(read_names(parts.stores.sink, parts.id))

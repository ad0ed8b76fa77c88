"""The choice of how done files are told from new ones: the one place that asks them."""

from __future__ import annotations

from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.offered_files import ReplaceableFiles
from blizzard_py.sources.files.processed_name_files import SetFiles
from blizzard_py.sources.files.replacements import Replacing
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.protocol import CheckpointServices


def open_files(parts: SourceContext, upkeep: CheckpointServices) -> Replacing:
    """Return the source of files that ``parts`` describe. Sends no request to a store."""
    if parts.files.units is not None:
        return ReplaceableFiles(parts, parts.files.units, upkeep)
    return WatermarkFiles(parts, upkeep) if parts.files.use_watermark else SetFiles(parts, upkeep)

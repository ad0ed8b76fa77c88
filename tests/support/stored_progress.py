"""The progress that a checkpoint's document holds, read as the product reads it."""

from __future__ import annotations

from typing import Any

from blizzard_core.checkpoint.document import progress_document, progress_of
from blizzard_core.watermark.progress import Progress


def progress_from_json(document: Any, where: str) -> Progress:
    """Read the progress from a document, ignoring its other keys.

    ``where`` names the document in errors. Raises `StateError`.
    """
    return progress_of(progress_document(document, where), where)

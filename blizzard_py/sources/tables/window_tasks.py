"""The names of a window's tasks, and the work of a chunk."""

from __future__ import annotations

import re

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import PartitionProgress, Progress, State
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.sources.protocol import PlainWork

_NAME = re.compile(r"(?P<seq>\d{12})#(?P<task>[^#/\s]+)")
# Of a request's chunk: `blizzard_py.state.column_state.RequestChunk.items`.
_NAME_OF_CHUNK = re.compile(r"[0-9a-f]{8}\.\d+-\d{6}#[^#/\s]+")


def item_name(seq: int, task: str) -> str:
    """Return the permanent name of a window's task."""
    return f"{seq:012}#{task}"


def parse_name(name: str) -> tuple[int, str] | None:
    """Return the window's number and the task's name; None if the name is no task's."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found["seq"]), found["task"])


def is_item_name(name: str) -> bool:
    """Return whether a name is that of a window's task, or of a task of a request's chunk."""
    return bool(_NAME.fullmatch(name) or _NAME_OF_CHUNK.fullmatch(name))


def progress_of_text(text: str, status: State = "Active") -> Progress:
    """Return a progress that shows a watermark as text."""
    return Progress(status, text, {"": PartitionProgress(text, text)}, 0)


class ChunkWork(PlainWork):
    """The tasks of a request's chunk, which are one batch: it is read at one moment, or not."""

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:  # noqa: ARG002  # the seam gives it
        """Return all items, whatever the batch limit of requests is."""
        return self._next_files(len(self))

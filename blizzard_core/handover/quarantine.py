"""Committers' records of rejected files, as both daemons read them. Reads only.

``_penguin/{table}_quarantine.ndjson`` in the table's directory has one line per file::

    {"path": "date=2024-01-01/x.parquet", "error": "is not Parquet: …", "stage": "read",
     "timestamp": "2024-01-01T00:00:00+00:00", "size": 5, "modified": 1704067200.0,
     "retry_count": 0}

A long file's lines move to ``_penguin/{table}_quarantine/``, ordered by object name. The latest
line of a path counts; one with ``"released": true`` removes the path from the record. Damaged
lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import NotFound
from blizzard_core.handover.groups import COMMITTERS_FOLDER
from blizzard_core.storage.protocol import Entry, Storage, listed_below
from blizzard_core.text import json_object, utf8_name

# Stands for the stage of a line that takes a file off the record.
RELEASED = "released"
# The stage of outputs that were deleted before they were committed.
MISSING = "missing"

# No store has a file of so many bytes.
_LARGEST = 2**63

_SHORT = "_quarantine.ndjson"
# In JSON such halves can be written, but no path is spelled with one.
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """One line: which file it was, and why it is there. Sizes in bytes, times in epoch seconds.

    ``modified`` and ``output_id`` are None in lines that do not have them.
    """

    path: str
    error: str
    stage: str
    timestamp: str
    size: int
    modified: float | None
    retry_count: int
    output_id: str | None = None

    def is_of(self, entry: Entry) -> bool:
        """Return whether the file is still the one that was looked at."""
        return self.size == entry.size and self.modified in (None, entry.modified)


def record_path(state_name: str) -> str:
    """Return where the short object of a committer's record is, relative to the table."""
    return f"{COMMITTERS_FOLDER}/{state_name}{_SHORT}"


def segments_folder(state_name: str) -> str:
    """Return the folder of the lines that were moved out of the short object."""
    return record_path(state_name).removesuffix(".ndjson")


def quarantined(sink: Storage) -> dict[str, QuarantineRecord]:
    """Return every rejected file of a table, of any committer, by path as recorded.

    Costs a LIST, and a GET for each object of a record. Raises `StorageError`.
    """
    there = [entry.path for entry in listed_below(sink, COMMITTERS_FOLDER)]
    found: dict[str, QuarantineRecord] = {}
    for path in there:
        if path.endswith(_SHORT):
            folder = f"{path.removesuffix('.ndjson')}/"
            moved = [segment for segment in there if segment.startswith(folder)]
            found |= read_records(sink, [*moved, path])
    return found


def read_records(sink: Storage, paths: Iterable[str]) -> dict[str, QuarantineRecord]:
    """Return the records in objects of one committer, the latest object last."""
    found: dict[str, QuarantineRecord] = {}
    for path in paths:
        try:
            applied(found, sink.read(path).splitlines())
        except NotFound:  # replaced by another that was listed as well
            continue
    return found


def spelled(path: str) -> str:
    """Return the path as text that survives UTF-8, for local names that are not valid in it."""
    return utf8_name(path)


def applied(
    found: dict[str, QuarantineRecord], lines: Iterable[bytes]
) -> dict[str, QuarantineRecord]:
    """Apply these lines to ``found`` and return it; the latest line of a path counts."""
    for line in lines:
        record = record_of(line)
        if record is not None:
            earlier = found.pop(record.path, None)
            if record.stage == RELEASED:
                continue
            tries = 0 if earlier is None else earlier.retry_count + (not _same(earlier, record))
            found[record.path] = replace(record, retry_count=max(record.retry_count, tries))
    return found


def _same(one: QuarantineRecord, other: QuarantineRecord) -> bool:
    return (one.size, one.modified, one.error) == (other.size, other.modified, other.error)


def _can_be(path: Any) -> bool:
    """Return whether a file of the table can be called that, as `spelled` writes it."""
    if not isinstance(path, str) or "\0" in path or _HALF_PAIR.search(path):
        return False
    return not path.startswith("/") and ".." not in path.split("/")


def record_of(line: bytes) -> QuarantineRecord | None:
    """Parse a line; None for a damaged one."""
    found = json_object(line)
    if found is None or not _can_be(found.get("path")):
        return None
    modified = found.get("modified")
    count = found.get("retry_count")
    size = found.get("size")
    return QuarantineRecord(
        found["path"],
        str(found.get("error")),
        RELEASED if found.get("released") is True else str(found.get("stage")),
        str(found.get("timestamp")),
        size if isinstance(size, int) and size < _LARGEST else -1,
        modified if isinstance(modified, int | float) else None,
        count if isinstance(count, int) else 0,
        output_id if isinstance(output_id := found.get("output_id"), str) else None,
    )

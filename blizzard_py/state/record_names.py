"""Names of files of single records that are brought again. Pure.

Records of a file become a file in the same folder, below a folder of the dead letters. The state
calls it ``//records/{path}``: no path of a source begins with a slash.
"""

from __future__ import annotations

import hashlib
import re

RECORDS = "//records/"

# What is appended to the name of the file that records are from.
_OURS = re.compile(r"\.([0-9a-f]{8}-[0-9a-f-]{27})\.\d+\.ndjson$")
# Of the 255 bytes that a name may have on a disk these are left beside that and what a
# temporary name adds.
_LONGEST_STEM = 172
_HEAD_BYTES = 64


def is_of_records(name: str) -> bool:
    """Return whether a name of the state is that of a file of single records."""
    return name.startswith(RECORDS)


def record_file(path: str, batch: str, piece: int) -> str:
    """The path of the file of a source file's records: the same for the same letter.

    In the source file's folder, and short enough for any disk, also while it is written.
    """
    return f"{stem_of(path)}.{batch}.{piece}.ndjson"


def original_of(name: str) -> str:
    """The `stem_of` the source file whose records a file holds, or of another file."""
    return stem_of(_OURS.sub("", name.removeprefix(RECORDS)))


def letter_batch_of(name: str) -> str | None:
    """The batch whose letters a file of records was made of; None of another file."""
    found = _OURS.search(name)
    return found[1] if found else None


def stem_of(path: str) -> str:
    """Return the beginning of the names of a file's record files: its path, or a digest for it."""
    folder, slash, name = path.rpartition("/")
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) <= _LONGEST_STEM:
        return path
    head = raw[:_HEAD_BYTES].decode("utf-8", "ignore")
    return f"{folder}{slash}{head}~{hashlib.sha256(raw).hexdigest()}"

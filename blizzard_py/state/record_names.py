"""Names of files with single records that are ingested again. Pure.

Records of a source file become a file with the same relative path, below a folder of the dead
letters. The state calls it ``//records/{path}``: no path of a source begins with a slash.
"""

from __future__ import annotations

import hashlib
import re

from blizzard_core.settings.formats import FORMATS

RECORDS = "//records/"

# What is appended to the stem of the file that records are from.
_OURS = re.compile(r"\.([0-9a-f]{8}-[0-9a-f-]{27})\.\d+\.ndjson\Z")
# A stem with this prefix has a digest for a name. As with `RECORDS`, no path begins so.
_SHORT = "//short/"
# What formats read of a name stays behind the digest.
_MARKS = tuple(mark for form in FORMATS for mark in form.name_marks)
_SHORTENED = re.compile(rf"~[0-9a-f]{{64}}(?:{'|'.join(map(re.escape, _MARKS))})*\Z")
# A name on a disk may have 255 bytes. This many remain beside the suffix and a temporary one.
_LONGEST_STEM = 172
_HEAD_BYTES = 64


def is_of_records(name: str) -> bool:
    """Return whether a name in the state is that of a file of single records."""
    return name.startswith(RECORDS)


def record_file(stem: str, batch: str, piece: int) -> str:
    """Return the path of a file of records for a source file's stem, the same for a dead letter.

    In the source file's folder, and short enough for any disk, also while it is written.
    """
    return f"{stem_prefix(stem)}.{batch}.{piece}.ndjson"


def letter_batch_of(name: str) -> str | None:
    """Return the batch whose dead letters a file of records came from, or None."""
    found = _OURS.search(name)
    return found[1] if found else None


def stem_of(name: str) -> str:
    """Return the stem that stands for one file of the source: its path, or a digest if long.

    ``name`` is its path, its stem, or the state's name of a file of its records. Stems are unique:
    a file whose own name looks like a digest gets a digest, too.
    """
    if name.startswith(_SHORT):
        return name
    if not is_of_records(name):
        return _shortened(name) if _SHORTENED.search(name) else _bounded(name)
    # The source's own files may have such names, so the suffix is removed only once.
    stem = _OURS.sub("", name.removeprefix(RECORDS))
    return f"{_SHORT}{stem}" if _SHORTENED.search(stem) else _bounded(stem)


def is_short(stem: str) -> bool:
    """Return whether a stem is a digest, so that it does not show the file's name."""
    return stem.startswith(_SHORT)


def stem_prefix(stem: str) -> str:
    """Return a stem as it begins the names of record files."""
    return stem.removeprefix(_SHORT)


def _bounded(path: str) -> str:
    name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")
    return path if len(name) <= _LONGEST_STEM else _shortened(path)


def _shortened(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    raw = name.encode("utf-8", "surrogateescape")
    head = raw[:_HEAD_BYTES].decode("utf-8", "ignore")
    marks = "".join(mark for mark in _MARKS if mark in name.lower())
    return f"{_SHORT}{folder}{slash}{head}~{hashlib.sha256(raw).hexdigest()}{marks}"

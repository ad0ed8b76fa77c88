"""The number of open dead letters, for `status`, `dlq list` and a replay."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import DeadLetterObject, letter_lines

# Beyond that it is said that there are more: each object is read, and costs a request.
OBJECTS_COUNTED = 10_000
BYTES_COUNTED = 64 << 20


@dataclass(frozen=True, slots=True)
class Counted:
    """Letters in so many objects; not ``complete`` where there is more than was looked at.

    ``letters`` are lines: a whole file, or a single record of one.
    """

    objects: int = 0
    letters: int = 0
    records: int = 0
    bytes: int = 0
    newest_ts: float | None = None
    complete: bool = True


def counted(dlq: Storage, found: Iterable[DeadLetterObject]) -> Counted:
    """Count the letters of these objects. Raises `StorageError`."""
    objects = letters = records = size = 0
    newest: float | None = None
    for each in found:
        if objects == OBJECTS_COUNTED or size + each.size > BYTES_COUNTED:
            return Counted(objects, letters, records, size, newest, complete=False)
        lines = lines_of(dlq, each)
        objects, letters, size = objects + 1, letters + lines, size + each.size
        records += lines if each.kind == "records" else 0
        newest = each.modified if newest is None else max(newest, each.modified)
    return Counted(objects, letters, records, size, newest)


def lines_of(dlq: Storage, found: DeadLetterObject) -> int:
    """Count the letters of one object; a block of it is in memory at a time."""
    lines, blank = 0, True
    try:
        with closing(dlq.open_input(found.path)) as stream:
            for piece in letter_lines(stream):
                blank = blank and not piece.strip()
                if piece.endswith(b"\n"):
                    lines, blank = lines + (not blank), True
    except NotFound:  # put away meanwhile
        return 0
    return lines + (not blank)

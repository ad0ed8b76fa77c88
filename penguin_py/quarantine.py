"""Files that will not be committed, on record before the watermark passes them.

``_penguin/{table}_quarantine.ndjson`` in the table's directory, one line a file::

    {"path": "date=2024-01-01/x.parquet", "error": "is not Parquet: …", "stage": "read",
     "timestamp": "2024-01-01T00:00:00+00:00", "size": 5, "modified": 1704067200.0,
     "retry_count": 0}

Object stores cannot append, so the whole object is replaced. A file that is
already on record with the same size and error is not recorded twice, so keeping
again after a crash changes nothing. A file that was replaced since is tried
again by the sweep; then its line is renewed, or leaves the record once the file
is committed.

Two instances that write the record at the same moment can lose a line. The
sweep finds such a file again, as one that neither log nor record knows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_py.core.errors import NotFound
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from penguin_py.model import Rejection


@dataclass(frozen=True, slots=True)
class Record:
    """One line: which file it was, and why it is there. Sizes in bytes, times in epoch seconds.

    ``modified`` is None in lines of releases that did not write it.
    """

    path: str
    error: str
    stage: str
    timestamp: str
    size: int
    modified: float | None
    retry_count: int

    def is_of(self, entry: Entry) -> bool:
        """Whether the file is still the one that was looked at."""
        return self.size == entry.size and self.modified in (None, entry.modified)


class Quarantine:
    """The quarantine record of one table."""

    def __init__(self, storage: Storage, state_name: str) -> None:
        self._storage = storage
        self._path = f"_penguin/{state_name}_quarantine.ndjson"

    def records(self) -> dict[str, Record]:
        """All that is on record, by path as the record spells it. Damaged lines are left out."""
        found = (_record(line) for line in self._lines())
        return {record.path: record for record in found if record is not None}

    def keep(self, rejections: Sequence[Rejection], now: float) -> tuple[Rejection, ...]:
        """Record the files, durable on return; returns those that were not on record yet."""
        if not rejections:
            return ()
        lines = self._lines()
        known = {r.path: r for r in map(_record, lines) if r is not None}
        fresh = tuple(r for r in rejections if not _is_known(r, known.get(spelled(r.entry.path))))
        if fresh:
            moment = dt.datetime.fromtimestamp(now, dt.UTC).isoformat()
            renewed = {spelled(r.entry.path) for r in fresh}
            lines = _without(lines, renewed)
            lines += [_line(r, moment, known.get(spelled(r.entry.path))) for r in fresh]
            self._write(lines)
        return fresh

    def release(self, paths: Collection[str]) -> None:
        """Take files off the record that are committed now; durable on return."""
        names = {spelled(path) for path in paths}
        lines = self._lines()
        kept = _without(lines, names)
        if len(kept) != len(lines):
            self._write(kept)

    def _lines(self) -> list[bytes]:
        try:
            return self._storage.read(self._path).splitlines()
        except NotFound:
            return []

    def _write(self, lines: Sequence[bytes]) -> None:
        self._storage.put_atomic(self._path, b"\n".join([*lines, b""]))


def spelled(path: str) -> str:
    """The path as text that survives UTF-8, for local names that are not valid in it."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_known(rejection: Rejection, record: Record | None) -> bool:
    return record is not None and record.error == rejection.reason and record.is_of(rejection.entry)


def _without(lines: Sequence[bytes], paths: Collection[str]) -> list[bytes]:
    return [line for line in lines if (r := _record(line)) is None or r.path not in paths]


def _record(line: bytes) -> Record | None:
    """What a line is about. A damaged line is kept as it is and is about nothing."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, Mapping) or not isinstance(found.get("path"), str):
        return None
    modified = found.get("modified")
    count = found.get("retry_count")
    size = found.get("size")
    return Record(
        found["path"],
        str(found.get("error")),
        str(found.get("stage")),
        str(found.get("timestamp")),
        size if isinstance(size, int) else -1,
        modified if isinstance(modified, int | float) else None,
        count if isinstance(count, int) else 0,
    )


def _line(rejection: Rejection, moment: str, earlier: Record | None) -> bytes:
    document = {
        "path": spelled(rejection.entry.path),
        "error": rejection.reason,
        "stage": rejection.stage,
        "timestamp": moment,
        "size": rejection.entry.size,
        "modified": rejection.entry.modified,
        "retry_count": 0 if earlier is None else earlier.retry_count + 1,
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")

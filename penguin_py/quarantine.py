"""Files that will not be committed, on record before the watermark passes them.

``_penguin/{table}_quarantine.ndjson`` in the table's directory, one line a file::

    {"path": "date=2024-01-01/x.parquet", "error": "is not Parquet: …", "stage": "read",
     "timestamp": "2024-01-01T00:00:00+00:00", "size": 5, "retry_count": 0}

Object stores cannot append, so the whole object is replaced. A file that is
already on record with the same size and error is not recorded twice, so keeping
again after a crash changes nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from blizzard_py.core.errors import NotFound
from blizzard_py.core.storage import Storage
from penguin_py.model import Rejection


class Quarantine:
    """The quarantine record of one table."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage = storage
        self._path = f"_penguin/{table}_quarantine.ndjson"

    def keep(self, rejections: Sequence[Rejection], now: float) -> tuple[Rejection, ...]:
        """Record the files, durable on return; returns those that were not on record yet."""
        if not rejections:
            return ()
        try:
            lines = self._storage.read(self._path).splitlines()
        except NotFound:
            lines = []
        known = {_identity(line) for line in lines}
        fresh = tuple(r for r in rejections if _key(r) not in known)
        if fresh:
            moment = dt.datetime.fromtimestamp(now, dt.UTC).isoformat()
            lines += [_line(rejection, moment) for rejection in fresh]
            self._storage.put_atomic(self._path, b"\n".join([*lines, b""]))
        return fresh


def _key(rejection: Rejection) -> tuple[Any, ...]:
    return _text(rejection.entry.path), rejection.entry.size, rejection.reason


def _identity(line: bytes) -> tuple[Any, ...] | None:
    """What a recorded line is about. A damaged line is kept as it is and matches nothing."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return found.get("path"), found.get("size"), found.get("error")


def _line(rejection: Rejection, moment: str) -> bytes:
    document = {
        "path": _text(rejection.entry.path),
        "error": rejection.reason,
        "stage": rejection.stage,
        "timestamp": moment,
        "size": rejection.entry.size,
        "retry_count": 0,
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _text(path: str) -> str:
    """The path as text that survives UTF-8, for local names that are not valid in it."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")

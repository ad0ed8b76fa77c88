"""The record of rejected files, written before the watermark passes them.

``_penguin/{table}_quarantine.ndjson`` in the table's directory, one line per file::

    {"path": "date=2024-01-01/x.parquet", "error": "is not Parquet: …", "stage": "read",
     "timestamp": "2024-01-01T00:00:00+00:00", "size": 5, "modified": 1704067200.0,
     "retry_count": 0}

Object stores cannot append, so the whole object is replaced. It stays short: beyond
`QUARANTINE_BYTES` its lines move to ``_penguin/{table}_quarantine/`` for good, so adding to a long
record costs no more. The latest line of a path counts; one with ``"released": true`` removes the
path from the record.

A file with the same size and error is not recorded twice, as far as the short object and this
process know. So repeating after a crash changes nothing. The sweep retries a file
that was replaced since; its line is renewed, or removed once the file is committed.

Two instances that write at the same moment can lose a line. The sweep finds such a file again,
since neither log nor record knows it.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Collection, Iterable, Sequence

from blizzard_core.errors import NotFound
from blizzard_core.handover.quarantine import (
    QuarantineRecord,
    applied,
    read_records,
    record_of,
    record_path,
    segments_folder,
    spelled,
)
from blizzard_core.limits import QUARANTINE_BYTES
from blizzard_core.storage.protocol import Storage, listed_below
from penguin_py.model import Rejection

# How many files of a process are remembered as recorded.
REMEMBERED = 100_000


class Quarantine:
    """The quarantine record of one table."""

    def __init__(self, storage: Storage, state_name: str) -> None:
        self._storage = storage
        self._path = record_path(state_name)
        self._folder = segments_folder(state_name)
        # Records of this process by path; the oldest leave first.
        self._recorded: dict[str, QuarantineRecord] = {}

    def records(self) -> dict[str, QuarantineRecord]:
        """Return all records by path, as spelled in the record. Damaged lines are left out."""
        return read_records(self._storage, [*self._segments(), self._path])

    def keep(self, rejections: Sequence[Rejection], now: float) -> tuple[Rejection, ...]:
        """Record the files, durable on return; returns those that were not on record yet."""
        if not rejections:
            return ()
        lines = self._lines()
        known = {**self._recorded, **applied({}, lines)}
        fresh = tuple(r for r in rejections if not _is_known(r, known.get(spelled(r.entry.path))))
        if fresh:
            moment = dt.datetime.fromtimestamp(now, dt.UTC).isoformat()
            renewed = {spelled(r.entry.path) for r in fresh}
            lines = _without(lines, renewed)
            added = [_line(r, moment, known.get(spelled(r.entry.path))) for r in fresh]
            self._write(lines, added)
            self._recorded.update(applied({}, added))
            for path in list(self._recorded)[: max(0, len(self._recorded) - REMEMBERED)]:
                del self._recorded[path]
        return fresh

    def recorded(self, paths: Iterable[str]) -> set[str]:
        """Return which of these files this process has put on record."""
        return {path for path in paths if spelled(path) in self._recorded}

    def records_here(self, paths: Iterable[str]) -> dict[str, QuarantineRecord]:
        """Return the records that this process has made of paths as spelled. Reads nothing."""
        return {path: self._recorded[path] for path in paths if path in self._recorded}

    def release(self, paths: Collection[str]) -> None:
        """Remove committed files from the record; durable on return."""
        names = {spelled(path) for path in paths}
        lines = self._lines()
        remaining = _without(lines, names)
        moved = names if self._segments() else set()
        if remaining != lines or moved:
            self._write(remaining, [_released(path) for path in sorted(moved)])
        for path in names:
            self._recorded.pop(path, None)

    def _lines(self) -> list[bytes]:
        try:
            return self._storage.read(self._path).splitlines()
        except NotFound:
            return []

    def _segments(self) -> list[str]:
        """List the moved segments, in the order of their moves."""
        return [entry.path for entry in listed_below(self._storage, self._folder)]

    def _write(self, lines: Sequence[bytes], added: Sequence[bytes]) -> None:
        """Replace the short object. A crash after the move leaves its lines in both places."""
        if sum(map(len, added)) > QUARANTINE_BYTES:
            lines, added = [*lines, *added], ()
        if sum(map(len, lines)) > QUARANTINE_BYTES:
            number = len(self._segments())
            path = f"{self._folder}/{number:08d}-{uuid.uuid4().hex}.ndjson"
            self._storage.put_atomic(path, b"\n".join([*lines, b""]))
            lines = ()
        self._storage.put_atomic(self._path, b"\n".join([*lines, *added, b""]))


def _is_known(rejection: Rejection, record: QuarantineRecord | None) -> bool:
    return record is not None and record.error == rejection.reason and record.is_of(rejection.entry)


def _released(path: str) -> bytes:
    return json.dumps({"path": path, "released": True}, ensure_ascii=False).encode()


def _without(lines: Sequence[bytes], paths: Collection[str]) -> list[bytes]:
    return [line for line in lines if (r := record_of(line)) is None or r.path not in paths]


def _line(rejection: Rejection, moment: str, earlier: QuarantineRecord | None) -> bytes:
    document = {
        "path": spelled(rejection.entry.path),
        "error": rejection.reason,
        "stage": rejection.stage,
        "timestamp": moment,
        "size": rejection.entry.size,
        "modified": rejection.entry.modified,
        "retry_count": 0 if earlier is None else earlier.retry_count + 1,
    }
    if rejection.output_id is not None:
        document["output_id"] = rejection.output_id
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")

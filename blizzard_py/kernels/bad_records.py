r"""The bad records of a task's files, as lines of a staged NDJSON object.

One line per record::

    {"path": "s3://raw/date=…/x.ndjson.gz", "line": 3, "offset": 120, "length": 57,
     "error": "…", "stage": "parse", "timestamp": "2024-01-28T14:00:00+00:00",
     "raw": "{\"id\":", "truncated": false}

* ``line`` counts from 1 over the file, including blank lines.
* ``offset`` is that of the line's first byte in the decompressed stream; a byte order mark counts.
  It is -1 in formats whose records have no bytes of their own, and ``raw`` is the row as JSON.
* ``length`` is in bytes without the newline.
* ``raw`` is the line, or ``raw_base64`` if it is not valid UTF-8; at most the first 64 KiB.
  ``truncated`` says whether the line is longer, or its header too long for the letter.
* ``header`` is that of the record's file, for CSV; for XML it is the namespaces around the record,
  for formats with types the columns (`blizzard_py.formats.letters`). It has at most 64 KiB, or
  512 KiB where ``raw`` has.
* ``member`` is the name within an archive; ``offset`` is then that of the member.
* ``timestamp`` is the begin of the batch, so a repeated batch writes the same dead letters.
* The letter of a row of a table or an API also has ``where``, the statement or request. It contains
  more of ``raw``, because the row may not be readable again.
* A file has a limited number of letters; the last one has ``more``, the number of further bad lines
  without a letter.

The letters wait on the local disk, because a file's records count only when its end is known to be
valid: `rewind` forgets the letters of a failed file. Errors of that disk are raised as
`StorageError`: no file caused them, and they end the task for now.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import shutil
import tempfile
from typing import Any

from msgspec import structs

from blizzard_core.errors import StorageError
from blizzard_core.limits import LETTERS_BYTES, RAW_BYTES, ROW_BYTES
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.protocol import NO_OFFSET, BadRecord
from blizzard_py.lines.failure import bounded

# A long record of characters that JSON escapes would make a letter too long to be read.
_ESCAPED = 2
# Above this the records go to a temporary file.
_MEMORY_BYTES = 1 << 20


class BadRecordWriter:
    """Collects a task's bad records; `stage` writes them to staging."""

    def __init__(self, source_uri: str, started_ts: float) -> None:
        self._source_uri = source_uri
        self._timestamp = dt.datetime.fromtimestamp(started_ts, dt.UTC).isoformat()
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115  # closed by `close`

    def add(
        self,
        path: str,
        bad: BadRecord,
        *,
        keep: int = RAW_BYTES,
        where: str = "",
        more: int = 0,
    ) -> int:
        """Add one record of the file at ``path``; index and offset count from the file's start.

        At most ``keep`` of its bytes are stored. ``where`` is the statement or request of a row,
        ``more`` how many bad lines follow without a letter. Returns the letter's bytes.
        """
        raw = bad.head[:keep]
        header = _header(bad.header, keep)
        truncated = len(raw) < bad.length or bool(bad.header and not header)
        letter = {
            "path": f"{self._source_uri}/{path}",
            "line": bad.index + 1,
            "offset": bad.offset,
            "length": bad.length,
            "error": bounded(bad.reason),
            "stage": bad.stage,
            "timestamp": self._timestamp,
            **_raw(raw, cut=truncated),
            "truncated": truncated,
            **({"where": where} if where else {}),
            **({"member": bad.member} if bad.member else {}),
            **header,
            **({"more": more} if more else {}),
        }
        text = json.dumps(letter, ensure_ascii=False) + "\n"
        try:
            return self._file.write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise _disk_failed(error) from error

    def mark(self) -> int:
        """Return the position of the next record, for `rewind`."""
        return self._file.tell()

    def rewind(self, mark: int) -> None:
        """Forget the records added since ``mark`` was taken."""
        with contextlib.suppress(OSError):  # a full disk, which the task already knows
            self._file.seek(mark)
            self._file.truncate()

    def stage(self, sink: Storage, path: str) -> str:
        """Write the records to ``path`` and return it; without records return ``""``."""
        if not self._file.tell():
            return ""
        try:
            self._file.seek(0)
        except OSError as error:
            raise _disk_failed(error) from error
        stream = sink.open_output(path)
        try:
            with stream:
                shutil.copyfileobj(self._file, stream)
        except Exception as error:  # errors of store clients have no common base class
            raise wrap_error(f"{sink.uri}/{path}", error) from error
        sink.sync(path)
        return path

    def close(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):  # unwritten content is no longer needed
            self._file.close()


class FileLetters:
    """The dead letters of one file's bad records: a limited number, and the rest counted.

    The last letter is held back until the number of bad lines after it is known.
    """

    def __init__(self, writer: BadRecordWriter, path: str, most: int) -> None:
        self._writer = writer
        self._path = path
        self._most = most
        self._last: BadRecord | None = None
        self._bytes = 0
        self.count = 0
        self.more = 0

    def full(self, more: int) -> bool:
        """Return whether that many more are too many."""
        return self.count + more > self._most or self._bytes >= LETTERS_BYTES

    def add(self, bad: BadRecord) -> None:
        """Add one more record."""
        if self.full(1):
            self.pass_over(1)
            return
        self._write()
        self._last = structs.replace(bad, head=bad.head[: _most_bytes(bad)])
        self.count += 1

    def pass_over(self, count: int) -> None:
        """Count so many more records, which have no letter."""
        self.more += count

    def close(self) -> None:
        """Write the letter that was held back. There are no more."""
        self._write()

    def _write(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            self._bytes += self._writer.add(
                self._path, last, keep=_most_bytes(last), more=self.more
            )


def _most_bytes(bad: BadRecord) -> int:
    """Return how much of a record a letter has: more of one that is not found by its offset."""
    return ROW_BYTES if bad.offset == NO_OFFSET else RAW_BYTES


def _header(header: bytes, most: int) -> dict[str, str]:
    """Return the header's text; a header that is longer than a record may be is left out."""
    if not header or len(header) > most:
        return {}
    return {"header": header.decode("utf-8", "surrogateescape")}


def _disk_failed(error: OSError) -> StorageError:
    return wrap_error(f"{tempfile.gettempdir()} (dead letters that wait for their file)", error)


def _raw(raw: bytes, *, cut: bool) -> dict[str, Any]:
    """Return the bytes as text if they are UTF-8; a character that the cut splits is ignored."""
    for end in range(len(raw), max(-1, len(raw) - (4 if cut else 1)), -1):
        try:
            text = raw[:end].decode()
        except UnicodeDecodeError:
            continue
        if end <= RAW_BYTES or _json_bytes(text) <= _ESCAPED * end:
            return {"raw": text}
        break
    return {"raw_base64": base64.b64encode(raw).decode()}


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())

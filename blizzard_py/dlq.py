"""The dead-letter queue: files and records that were given up, durable before they are passed.

One NDJSON object per batch, ``{dlq}/{pipeline}_{source}/{batch}.ndjson``, one
line per file::

    {"path": "s3://raw/…", "error": "line 3: …", "stage": "parse",
     "timestamp": "2024-01-28T14:00:00Z", "retry_count": 0}

The bad records of its ingested files are in ``{batch}.records.ndjson`` beside it,
one line each in order of path and line, as `blizzard_py.kernels.letters` describes
them. It is written as ``{batch}.records.tmp`` and renamed, so it appears whole.

Objects are named by the batch, so a batch that runs again after a crash
replaces its letters and never doubles them.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import BinaryIO

from blizzard_py.core.errors import BlizzardError
from blizzard_py.core.model import FinishedFile, StagedLetters
from blizzard_py.core.storage import Storage, join, order_key
from blizzard_py.core.store_object import wrap_error

_READ_BYTES = 256 << 10


class DeadLetters:
    """The dead letters of one source."""

    def __init__(self, storage: Storage, source_id: str, source_uri: str) -> None:
        self._storage = storage
        self._source_id = source_id
        self._source_uri = source_uri

    def keep(
        self, batch: str, files: Sequence[FinishedFile], retries: Mapping[str, int], now: float
    ) -> str | None:
        """Write the batch's quarantined files, durable on return; the object's URI if any.

        With none, letters that an earlier attempt at the batch left are removed.
        """
        path = join(self._source_id, f"{batch}.ndjson")
        lines = [
            json.dumps(
                {
                    "path": f"{self._source_uri}/{file.path}",
                    "error": file.error,
                    "stage": file.stage,
                    "timestamp": dt.datetime.fromtimestamp(now, dt.UTC).isoformat(),
                    "retry_count": retries.get(file.path, 0),
                },
                ensure_ascii=False,
            )
            for file in files
            if file.outcome == "quarantined"
        ]
        if not lines:
            self._storage.delete(path)
            return None
        self._storage.put_atomic(
            path, ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        )
        return f"{self._storage.uri}/{path}"

    def keep_records(
        self, batch: str, sink: Storage, letters: Sequence[StagedLetters]
    ) -> str | None:
        """Copy staged bad records into the queue, durable on return; the object's URI if any.

        With none, those that an earlier attempt at the batch left are removed.
        Holds a block of each task's records, however many there are.
        """
        path = join(self._source_id, f"{batch}.records.ndjson")
        temporary = join(self._source_id, f"{batch}.records.tmp")
        if not letters:
            self._storage.delete(path)
            self._storage.delete(temporary)
            return None
        with ExitStack() as stack:
            stream = stack.enter_context(closing(self._storage.open_output(temporary)))
            try:
                for line in _in_path_order(sink, letters, stack):
                    stream.write(line)
                stream.close()
            except BlizzardError:
                raise
            except Exception as error:  # store clients share no base class
                raise wrap_error(f"{self._storage.uri}/{temporary}", error) from error
        self._storage.sync(temporary)
        self._storage.rename(temporary, path)
        return f"{self._storage.uri}/{path}"


def _in_path_order(
    sink: Storage, letters: Sequence[StagedLetters], stack: ExitStack
) -> Iterator[bytes]:
    """The lines of all tasks. Each has its own files' in the order that it names them."""
    sources: list[tuple[str, int, Iterator[bytes]]] = []
    for staged in letters:
        lines = _lines(sink, staged.staged, stack)
        sources += [(path, count, lines) for path, count in staged.files]
    # The sort is stable, and within a task paths are in order already.
    for path, count, lines in sorted(sources, key=lambda source: order_key(source[0])):
        for number in range(count):
            line = next(lines, None)
            if line is None:
                raise BlizzardError(
                    f"{path}: its task reported {count} bad records and staged {number};"
                    " the batch was not committed"
                )
            yield line


def _lines(storage: Storage, path: str, stack: ExitStack) -> Iterator[bytes]:
    """The object's lines, opened when the first is asked for."""
    stream: BinaryIO = stack.enter_context(closing(storage.open_input(path)))
    rest = b""
    while block := stream.read(_READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"

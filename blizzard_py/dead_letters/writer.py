"""The dead-letter queue: files and records that were given up, durable before they are passed.

One NDJSON object per batch, ``{dlq}/{pipeline}_{source}/{batch}.ndjson``, one
line per file::

    {"path": "s3://raw/…", "error": "line 3: …", "stage": "parse",
     "timestamp": "2024-01-28T14:00:00Z", "retry_count": 0}

With ``"kept": true`` the file was to replace what it had been ingested as, and failed: rows that
it had before are in the table still.

The bad records of its ingested files are in ``{batch}.records.ndjson`` beside it,
one line each in order of path and line, as `blizzard_py.kernels.bad_records` describes
them. It is written under another name and renamed, so it appears whole.

Letters are written after the batch's commit point, from what was committed, and before
its watermark moves. So they are written once or the same again, whoever finishes the
batch, and a daemon that was replaced before it could commit leaves none.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing

from blizzard_core.errors import BlizzardError, StateError
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage, join, listed, order_key
from blizzard_py.dead_letters.reader import letter_lines
from blizzard_py.job import StagedBadRecords
from blizzard_py.state.batch import Batch
from blizzard_py.state.source_state import REPLAYED_FOLDER, Retry


class DeadLetterWriter:
    """The dead letters of one source."""

    def __init__(self, storage: Storage, source_id: str, uri_of: Callable[[str], str]) -> None:
        """``uri_of`` gives the URI of a file by its name in the state."""
        self._storage = storage
        self._source_id = source_id
        self._uri_of = uri_of

    def keep(self, batch: Batch, retries: Mapping[str, Retry]) -> str | None:
        """Write the batch's quarantined files, durable on return; the object's URI if any."""
        path = join(self._source_id, f"{batch.batch}.ndjson")
        moment = dt.datetime.fromtimestamp(batch.results.committed_ts, dt.UTC).isoformat()
        lines = [
            json.dumps(
                {
                    "path": self._uri_of(file.path),
                    "error": file.error,
                    "stage": file.stage,
                    "timestamp": moment,
                    "retry_count": retries[file.path].count if file.path in retries else 0,
                }
                | ({"kept": True} if batch.results.group is not None else {}),
                ensure_ascii=False,
            )
            for file in batch.results.finished
            if file.outcome == "quarantined"
        ]
        if not lines:
            return None
        self._storage.put_atomic(
            path, ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        )
        return f"{self._storage.uri}/{path}"

    def records_uri(self, batch: str) -> str:
        """Return where the bad records of a batch are kept."""
        return f"{self._storage.uri}/{join(self._source_id, f'{batch}.records.ndjson')}"

    def keep_records(self, batch: Batch, sink: Storage) -> str | None:
        """Copy the batch's staged bad records into the queue; the object's URI if any.

        Durable on return. Holds a block of each task's records, however many there
        are. Raises `StateError` if they are staged no more and were not copied.
        """
        name = f"{batch.batch}.records"
        path = join(self._source_id, f"{name}.ndjson")
        if not batch.results.letters:
            return None
        if any(sink.stat(letters.staged) is None for letters in batch.results.letters):
            self._require_stored(path, name)
            return f"{self._storage.uri}/{path}"
        # Two that finish the same batch must not write into one object.
        temporary = join(self._source_id, f"{name}.{uuid.uuid4().hex}.tmp")
        letters = batch.results.letters
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

    def tidy(self, batch: Batch) -> None:
        """Remove what a crash left of copying the batch's records."""
        stem = join(self._source_id, f"{batch.batch}.records.")
        for entry in listed(self._storage, stem, f"{stem}\U0010ffff"):
            if entry.path.endswith(".tmp"):
                self._storage.delete(entry.path)

    def _require_stored(self, path: str, name: str) -> None:
        away = join(self._source_id, REPLAYED_FOLDER, f"{name}.ndjson")
        if self._storage.stat(path) is None and self._storage.stat(away) is None:
            raise StateError(
                f"{self._storage.uri}/{path}: the bad records of this batch are neither staged nor"
                " here; restore the folder _blizzard/staging of the table"
            )


def _in_path_order(
    sink: Storage, letters: Sequence[StagedBadRecords], stack: ExitStack
) -> Iterator[bytes]:
    """Yield the lines of all tasks in the order of their files."""
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
    """Yield the object's lines; it is opened with the first."""
    stream = stack.enter_context(closing(storage.open_input(path)))
    yield from (line for line in letter_lines(stream) if line.endswith(b"\n"))

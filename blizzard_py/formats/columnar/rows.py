"""The rows of a Parquet file in batches of limited size, whatever the file holds.

Another process decodes them (`process`). This module sends the commands and answers its requests
for bytes.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.limits import TABLE_READER_BYTES, TABLE_READER_MOST_BYTES, TABLE_READER_PER_BYTE
from blizzard_py.formats.columnar import process
from blizzard_py.formats.columnar.file import ParquetFooter, StoredFile
from blizzard_py.formats.columnar.statistics import from_batch
from blizzard_py.slices.column_order import Range


class _Ended(Exception):
    """The process ended before it had answered."""


class RowReader:
    """The decoding process and the connection to it."""

    def __init__(self) -> None:
        own_end, theirs = socket.socketpair()
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "1",
        }
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", process.__name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=env,
            )
        self.pid = self._process.pid
        self._line = Connection(own_end.detach())

    def send(self, content: bytes) -> None:
        """Send a command, or the bytes that the process requested."""
        try:
            self._line.send_bytes(content)
        except OSError as error:
            raise _Ended from error

    def receive(self) -> tuple[bytes, bytes]:
        """Return the kind of an answer and its content."""
        try:
            answer = self._line.recv_bytes()
        except (EOFError, OSError) as error:
            raise _Ended from error
        return answer[:1], answer[1:]

    def kill(self) -> None:
        """End the process."""
        self._line.close()
        self._process.kill()
        self._process.wait()


# Starting a process takes a quarter of a second, so it is kept for the next file.
IDLE: list[RowReader] = []


@atexit.register
def end_idle() -> None:
    """End the processes that are not in use."""
    while IDLE:
        IDLE.pop().kill()


def batches(
    file: ParquetFooter, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of these row groups, in batches of at most 64 Ki rows and about 16 MB.

    ``columns`` are top-level names; those that the file lacks are left out. Raises `SourceError` if
    a row needs more than the limit.
    """
    present = set(file.schema_arrow.names)
    wanted = tuple(name for name in columns if name in present)
    size = file.stored.size
    order = process.DecodeCommand(file.footer, size, tuple(groups), wanted, allowed(size))
    yield from decoded(file.stored, order)


def decoded(file: StoredFile, order: process.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a command asks for.

    Raises `SourceError` if a row needs more than the limit.
    """
    try:
        yield from _answers(file, order)
    except _Ended as error:
        raise SourceError(
            f"{file.where}: the process that read it ended, probably because"
            f" {order.allowed >> 20} MiB of memory are not available; rewrite the file with smaller"
            " row groups and pages, or read fewer columns"
        ) from error


def ranges(file: ParquetFooter, name: str) -> list[Range]:
    """Return the column's range in each row group, from the footer.

    Raises `SourceError` if the footer contradicts itself.
    """
    size = file.stored.size
    order = process.DecodeCommand(file.footer, size, (), (name,), allowed(size), "ranges")
    try:
        return [one for batch in _answers(file.stored, order) for one in from_batch(batch)]
    except _Ended as error:
        why = f"its footer contradicts itself about column {name}"
        raise file.stored.damaged(why) from error


def _answers(file: StoredFile, order: process.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the answers of a process; of a second one if the first ends before it is done.

    The system may have ended it for its memory, which no file causes. Raises `_Ended` after the
    second one, and `SourceError` if a process refuses the file.
    """
    done = 0
    try:
        for batch in _answers_of_one(file, order):
            yield batch
            done += batch.num_rows
    except _Ended:
        end_idle()  # for their memory
        passed = 0
        for batch in _answers_of_one(file, order):
            behind = min(batch.num_rows, max(0, done - passed))
            passed += batch.num_rows
            if behind < batch.num_rows or not batch.num_rows:
                yield batch.slice(behind)


def _answers_of_one(file: StoredFile, order: process.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the answers of one process. Raises `_Ended` and `SourceError`."""
    reader = IDLE.pop() if IDLE else RowReader()
    is_idle = False
    try:
        # As a tuple: the process runs as a script, so there this class is another one.
        reader.send(pickle.dumps(tuple(order)))
        while (answer := reader.receive())[0] != process.END:
            kind, content = answer
            if kind == process.READ:
                reader.send(file.source.read_range(file.path, *process.RANGE.unpack(content)))
            elif kind == process.BATCH:
                with pa.ipc.open_stream(content) as stream:
                    yield from stream
            elif kind == process.DAMAGED:
                raise file.damaged(content.decode(errors="replace"))
            else:
                raise SourceError(f"{file.where}: {content.decode(errors='replace')}")
        is_idle = answer[1] == process.MORE
    finally:
        if is_idle:
            IDLE.append(reader)
        else:
            reader.kill()


def allowed(size: int) -> int:
    """Return how much memory the process may use for a file of so many bytes.

    A small file has a fixed limit, whatever its footer says; a larger file may use more.
    """
    return min(TABLE_READER_MOST_BYTES, TABLE_READER_BYTES + TABLE_READER_PER_BYTE * size)

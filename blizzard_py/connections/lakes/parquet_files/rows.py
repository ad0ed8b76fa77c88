"""The rows of a Parquet file in bounded batches, whatever the file holds.

Another process decodes them (`process`); here its orders are given and its questions
answered.
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

from blizzard_core.bounds import TABLE_READER_BYTES, TABLE_READER_MOST_BYTES, TABLE_READER_PER_BYTE
from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.parquet_files import process
from blizzard_py.connections.lakes.parquet_files.statistics import from_batch
from blizzard_py.connections.lakes.table_file import TableFile, damaged
from blizzard_py.connections.lakes.window import Range


class _Ended(Exception):
    """The process ended before it had answered."""


class RowReader:
    """The process, and the line to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
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
        self._line = Connection(ours.detach())

    def send(self, content: bytes) -> None:
        """Send an order, or the bytes that it asked for."""
        try:
            self._line.send_bytes(content)
        except OSError as error:
            raise _Ended from error

    def receive(self) -> tuple[bytes, bytes]:
        """Return what kind of answer, and its content."""
        try:
            answer = self._line.recv_bytes()
        except (EOFError, OSError) as error:
            raise _Ended from error
        return answer[:1], answer[1:]

    def kill(self) -> None:
        """End it."""
        self._line.close()
        self._process.kill()
        self._process.wait()


# Starting one takes a quarter of a second, so it is kept for the next file.
IDLE: list[RowReader] = []


@atexit.register
def end_idle() -> None:
    """End the processes that nobody uses at the moment."""
    while IDLE:
        IDLE.pop().kill()


def batches(
    file: TableFile, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of these row groups, of at most 64 Ki rows and about 16 MB.

    ``columns`` are top-level names; those that the file lacks are left out. Raises `SourceError`
    for a file of which a row takes more than its limit.
    """
    present = set(file.schema_arrow.names)
    wanted = tuple(name for name in columns if name in present)
    order = process.DecodeCommand(
        file.metadata, file.size, tuple(groups), wanted, allowed(file.size)
    )
    try:
        yield from _answers(file, order)
    except _Ended as error:
        raise SourceError(
            f"{file.where}: the process that read it ended, most likely for want of the"
            f" {order.allowed >> 20} MiB that it may take; write the file anew with smaller row"
            " groups and pages, or read it with fewer columns"
        ) from error


def ranges(file: TableFile, name: str) -> list[Range]:
    """Return what the footer says of a column, for each row group.

    Raises `SourceError` for no sense.
    """
    order = process.DecodeCommand(
        file.metadata, file.size, (), (name,), allowed(file.size), is_footer=True
    )
    try:
        return [told for batch in _answers(file, order) for told in from_batch(batch)]
    except _Ended as error:
        raise damaged(file.where, f"its footer contradicts itself about column {name}") from error


def _answers(file: TableFile, order: process.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield what the process answers. Raises `_Ended`, and `SourceError` for what it refuses."""
    reader = IDLE.pop() if IDLE else RowReader()
    is_idle = False
    try:
        # As a tuple: to the process, which is a script, our class is another one.
        reader.send(pickle.dumps(tuple(order)))
        while (answer := reader.receive())[0] != process.END:
            kind, content = answer
            if kind == process.READ:
                reader.send(file.storage.read_range(file.path, *process.RANGE.unpack(content)))
            elif kind == process.BATCH:
                with pa.ipc.open_stream(content) as stream:
                    yield from stream
            elif kind == process.DAMAGED:
                raise damaged(file.where, content.decode(errors="replace"))
            else:
                raise SourceError(f"{file.where}: {content.decode(errors='replace')}")
        is_idle = answer[1] == process.MORE
    finally:
        if is_idle:
            IDLE.append(reader)
        else:
            reader.kill()


def allowed(size: int) -> int:
    """Return what the process may take for a file of so many bytes.

    What a kilobyte becomes is limited whatever it says; a file that is large itself may cost what
    it is worth.
    """
    return min(TABLE_READER_MOST_BYTES, TABLE_READER_BYTES + TABLE_READER_PER_BYTE * size)

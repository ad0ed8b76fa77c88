"""Rows of a Parquet file read in a process that may not have more than a little memory.

For files of which it is not certain what a batch may take. Most are honest: long lists in wide
tables, encodings that a header says little of. They take longer and come all the same. Of others
the process has not the memory, and they are refused; the task or daemon that asked has lost
nothing. It is given no access to a store: what it reads it asks its parent for.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.bounds import (
    TABLE_APART_BYTES,
    TABLE_APART_MOST_BYTES,
    TABLE_APART_PER_BYTE,
    TABLE_ROW_BYTES,
)
from blizzard_core.errors import SourceError
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.connections.lakes.watched_file import WatchedFile, damaged

_ROWS = 1024
_LESS = 32
_PIECES_BYTES = 32 << 20
_LEAST_PIECE, _LARGEST_PIECE = 16 << 10, 1 << 20
_SENT_BYTES = 16 << 20
_ANY_SIZE = 1 << 62  # not known, and not asked for: the footer is
_LENGTH, _RANGE = struct.Struct(">Q"), struct.Struct(">QQ")
# Together they would take as many times as much.
_ONE_AT_A_TIME = threading.Lock()
# What the process says.
_READ, _BATCH, _DAMAGED, _TOO_LARGE, _END = b"R", b"B", b"D", b"L", b"."


@dataclass(frozen=True, slots=True)
class Order:
    """Rows of these groups, without the first ``done``, in ``allowed`` bytes.

    ``column`` made it necessary.
    """

    metadata: Any
    groups: tuple[int, ...]
    columns: tuple[str, ...]
    done: int
    column: str
    allowed: int


def allowed(stored: int) -> int:
    """What the process may take for a file whose largest row group stores so many bytes.

    What a kilobyte becomes is bounded whatever it says; a file that is large itself may cost what
    it is worth.
    """
    return min(TABLE_APART_MOST_BYTES, TABLE_APART_BYTES + TABLE_APART_PER_BYTE * stored)


def apart(file: WatchedFile, order: Order) -> Iterator[pa.RecordBatch]:
    """The rows. Raises `SourceError` if they take more memory than there is for them."""
    with _ONE_AT_A_TIME:
        yield from _started(file, order)


def _started(file: WatchedFile, order: Order) -> Iterator[pa.RecordBatch]:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
    }
    process = subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    )
    try:
        yield from _answers(process, file, order)
    except BrokenPipeError as error:
        raise _too_large(file, order, "the process that read it ended") from error
    finally:
        process.kill()
        cast("BinaryIO", process.stdout).close()
        process.communicate()


def _answers(
    process: subprocess.Popen[bytes], file: WatchedFile, order: Order
) -> Iterator[pa.RecordBatch]:
    to, come = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
    _send(to, pickle.dumps(order))
    while (kind := come.read(1)) != _END:
        if kind == _READ:
            begin, size = _RANGE.unpack(come.read(_RANGE.size))
            if size > order.allowed:
                raise _too_large(file, order, f"a page of {size >> 20:,} MB")
            file.seek(begin)
            _send(to, file.read(size))
        elif kind == _BATCH:
            with pa.ipc.open_stream(pa.PythonFile(come, mode="r")) as stream:
                yield from stream
        elif kind == _DAMAGED:
            raise damaged(file.where, _received(come).decode(errors="replace"))
        else:
            raise _too_large(file, order, "one row is too large, or a page of it")


def _too_large(file: WatchedFile, order: Order, why: str) -> SourceError:
    column = f"column {order.column}" if order.column else "a column"
    return SourceError(
        f"{file.where}: {column} cannot be read in {order.allowed >> 20} MiB: {why}; write the"
        f" file anew with rows of less than {TABLE_ROW_BYTES >> 20} MiB and pages of about a"
        " megabyte, or read it without that column"
    )


def _send(stream: BinaryIO, content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _received(stream: BinaryIO) -> bytes:
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    return stream.read(length)


class _Parent:
    """Who has the file's bytes."""

    def __init__(self, come: BinaryIO, to: BinaryIO) -> None:
        self._come, self._to = come, to

    def read_range(self, path: str, start: int, end: int) -> bytes:  # noqa: ARG002  # there is one file
        self._to.write(_READ + _RANGE.pack(start, end - start))
        self._to.flush()
        return _received(self._come)


def _rows(file: pq.ParquetFile, order: Order) -> Iterator[pa.RecordBatch]:
    """In batches as large as there is memory for. Raises `MemoryError` if one row is too large."""
    rows, done, columns = _ROWS, order.done, list(order.columns)
    for group in order.groups:
        while True:
            passed = 0
            try:
                for batch in file.iter_batches(
                    batch_size=rows, row_groups=[group], columns=columns, use_threads=False
                ):
                    behind = min(batch.num_rows, max(0, done - passed))
                    passed += batch.num_rows
                    if behind < batch.num_rows:
                        yield batch.slice(behind).select(columns)
                        done = passed
                break
            except (MemoryError, pa.ArrowMemoryError):
                if rows == 1:
                    raise
            rows = max(1, rows // _LESS)
        done = 0


def _sent(to: BinaryIO, batch: pa.RecordBatch) -> None:
    pieces = -(-batch.nbytes // _SENT_BYTES)
    rows = max(1, -(-batch.num_rows // max(1, pieces)))
    for start in range(0, batch.num_rows, rows):
        to.write(_BATCH)
        piece = batch.slice(start, rows)
        with pa.ipc.new_stream(pa.PythonFile(to, mode="w"), piece.schema) as stream:
            stream.write_batch(piece)
    to.flush()


def _serve(come: BinaryIO, to: BinaryIO) -> None:
    order: Order = pickle.loads(_received(come))  # noqa: S301  # our own parent's
    piece = _PIECES_BYTES // max(1, order.metadata.num_columns)
    file = pq.ParquetFile(
        pa.PythonFile(RangeFile(_Parent(come, to), "", _ANY_SIZE), mode="r"),
        metadata=order.metadata,
        pre_buffer=False,
        buffer_size=max(_LEAST_PIECE, min(_LARGEST_PIECE, piece)),
    )
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + order.allowed,) * 2)
    for batch in _rows(file, order):
        _sent(to, batch)


def main() -> None:
    """Serve the parent; what anything prints goes to stderr."""
    to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _serve(sys.stdin.buffer, to)
        to.write(_END)
    except (MemoryError, pa.ArrowMemoryError):
        to.write(_TOO_LARGE)
    except (pa.ArrowException, OSError) as error:
        to.write(_DAMAGED)
        _send(to, f"{type(error).__name__}: {error}".encode())
    to.flush()


if __name__ == "__main__":
    main()

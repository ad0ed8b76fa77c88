"""Decoding of Parquet rows in a process with little memory.

A file of kilobytes may decode to gigabytes: its footer only claims what its pages hold. And pyarrow
ends the process that reads the statistics of a damaged footer. So another process does both. The
operating system limits its memory; the task or daemon that waits for it loses nothing. The process
has no access to a store: it requests the bytes from its parent.

It serves one file after the other, since starting it takes a quarter of a second. A refused file,
or one that leaves memory in use, ends the process: no file affects another one.
"""

from __future__ import annotations

import pickle
import resource
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.limits import TABLE_ROW_BYTES
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.formats.parquet.statistics import as_batch, group_ranges
from blizzard_py.slices.digests import with_leaves

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
# The kinds of answer, and the format of a requested range.
READ, BATCH, DAMAGED, REFUSED, END, MORE = b"R", b"B", b"D", b"L", b".", b"+"
RANGE = struct.Struct(">QQ")
_FEWER = 32
# Each column is read in pieces; so much of all columns together is held.
_PIECES_BYTES = 32 << 20
_LEAST_PIECE, _LARGEST_PIECE = 16 << 10, 1 << 20
# So much may be left of earlier files; the limit is in addition to it.
_KEPT_BYTES = 64 << 20
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_VIEW_IDS = frozenset(kind.id for kind in _VIEWS)


class DecodeCommand(NamedTuple):
    """The columns to decode in these row groups of a file, within ``allowed`` bytes.

    ``is_footer``: return no rows, but the footer's ranges of the one column.
    """

    metadata: Any
    size: int
    groups: tuple[int, ...]
    columns: tuple[str, ...]
    allowed: int
    is_footer: bool = False


class _Refused(Exception):
    """A row is too large."""


class _Parent:
    """The file's bytes, requested from the parent process."""

    def __init__(self, line: Connection, most: int) -> None:
        self._line, self._most = line, most

    def read_range(self, path: str, start: int, end: int) -> bytes:  # noqa: ARG002  # there is one file
        if end - start > self._most:
            raise MemoryError
        self._line.send_bytes(READ + RANGE.pack(start, end))
        return self._line.recv_bytes()


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split into batches of about 16 MB, without views. Raises `_Refused` for a row too large."""
    batch = _without_views(batch)
    pieces = -(-batch.nbytes // BATCH_BYTES)
    rows = max(1, -(-batch.num_rows // max(1, pieces)))
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if piece.nbytes > TABLE_ROW_BYTES and rows == 1:
            raise _Refused(
                f"a row of {piece.nbytes >> 20:,} MB, the most of it in column"
                f" {max(piece.schema.names, key=lambda name: piece.column(name).nbytes)}; rows of"
                f" more than {TABLE_ROW_BYTES >> 20} MiB are not read: rewrite the file without"
            )
        yield piece


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return texts in the older layout: Arrow cannot take some rows of a view column."""
    kinds = batch.schema.types
    plain = [
        _plain_type(kind) if kind.num_fields or kind.id in _VIEW_IDS else kind for kind in kinds
    ]
    if plain == kinds:
        return batch
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, plain, strict=True)]
    return batch.cast(pa.schema(fields))


@lru_cache(4096)  # a table may have a thousand columns, and thousands of batches
def _plain_type(kind: pa.DataType) -> pa.DataType:
    return with_leaves(kind, lambda leaf: _VIEWS.get(leaf, leaf))


def _decode(file: pq.ParquetFile, order: DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield batches as large as memory allows. Raises `_Refused` if one row is too large."""
    columns = list(order.columns)
    for group in order.groups:
        about, done = file.metadata.row_group(group), 0
        expected = max(1, about.total_byte_size // max(1, about.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // expected))
        while True:
            passed = 0
            try:
                for batch in _group_batches(file, group, columns, rows):
                    behind = min(batch.num_rows, max(0, done - passed))
                    passed += batch.num_rows
                    if behind < batch.num_rows:
                        yield batch.slice(behind).select(columns)
                        done = passed
                break
            except (MemoryError, pa.ArrowMemoryError):
                if rows == 1:
                    raise _Refused(_too_large(file, group, order, done)) from None
            rows = max(1, rows // _FEWER)


def _group_batches(
    file: pq.ParquetFile, group: int, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=rows, row_groups=[group], columns=columns, use_threads=False
    )
    return found


def _too_large(file: pq.ParquetFile, group: int, order: DecodeCommand, done: int) -> str:
    """Return an error text that names the column whose row ``done`` cannot be decoded alone."""
    which = f"its {len(order.columns)} columns together"
    for name in order.columns:
        passed = 0
        try:
            for batch in _group_batches(file, group, [name], 1):
                passed += batch.num_rows
                if passed > done:
                    break
        except (MemoryError, pa.ArrowMemoryError):
            which = f"column {name}"
            break
    return (
        f"{which} cannot be read in {order.allowed >> 20} MiB: one row or one page is too large;"
        f" rewrite the file with rows of less than {TABLE_ROW_BYTES >> 20} MiB and pages of"
        " about a megabyte, or read fewer columns of it"
    )


def _send(line: Connection, batch: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    sink.write(BATCH)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    line.send_bytes(sink.getvalue())


def _serve(line: Connection, order: DecodeCommand) -> None:
    piece = _PIECES_BYTES // max(1, len(order.columns))
    source = RangeFile(_Parent(line, order.allowed), "", order.size)
    file = pq.ParquetFile(
        pa.PythonFile(source, mode="r"),
        metadata=order.metadata,
        pre_buffer=False,
        buffer_size=max(_LEAST_PIECE, min(_LARGEST_PIECE, piece)),
    )
    _limit(_address_space_bytes() + order.allowed)
    if order.is_footer:
        _send(line, as_batch(group_ranges(file, *order.columns)))
        return
    for batch in _decode(file, order):
        for each in cut(batch):
            _send(line, each)


def _answer(line: Connection, order: DecodeCommand, before: int) -> bool:
    """Serve one file and send how it ended; return whether another one may be served."""
    try:
        _serve(line, order)
    except _Refused as error:
        line.send_bytes(REFUSED + str(error).encode())
        return False
    except (pa.ArrowException, OSError, UnicodeError) as error:
        line.send_bytes(DAMAGED + f"{type(error).__name__}: {error}".encode())
        return False
    pa.default_memory_pool().release_unused()
    is_small = _address_space_bytes() - before <= _KEPT_BYTES
    line.send_bytes(END + (MORE if is_small else b""))
    return is_small


def _address_space_bytes() -> int:
    """Return the size of this process's address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _limit(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def main(descriptor: int) -> None:
    """Serve commands of the parent until it closes the line, or until one leaves memory in use."""
    with Connection(descriptor) as line:
        before, goes_on = _address_space_bytes(), True
        while goes_on:
            try:
                request = line.recv_bytes()
            except EOFError:
                return
            goes_on = _answer(line, DecodeCommand(*pickle.loads(request)), before)  # noqa: S301  # our own parent's


if __name__ == "__main__":
    main(int(sys.argv[1]))

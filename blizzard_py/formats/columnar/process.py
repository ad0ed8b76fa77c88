"""Decoding of Parquet and ORC rows in a process with little memory.

A file of kilobytes may decode to gigabytes: its footer only claims what its pages hold. And pyarrow
ends the process that reads the statistics of a damaged footer. So another process does both. The
operating system limits its memory; the task or daemon that waits for it loses nothing. The process
has no access to a store: it requests the bytes from its parent.

It serves one file after the other, since starting it takes a quarter of a second. A refused file,
or one that leaves memory in use, ends the process: no file affects another one.
"""

from __future__ import annotations

import os
import pickle
import resource
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.limits import TABLE_ROW_BYTES
from blizzard_core.storage.range_file import RangeFile
from blizzard_core.table.row_groups import file_without_pages
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_py.formats.columnar.int96 import with_bytes
from blizzard_py.formats.columnar.messages import (
    BATCH,
    DAMAGED,
    END,
    MORE,
    RANGE,
    READ,
    REFUSED,
    DecodeCommand,
    Line,
)
from blizzard_py.formats.columnar.orc_footer import has_julian_dates, inner_paths
from blizzard_py.formats.columnar.statistics import as_batch, group_ranges
from blizzard_py.formats.nested_arrays import plain_array

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
# The mark of an ORC schema whose file has Julian dates.
JULIAN = b"julian"
_BEYOND_NANOSECONDS = "out of range for nanosecond"
_NO_MEMORY = "bad_alloc"
_FEWER = 32
# A row group of so many bytes is read with a few requests, neighbouring columns together. Of a
# larger one each column is read in pieces; so much of all columns together is held.
_WHOLE_BYTES = 128 << 20
_PIECES_BYTES = 32 << 20
_LEAST_PIECE, _LARGEST_PIECE = 16 << 10, 1 << 20
# So much may be left of earlier files; the limit is in addition to it.
_KEPT_BYTES = 64 << 20


class _Refused(Exception):
    """A row is too large, or a footer."""


@contextmanager
def _unbroken_messages() -> Iterator[None]:
    """End this process if memory ends within a message: the next would be read as its rest."""
    try:
        yield
    except MemoryError:
        os._exit(1)


class _Parent:
    """The parent process. ORC's reader requests bytes in a thread of its own."""

    def __init__(self, line: Line, most: int) -> None:
        self._line, self._most = line, most
        self._lock = Lock()

    def read_range(self, start: int, end: int) -> bytes:
        """Return bytes of the file. Raises `MemoryError` before it requests any."""
        if end - start > self._most:
            raise MemoryError
        bytes(end - start)  # fails here if there is no memory for the answer
        with self._lock, _unbroken_messages():
            self._line.send(READ, RANGE.pack(start, end))
            return self._line.receive()[1]

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        with self._lock, _unbroken_messages():
            self._line.send(BATCH, memoryview(sink.getvalue()))


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split into batches of about 16 MB, without views. Raises `_Refused` for a row too large."""
    batch = _plain(batch)
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


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return values in their older layouts: Arrow cannot take some rows of a view column."""
    columns = [plain_array(column) for column in batch.columns]
    if [column.type for column in columns] == batch.schema.types:
        return batch
    fields = [
        field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class _Parquet:
    """A Parquet file, opened for a command. Values of INT96 are read as they are stored."""

    def __init__(self, opened: Callable[[], RangeFile], order: DecodeCommand) -> None:
        piece = _PIECES_BYTES // max(1, len(order.columns))
        metadata = pq.read_metadata(file_without_pages(order.footer))
        _check_total(metadata)
        if order.kind == "parquet" and _has_int96(metadata.schema):
            try:
                footer = with_bytes(order.footer)
            except (SchemaMismatch, IndexError) as error:
                raise pa.ArrowInvalid(f"its footer is damaged: {error}") from error
            metadata = pq.read_metadata(file_without_pages(footer))
        self.metadata = metadata
        self.file = pq.ParquetFile(
            pa.PythonFile(opened(), mode="r"),
            metadata=metadata,
            pre_buffer=_group_bytes(metadata, order) <= min(_WHOLE_BYTES, order.allowed // 4),
            buffer_size=max(_LEAST_PIECE, min(_LARGEST_PIECE, piece)),
            page_checksum_verification=True,
        )

    def batches(self, group: int, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield a row group's rows."""
        names = list(columns)
        for batch in self.file.iter_batches(
            batch_size=rows, row_groups=[group], columns=names, use_threads=False
        ):
            yield batch.select(names)  # a name with a dot selects a field of a struct, too


def _group_bytes(about: pq.FileMetaData, order: DecodeCommand) -> int:
    """Return the most bytes that a row group may have, without a look at its columns.

    Those of a damaged footer would end the process.
    """
    groups = (about.row_group(number).total_byte_size for number in order.groups)
    return min(order.size, max(groups, default=0))


def _has_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))


def _check_total(about: pq.FileMetaData) -> None:
    """Raise `_Refused` if the footer contradicts itself: some of the rows would be missing."""
    rows = sum(about.row_group(group).num_rows for group in range(about.num_row_groups))
    if rows != about.num_rows:
        raise _Refused(
            f"its footer says {about.num_rows:,} rows, but {rows:,} in its row groups; write the"
            " file again"
        )


def _decode(file: _Parquet, order: DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield batches as large as memory allows.

    Raises `_Refused` if one row is too large, or if a row group has other rows than the footer
    says: pyarrow ends quietly where pages end.
    """
    for group in order.groups:
        about, done = file.metadata.row_group(group), 0
        expected = max(1, about.total_byte_size // max(1, about.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // expected))
        while True:
            try:
                for batch in rows_behind(file.batches(group, order.columns, rows), done):
                    yield batch
                    done += batch.num_rows
                break
            except (MemoryError, pa.ArrowMemoryError):
                if rows == 1:
                    raise _Refused(_too_large(file, group, order, done)) from None
            rows = max(1, rows // _FEWER)
        if done != about.num_rows:
            raise _Refused(
                f"row group {group + 1} has {about.num_rows:,} rows by the footer, but {done:,} can"
                " be read; write the file again"
            )


def rows_behind(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield what is behind the first ``count`` rows, also batches without rows there."""
    for batch in batches:
        passed = min(batch.num_rows, count)
        count -= passed
        if passed < batch.num_rows or not batch.num_rows:
            yield batch.slice(passed)


def _serve_orc(parent: _Parent, order: DecodeCommand) -> None:
    """Send the rows of an ORC file. Raises `_Refused` if they are others than its footer says."""
    orc = import_module("pyarrow.orc")
    file = orc.ORCFile(pa.PythonFile(RangeFile(parent.read_range, order.size), mode="r"))
    if order.kind == "orc schema":
        notes = {JULIAN: b""} if has_julian_dates(file) else None
        parent.send(pa.RecordBatch.from_pylist([], file.schema.with_metadata(notes)))
        return
    rows = 0
    try:
        for batch in _orc_batches(parent, file, order):
            rows += batch.num_rows
            for each in cut(batch):
                parent.send(each)
    except (MemoryError, pa.ArrowMemoryError):
        raise _Refused(
            f"its rows cannot be read in {order.allowed >> 20} MiB; write the file again with"
            " smaller stripes"
        ) from None
    except pa.ArrowInvalid as error:
        if _BEYOND_NANOSECONDS not in str(error):
            raise
        raise _Refused(
            "has times outside the years 1677 to 2262, which cannot be read from ORC; write them"
            " as text, or the file as Parquet"
        ) from None
    if rows != file.nrows:
        raise _Refused(
            f"its footer says {file.nrows:,} rows, but {rows:,} can be read; write the file again"
        )


def _orc_batches(parent: _Parent, file: Any, order: DecodeCommand) -> Iterator[pa.RecordBatch]:
    names = list(order.columns)
    if not set(inner_paths(file.schema)).isdisjoint(names):
        # Arrow selects by such paths, so it would read the field instead of the column.
        for stripe in range(file.nstripes):
            yield file.read_stripe(stripe).select(names)
        return
    # A scanner needs a third of the memory of whole stripes.
    ds = import_module("pyarrow.dataset")
    source = pa.PythonFile(RangeFile(parent.read_range, order.size), mode="r")
    yield from (
        ds.OrcFileFormat()
        .make_fragment(source)
        .to_batches(
            columns=names,
            batch_size=BATCH_ROWS,
            use_threads=False,
            batch_readahead=0,
            fragment_readahead=0,
        )
    )


def _too_large(file: _Parquet, group: int, order: DecodeCommand, done: int) -> str:
    """Return an error text that names the column whose row ``done`` cannot be decoded alone."""
    which = f"its {len(order.columns)} columns together"
    for name in order.columns:
        passed = 0
        try:
            for batch in file.batches(group, [name], 1):
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


def _check_footer(order: DecodeCommand) -> None:
    try:
        pq.read_metadata(file_without_pages(order.footer)).schema.to_arrow_schema()
    except (MemoryError, OSError) as error:
        if not isinstance(error, MemoryError) and _NO_MEMORY not in str(error):
            raise
        raise _Refused(too_large_footer(order)) from None


def too_large_footer(order: DecodeCommand) -> str:
    """Return the error text for a footer that cannot be decoded in the memory of its command."""
    return (
        f"its footer of {len(order.footer):,} bytes takes more than {order.allowed >> 20} MiB of"
        " memory; write the file again with fewer columns, or larger row groups"
    )


def _serve(line: Line, order: DecodeCommand) -> None:
    parent = _Parent(line, order.allowed)
    _limit(_address_space_bytes() + order.allowed)
    if order.kind == "footer":
        _check_footer(order)
        return
    if order.kind.startswith("orc"):
        _serve_orc(parent, order)
        return
    file = _Parquet(partial(RangeFile, parent.read_range, order.size), order)
    _limit(_address_space_bytes() + order.allowed)
    if order.kind == "ranges":
        parent.send(as_batch(group_ranges(file.file, *order.columns)))
        return
    for batch in _decode(file, order):
        for each in cut(batch):
            parent.send(each)


def _answer(line: Line, order: DecodeCommand, before: int) -> bool:
    """Serve one file and send how it ended; return whether another one may be served."""
    try:
        _serve(line, order)
    except _Refused as error:
        line.send(REFUSED, str(error).encode())
        return False
    except (pa.ArrowException, OSError, UnicodeError) as error:
        line.send(DAMAGED, f"{type(error).__name__}: {error}".encode())
        return False
    grown = _address_space_bytes() - before
    if grown > _KEPT_BYTES // 2:  # memory that is given back after each small file costs more
        pa.default_memory_pool().release_unused()
        grown = _address_space_bytes() - before
    is_small = grown <= _KEPT_BYTES
    line.send(END, MORE if is_small else b"")
    return is_small


def _address_space_bytes() -> int:
    """Return the size of this process's address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _limit(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def main(descriptor: int) -> None:
    """Serve commands of the parent until it closes the line, or until one leaves memory in use."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with socket.socket(fileno=descriptor) as end:
        line = Line(end)
        before, goes_on = _address_space_bytes(), True
        while goes_on:
            try:
                request = line.receive()[1]
            except (EOFError, ConnectionError):  # the parent is gone, maybe with answers unread
                return
            order = DecodeCommand(*pickle.loads(request))  # noqa: S301  # our own parent's
            if order.kind.startswith("orc"):  # what no Parquet file needs to wait for
                without = _address_space_bytes()
                import_module("pyarrow.dataset")
                import_module("pyarrow.orc")
                before += _address_space_bytes() - without
            try:
                goes_on = _answer(line, order, before)
            except (EOFError, ConnectionError):  # the parent no longer waits for the answer
                return


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Tables to staged Parquet files: buffered per directory, rolled by size.

**Only what `OutputSet.close` returns counts.** A Parquet stream that is left
by an exception or collected as garbage may still publish a valid file with a
part of its rows, so nobody may conclude from an object's existence that it is
complete.

Memory: at most `BUFFER_BYTES` of Arrow data wait in an output set; the fullest
buffer becomes a row group when there is more.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_py.core.config import ParquetCompression
from blizzard_py.core.model import StagedOutput
from blizzard_py.core.storage import Storage, join
from blizzard_py.core.store_object import wrap_error

ROW_GROUP_BYTES = 64 << 20
BUFFER_BYTES = 64 << 20
# Each open file holds the upload buffer of its store.
MAX_OPEN_FILES = 32

_SAMPLE_ROWS = 4096

OUTPUT_ID_KEY = "blizzard.output_id"


@dataclass(slots=True)
class OutputNames:
    """Names of one task attempt's outputs, unique over all attempts of all batches."""

    staging: str
    output_prefix: str
    task: int
    attempt_id: int
    _next: int = field(default=0, init=False)

    def take(self) -> tuple[str, str]:
        """The next staged path and output id."""
        index, self._next = self._next, self._next + 1
        staged = join(self.staging, f"{self.task:05d}-{self.attempt_id}-{index:04d}.parquet")
        return staged, f"{self.output_prefix}/{self.task}-{self.attempt_id}/{index}"


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """How files are made: ``file_bytes`` is when a file is full, as written."""

    schema: pa.Schema
    compression: ParquetCompression
    file_bytes: int


class OutputSet:
    """Parquet files that are reported together or not at all.

    Errors of the sink come as `StorageError` and name its URI: they are nobody's
    fault among the source files, so they end the task.
    """

    def __init__(self, sink: Storage, names: OutputNames, form: ParquetFormat) -> None:
        self._sink = sink
        self._names = names
        self._form = form
        self._row_group_bytes = min(ROW_GROUP_BYTES, form.file_bytes)
        self._buffers: dict[str, _Buffer] = {}
        self._files: dict[str, _File] = {}
        self._done: list[StagedOutput] = []
        self._started: list[str] = []

    def add(self, partition: str, table: pa.Table) -> None:
        """Rows for one directory; they may stay in memory until `close`."""
        for piece in _sliced(table, self._row_group_bytes):
            buffer = self._buffers.setdefault(partition, _Buffer())
            buffer.append(piece)
            if buffer.bytes >= self._row_group_bytes:
                self._write(partition)
        while sum(b.bytes for b in self._buffers.values()) > BUFFER_BYTES:
            self._write(max(self._buffers, key=lambda name: self._buffers[name].bytes))

    def close(self) -> list[StagedOutput]:
        """Write what is left, make everything durable, and report it."""
        for partition in sorted(self._buffers.keys() | self._files.keys()):
            if partition in self._buffers:
                self._write(partition)
            if partition in self._files:
                self._finish(partition)
        return self._done

    def discard(self) -> None:
        """Remove everything written so far; what cannot be removed stays unreported."""
        self._buffers.clear()
        for file in self._files.values():
            file.abandon()
        self._files.clear()
        for staged in self._started:
            with contextlib.suppress(Exception):  # the task's own error matters more
                self._sink.delete(staged)

    def _write(self, partition: str) -> None:
        """One row group out of the partition's buffer."""
        table = self._buffers.pop(partition).table()
        if partition not in self._files:
            if len(self._files) >= MAX_OPEN_FILES:
                self._finish(max(self._files, key=lambda name: self._files[name].sink.written))
            staged, output_id = self._names.take()
            self._started.append(staged)
            self._files[partition] = _File(self._sink, self._form, staged, output_id, table)
        file = self._files[partition]
        file.write(table)
        if file.sink.written >= self._form.file_bytes:
            self._finish(partition)

    def _finish(self, partition: str) -> None:
        file = self._files[partition]
        file.finish()
        del self._files[partition]  # until here `discard` closes it
        self._sink.sync(file.staged)
        self._done.append(
            StagedOutput(file.staged, partition, file.rows, file.sink.written, file.output_id)
        )


class _Buffer:
    """Tables of one directory that wait for a row group."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.bytes = 0

    def append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self.bytes += table.nbytes

    def table(self) -> pa.Table:
        return pa.concat_tables(self._tables)


class _File:
    """One Parquet file being written."""

    def __init__(
        self, storage: Storage, form: ParquetFormat, staged: str, output_id: str, sample: pa.Table
    ) -> None:
        self.staged = staged
        self.output_id = output_id
        self.rows = 0
        self.sink = _Sink(storage.open_output(staged), f"{storage.uri}/{staged}")
        self._writer = pq.ParquetWriter(
            self.sink,
            form.schema,
            compression=form.compression,
            use_dictionary=list(_low_cardinality(sample)) or False,
            write_statistics=True,
        )
        self._writer.add_key_value_metadata({OUTPUT_ID_KEY: output_id})

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows

    def finish(self) -> None:
        self._writer.close()
        self.sink.close()

    def abandon(self) -> None:
        # Whatever this leaves behind is not reported.
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(Exception):
            self.sink.close()


def _sliced(table: pa.Table, limit: int) -> Iterator[pa.Table]:
    """The rows in slices of about ``limit`` bytes; none for an empty table."""
    rows = max(1, table.num_rows * limit // max(1, table.nbytes))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _low_cardinality(table: pa.Table) -> Iterator[str]:
    """Columns whose values repeat, judged by the first rows: the others gain no dictionary."""
    sample = table.slice(0, _SAMPLE_ROWS)
    for name in sample.schema.names:
        column = sample.column(name)
        if pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
            continue  # one bit a value already, or several columns
        if 2 * pc.count_distinct(column).as_py() <= sample.num_rows:
            yield name


class _Sink(io.RawIOBase):
    """Counts bytes and turns whatever a store's stream raises into a `StorageError`."""

    def __init__(self, stream: BinaryIO, uri: str) -> None:
        self._stream = stream
        self._uri = uri
        self.written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._stream.write(data)
        except Exception as error:  # store clients share no base class
            raise wrap_error(self._uri, error) from error
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._stream.close()
        except Exception as error:  # see write
            raise wrap_error(self._uri, error) from error

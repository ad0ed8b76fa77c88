"""Rows to staged Parquet files: collected per directory, rolled by size.

**Only outputs that `OutputSet.close` returns count.** A Parquet stream that is left by an
exception, or collected as garbage, may still publish a valid file with a part of its rows. So an
existing object is not necessarily complete.

Memory: rows of all directories wait together until they fill a row group; then all of them leave
memory. A directory's part becomes a row group if it is large enough. Otherwise it waits on a local
disk for more rows, as do rows that must be sorted. However many directories there are, each gets as
few files as its rows fill.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from blizzard_core.storage.protocol import Storage, join
from blizzard_py.job import StagedOutput
from blizzard_py.kernels.write.parquet_file import ParquetFile, ParquetFormat, stored_bytes
from blizzard_py.kernels.write.partition import Codes, RowDirectories
from blizzard_py.kernels.write.sorting import SortedRun, merged_runs, order_of, reordered
from blizzard_py.kernels.write.spill import Spill

# Separates a directory from the slice of its rows, if slices are separate.
SLICE = "\0"
# Each open file has an upload buffer of its store.
MAX_OPEN_FILES = 32
# A part of a row group that is worth writing; smaller parts wait for more rows.
_WORTH_WRITING = 4
# Sorted rows may need so many times a file's size in memory, however well they compress.
_MAX_RATIO = 16


@dataclass(slots=True)
class StagedNames:
    """Names of one task attempt's outputs, unique over all attempts of all batches.

    ``task`` is the task's name within its job.
    """

    staging: str
    output_prefix: str
    task: str
    attempt_id: int
    _next: int = field(default=0, init=False)

    def take(self) -> tuple[str, str]:
        """Return the next staged path and output id."""
        index, self._next = self._next, self._next + 1
        staged = join(self.staging, f"{self.task}-{self.attempt_id}-{index:04d}.parquet")
        return staged, f"{self.output_prefix}/{self.task}-{self.attempt_id}/{index}"


@dataclass(slots=True)
class _Shelf:
    """One directory's rows on the local disk."""

    runs: list[SortedRun] = field(default_factory=list)
    bytes: int = 0  # their size in memory
    rows: int = 0


class OutputSet:
    """Parquet files that are reported together or not at all.

    Errors of the sink are raised as `StorageError` and name its URI. No source file caused them, so
    they end the task.
    """

    def __init__(
        self, sink: Storage, names: StagedNames, form: ParquetFormat, unit: str = ""
    ) -> None:
        """Prepare outputs for one slice, ``unit``.

        Without it directories may have a slice after `SLICE`.
        """
        self._sink = sink
        self._unit = unit
        self._names = names
        self._form = form
        self._row_group_bytes = min(form.layout.row_group_bytes, form.layout.file_bytes)
        self._directories: dict[str, int] = {}
        self._waiting: list[tuple[Codes | int, pa.Table]] = []
        self._waiting_bytes = 0
        self._spill: Spill | None = None
        self._shelves: dict[str, _Shelf] = {}
        self._files: dict[str, ParquetFile] = {}
        self._ratio: float | None = None  # of rows in memory to rows stored
        self._done: list[StagedOutput] = []
        self._started: list[str] = []

    def add(self, where: str | RowDirectories, table: pa.Table) -> None:
        """Add rows for one directory or several; they may stay in memory until `close`."""
        if isinstance(where, str):
            codes: Codes | int = self._number(where)
        else:
            codes = np.array([self._number(name) for name in where.directories], np.int64)[
                where.codes
            ]
        step = max(1, table.num_rows * self._row_group_bytes // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step)
            if self._waiting_bytes + piece.nbytes > self._row_group_bytes:
                for directory, rows in self._drained():
                    self._place(directory, rows)
            some = codes if isinstance(codes, int) else codes[start : start + step]
            self._waiting.append((some, piece))
            self._waiting_bytes += piece.nbytes

    def close(self) -> list[StagedOutput]:
        """Write the remaining rows, make everything durable, and return the report."""
        last = dict(self._drained())
        for directory in sorted(last.keys() | self._shelves.keys() | self._files.keys()):
            self._write_last(directory, last.pop(directory, None))
            if directory in self._files:
                self._finish(directory)
        if self._spill is not None:
            self._spill.close()
        return self._done

    def discard(self) -> None:
        """Remove everything written so far; files that cannot be removed stay unreported."""
        self._waiting.clear()
        if self._spill is not None:
            self._spill.close()
        for file in self._files.values():
            file.abandon()
        self._files.clear()
        for staged in self._started:
            with contextlib.suppress(Exception):  # the task's own error matters more
                self._sink.delete(staged)

    def _number(self, directory: str) -> int:
        return self._directories.setdefault(directory, len(self._directories))

    def _drained(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield all waiting rows by directory, sorted if required; none wait afterwards.

        The pieces share memory, and all of them leave it before more rows come.
        """
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        table = pa.concat_tables([rows for _, rows in waiting])
        codes = np.concatenate(
            [
                np.full(rows.num_rows, some) if isinstance(some, int) else some
                for some, rows in waiting
            ]
        )
        waiting.clear()
        names = list(self._directories)
        counts = np.bincount(codes).tolist()
        keys = self._form.layout.sort_by
        if not keys and counts[-1] == len(codes):
            yield names[-1 + len(counts)], table
            return
        order = order_of(table, keys).to_numpy() if keys else np.arange(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        columns, schema = table.columns, table.schema
        del table
        table = reordered(columns, pa.array(order), schema)
        start = 0
        for number, rows in enumerate(counts):
            if rows:
                yield names[number], table.slice(start, rows)
                start += rows

    def _place(self, directory: str, rows: pa.Table) -> None:
        """Put a directory's drained rows into its file, or on the disk."""
        shelf = self._shelves.get(directory)
        bytes_ = rows.nbytes + (shelf.bytes if shelf else 0)
        if self._form.layout.sort_by:
            self._shelve(directory, rows)
            if bytes_ >= self._form.layout.file_bytes:
                if self._ratio is None:
                    self._ratio = rows.nbytes / stored_bytes(rows, self._form)
                if bytes_ >= self._form.layout.file_bytes * min(self._ratio, _MAX_RATIO):
                    self._write_sorted(directory)
                    self._finish(directory)
        elif bytes_ * _WORTH_WRITING >= self._row_group_bytes and (
            directory in self._files or len(self._files) < MAX_OPEN_FILES
        ):
            self._write(directory, pa.concat_tables([*self._unshelved(directory), rows]))
        else:
            self._shelve(directory, rows)

    def _write_last(self, directory: str, rows: pa.Table | None) -> None:
        """Write all of a directory's rows that are in no file yet."""
        if self._form.layout.sort_by and directory in self._shelves:
            if rows is not None:
                self._shelve(directory, rows)
            self._write_sorted(directory)
            return
        group: list[pa.Table] = []
        bytes_ = 0
        for piece in itertools.chain(self._unshelved(directory), [] if rows is None else [rows]):
            group.append(piece)
            bytes_ += piece.nbytes
            if bytes_ >= self._row_group_bytes:
                self._write(directory, pa.concat_tables(group))
                group, bytes_ = [], 0
        if group:
            self._write(directory, pa.concat_tables(group))

    def _shelve(self, directory: str, rows: pa.Table) -> None:
        if self._spill is None:
            self._spill = Spill()
        shelf = self._shelves.setdefault(directory, _Shelf())
        columns = [key.column for key in self._form.layout.sort_by]
        keys = self._spill.write(rows.select(columns)) if columns else []
        shelf.runs.append(SortedRun(self._spill.write(rows), keys))
        shelf.bytes += rows.nbytes
        shelf.rows += rows.num_rows

    def _unshelved(self, directory: str) -> Iterator[pa.Table]:
        """Yield the directory's rows on the disk, which leave it."""
        shelf = self._shelves.pop(directory, None)
        if shelf is None or self._spill is None:
            return
        for run in shelf.runs:
            for batch in self._spill.read(run.rows, self._form.schema):
                yield pa.Table.from_batches([batch])

    def _write_sorted(self, directory: str) -> None:
        """Write all rows on the disk, in order, as one file that stays open."""
        shelf = self._shelves.pop(directory)
        groups = math.ceil(shelf.bytes / self._row_group_bytes)
        at_once = math.ceil(shelf.rows / groups)
        assert self._spill is not None  # noqa: S101  # there is a shelf
        for rows in merged_runs(
            shelf.runs, self._form.layout.sort_by, self._spill, self._form.schema, at_once
        ):
            self._open(directory, rows).write(rows)
        self._ratio = shelf.bytes / self._files[directory].bytes

    def _write(self, directory: str, rows: pa.Table) -> None:
        """Write one row group; close the file if another one would exceed its target size more."""
        file = self._open(directory, rows)
        file.write(rows)
        if file.bytes + file.stored(self._row_group_bytes) // 2 >= self._form.layout.file_bytes:
            self._finish(directory)

    def _open(self, directory: str, sample: pa.Table) -> ParquetFile:
        if directory not in self._files:
            staged, output_id = self._names.take()
            self._started.append(staged)
            self._files[directory] = ParquetFile(self._sink, self._form, staged, output_id, sample)
        return self._files[directory]

    def _finish(self, directory: str) -> None:
        file = self._files[directory]
        file.finish()
        del self._files[directory]  # until here `discard` closes it
        self._sink.sync(file.staged)
        partition, _, unit = directory.partition(SLICE)
        self._done.append(
            StagedOutput(
                file.staged, partition, file.rows, file.bytes, file.output_id, unit or self._unit
            )
        )

"""One task of a job that reads a table or an API: rows in, staged Parquet files and a report out.

The reader's batches are cast to the declared schema (`formats.conform`), and its lines are parsed
like lines of files. Both go to the same outputs by the same partition rules. Memory is limited by
the size of a reader's batch and by the outputs' row group.

A row that does not fit is a bad record. Its dead letter has the record of its file, or the row as
JSON, which a replay ingests, and the statement or request. Too many bad rows stop the pipeline: the
schema is wrong.

The items of a job are published together or not at all, so an item that cannot be read fails the
job. If items are read separately (`blizzard_py.reading.Reading`), it is reported instead, and its
written rows are discarded. The slices of an item go to separate files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import structs

from blizzard_core.errors import BlizzardError, PipelineStopped, SourceError, StorageError
from blizzard_core.limits import ROW_BYTES
from blizzard_core.settings.format_options import ValueOptions
from blizzard_core.storage.protocol import Storage, join
from blizzard_py.connections.protocol import Rows
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.input_names import renamed
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.protocol import (
    BadRecord,
    FileRows,
    LineNumbers,
    RecordBytes,
    RowRecords,
)
from blizzard_py.job import FinishedFile, IngestJob, StagedBadRecords, StagedOutput
from blizzard_py.kernels.bad_records import BadRecordWriter
from blizzard_py.kernels.new_fields import NewFields
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.row_deduplication import RowFilter
from blizzard_py.kernels.write.metadata import Metadata
from blizzard_py.kernels.write.parquet_file import output_format
from blizzard_py.kernels.write.partition import (
    RowDirectories,
    Unplaceable,
    place_rows,
    without_moved,
)
from blizzard_py.kernels.write.rolling_outputs import OutputSet, StagedNames
from blizzard_py.lines.framing import Piece, RefusedRecord, framed
from blizzard_py.reading import Reading, UnitSlice

# So few bad rows are tolerated, whatever share of a small window they are.
SLIPS = 20
# After so many mostly bad rows the rest is not read: a wrong schema is reported early.
HOPELESS = 10_000
# Bad rows of which letters are made together: one by one takes a hundred times as long.
_LETTERS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """The part of a job for one Spark task: the slices of one item, or its only reading."""

    index: int
    job: IngestJob
    reading: Reading
    item: str
    slices: tuple[UnitSlice, ...]


def reading_tasks(job: IngestJob, reading: Reading) -> list[ReadingTask]:
    """Return the job's tasks, one for each item."""
    bare = job.without_items
    items = [file.path for file in job.files]
    return [
        ReadingTask(
            index,
            bare,
            reading,
            item,
            reading.slices.get(item) or (UnitSlice("", reading.tasks[item]),),
        )
        for index, item in enumerate(items)
    ]


# The result of a reader for a task's spec.
Reads: TypeAlias = Callable[[Mapping[str, Any]], Iterable[Rows]]


def read_item(task: ReadingTask, read: Reads, sink: Storage, attempt_id: int) -> TaskReport:
    """Run `run_read_task` for all slices of the item, each read by ``read``.

    If items are read separately, a failed item is reported as one to retry.
    """
    parts = ((some, read(some.task.spec)) for some in task.slices)
    return _report(task, parts, sink, attempt_id)


def run_read_task(
    task: ReadingTask, rows: Iterable[Rows], sink: Storage, attempt_id: int
) -> TaskReport:
    """Ingest the reader's rows for the task's only slice and report its item as ingested.

    ``attempt_id`` is unique among all attempts that write to the staging directory. Raises the
    reader's errors, `SourceError` for columns that do not match the schema, `PipelineStopped` for
    bad rows that are not tolerated, `StorageError` if the sink fails.
    """
    return _report(task, [(task.slices[0], rows)], sink, attempt_id)


def unread(task: ReadingTask, error: BaseException) -> TaskReport:
    """Return the report of an item that could not be read, and is retried."""
    failed = FinishedFile(task.item, "retry", error=str(error), stage="read")
    return TaskReport(task.index, (), (failed,))


def _report(
    task: ReadingTask, parts: Iterable[_Part], sink: Storage, attempt_id: int
) -> TaskReport:
    with closing(BadRecordWriter(task.job.settings.source.uri, task.job.started_ts)) as letters:
        run = _Run(task, sink, attempt_id, letters)
        try:
            return run.run(parts)
        except _NotRead as failed:
            run.discard()
            return unread(task, failed.error)
        except BaseException:
            run.discard()
            raise


# Reasons by row, and their stage.
_Refused: TypeAlias = Callable[[Mapping[int, str], str], None]
_Part: TypeAlias = tuple[UnitSlice, Iterable[Rows]]


class _NotRead(Exception):  # not an error of the task
    """The source has failed, not the sink."""

    def __init__(self, error: BlizzardError) -> None:
        super().__init__(str(error))
        self.error = error


def _mark_source_errors(
    rows: Iterable[Rows],
) -> Iterator[Rows]:
    try:
        yield from rows
    except (SourceError, StorageError) as error:
        raise _NotRead(error) from error


class _Run:
    def __init__(
        self, task: ReadingTask, sink: Storage, attempt_id: int, letters: BadRecordWriter
    ) -> None:
        job, settings, form = task.job, task.job.settings, task.reading.access.format
        schema = settings.schema
        self._layout = settings.layout
        self._tolerance = settings.tolerance
        self._task = task
        self._sink = sink
        self._letters = letters
        self._stem = join(job.staging, f"{task.index:05d}-{attempt_id}")
        self._schema = RecordSchema(schema.fields, schema.unexpected_fields)
        read = schema.as_read
        self._columns = () if read is schema else schema.fields
        by_input = RecordSchema(read.fields, schema.unexpected_fields)
        self._parser = LineParser(by_input, tolerant=True, fast=schema.fast_path)
        self._unexpected = NewFields(schema)
        self._conformer = Conformer(
            read.fields,
            rescued=schema.unexpected_fields == "capture",
            # The notation of values in columns of text, if the options of a format say it.
            texts=form if isinstance(form, ValueOptions) else None,
        )
        self._filter = RowFilter(task.reading.dedup, sink)
        self._metadata = Metadata(settings.added_columns, settings.source.uri, job.started_ts)
        self._form = output_format(self._layout, self._metadata.schema(self._schema.table))
        self._names = StagedNames(job.staging, job.output_prefix, f"{task.index:05d}", attempt_id)
        self._slice = task.slices[0]
        self._outputs = OutputSet(sink, self._names, self._form)
        self._begun: list[OutputSet] = []
        self._read = 0  # rows up to now, for the number in a letter
        self._bytes = 0
        self._rows = 0
        self._bad = 0
        self._first_bad = ""

    def run(self, parts: Iterable[_Part]) -> TaskReport:
        outputs: list[StagedOutput] = []
        for some, rows in parts:
            self._slice = some
            self._outputs = OutputSet(self._sink, self._names, self._form, some.unit)
            self._begun.append(self._outputs)
            self._ingest(_mark_source_errors(rows) if self._task.reading.apart else rows)
            outputs += self._outputs.close()
        self._check()
        item = self._task.item
        marks = self._filter.marks(item, partial(self._staged, f"{self._stem}.digests"))
        letters = self._letters.stage(self._sink, f"{self._stem}.letters.ndjson")
        return TaskReport(
            task=self._task.index,
            outputs=tuple(sorted(outputs, key=lambda output: output.staged)),
            files=(self._finished(),),
            letters=StagedBadRecords(letters, ((item, self._bad),)) if letters else None,
            marks=() if marks is None else (marks,),
            unexpected=self._unexpected.found_fields(),
        )

    def discard(self) -> None:
        for outputs in self._begun:
            outputs.discard()

    def _ingest(self, rows: Iterable[Rows]) -> None:
        for some in rows:
            if isinstance(some, bytes):
                self._bytes += len(some)
                for chunk in framed([some]):
                    self._lines(chunk)
            elif isinstance(some, BadRecord):
                self._bytes += some.length
                self._refuse(some)
            elif isinstance(some, FileRows):
                self._bytes += some.batch.nbytes
                self._batch(some.batch, some.records)
            else:
                self._bytes += some.nbytes
                self._batch(some, partial(self._texts_of, some))
            if self._rows + self._bad >= HOPELESS and self._bad > self._rows:
                self._check()

    def _staged(self, path: str, data: bytes) -> str:
        self._sink.put_atomic(path, data)
        return path

    def _finished(self) -> FinishedFile:
        return FinishedFile(
            self._task.item,
            "ingested",
            rows=self._rows,
            bytes_read=self._bytes,
            error=self._first_bad,
            bad_rows=self._bad,
        )

    def _batch(self, batch: pa.RecordBatch, records: RowRecords) -> None:
        before, at = self._read, np.arange(batch.num_rows)
        self._read += batch.num_rows
        if self._filter.needs_check:
            fresh = self._filter.fresh(batch)
            batch, at = batch.filter(pa.array(fresh)), np.flatnonzero(fresh)

        def refused(reasons: Mapping[int, str], stage: str) -> None:
            self._bad_rows(
                records,
                before,
                dict(zip(at[list(reasons)].tolist(), reasons.values(), strict=True)),
                stage,
            )

        found = self._conformer.conform(batch)
        if found.bad:
            refused(found.bad, "parse")
        self._add(found.table, found.rows_at, at + before, refused)

    def _bad_rows(
        self, records: RowRecords, before: int, reasons: Mapping[int, str], stage: str
    ) -> None:
        """Add letters of rows, by their index; ``before`` them were so many others."""
        rows = list(reasons)
        for start in range(0, len(rows), _LETTERS_AT_ONCE):
            some = rows[start : start + _LETTERS_AT_ONCE]
            for row, (offset, head, header) in zip(some, records(some), strict=True):
                number, length = before + row, len(head)
                reason = reasons[row]
                self._letter(BadRecord(number, offset, length, head, reason, stage, header))

    def _texts_of(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[RecordBytes]:
        """Return rows of no file as JSON."""
        return [(0, self._conformer.text_of(batch, row), b"") for row in rows]

    def _refuse(self, bad: BadRecord) -> None:
        """Add the letter of a record that the reader could not make a row of, unless it has one."""
        number = self._read
        self._read += 1
        if not self._filter.needs_check or self._filter.fresh_lines([bad.head]).all():
            self._letter(structs.replace(bad, index=number))

    def _lines(self, chunk: Piece | RefusedRecord) -> None:
        if isinstance(chunk, RefusedRecord):
            self._letter(BadRecord(self._read, 0, chunk.length, chunk.head, chunk.reason))
            self._read += 1
            return
        lines = chunk.data.split(b"\n")[:-1]
        numbers = np.arange(len(lines)) + self._read
        self._read += len(lines)
        if self._filter.needs_check:
            fresh = self._filter.fresh_lines(lines)
            lines = [line for line, new in zip(lines, fresh, strict=True) if new]
            numbers = numbers[fresh]
        data = b"".join(line + b"\n" for line in lines)
        parsed = self._parser.parse(data)
        self._unexpected.see(parsed, parsed.rows_at, [(self._task.item, data)])
        for bad in parsed.bad:
            self._letter(structs.replace(bad, index=int(numbers[bad.index])))

        def unplaceable(reasons: Mapping[int, str], stage: str) -> None:
            for row, reason in reasons.items():
                line, number = lines[row], int(numbers[row])
                self._letter(BadRecord(number, 0, len(line), line, reason, stage))

        self._add(parsed.table, parsed.rows_at, numbers, unplaceable)

    def _add(
        self, table: pa.Table, rows_at: LineNumbers, numbers: LineNumbers, refused: _Refused
    ) -> None:
        """Add rows to the outputs; those without a place are ``refused``."""
        if self._columns:
            table = renamed(table, self._columns)
        rules = self._layout.partition_rules
        where: str | RowDirectories = ""
        if rules:
            try:
                where = place_rows(table, rules)
            except Unplaceable as error:
                refused(
                    {int(rows_at[row]): reason for row, reason in error.reasons.items()},
                    error.stage,
                )
                kept = np.ones(table.num_rows, np.bool_)
                kept[list(error.reasons)] = False
                table, rows_at = table.filter(pa.array(kept)), rows_at[kept]
                where = place_rows(table, rules)
        self._rows += table.num_rows
        rows_of = [(self._task.item, table.num_rows)]
        rows = self._metadata.added(table, rows_of, numbers[rows_at] + 1, self._slice.unit)
        self._outputs.add(where, without_moved(rows, rules))

    def _letter(self, bad: BadRecord) -> None:
        reason = f"row {bad.index + 1}: {bad.reason}"
        if self._tolerance.on_bad_record == "fail":
            raise PipelineStopped(
                f"{self._task.item}: stopped at a bad record (error_handling.on_bad_record is"
                " fail); nothing was skipped; correct the schema or the row, or set"
                f" on_bad_record to quarantine_record: {reason}"
            )
        self._bad += 1
        self._first_bad = self._first_bad or reason
        self._letters.add(self._task.item, bad, keep=ROW_BYTES, where=self._slice.task.where)

    def _check(self) -> None:
        """Raise `PipelineStopped` if too many rows are bad."""
        limit = self._tolerance.max_bad_fraction
        total = self._rows + self._bad
        if self._bad > SLIPS and self._bad / total > limit:
            raise PipelineStopped(
                f"{self._task.item}: {self._bad} of {total} rows are bad, which is more than"
                f" max_bad_fraction = {limit:g}; nothing was skipped. Correct schema.fields, or"
                f" raise error_handling.max_bad_fraction; first {self._first_bad}"
            )

"""One task of an ingest job: some files in, Parquet files in staging and a report out.

A file's rows are all or nothing. They wait in memory until its end is known to
be good and then go to the outputs that the task's files share; a file too large
to wait writes outputs of its own, which are deleted if it fails after all.

Small files are parsed together, because the parser's fixed cost per call is
that of some hundred rows. If anything is wrong in such a group, its files are
parsed one by one, so the verdicts are the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from blizzard_py.core.model import FinishedFile, IngestResult, StagedOutput
from blizzard_py.core.storage import Storage, order_key
from blizzard_py.kernels.decompress import codec_of, decompressed
from blizzard_py.kernels.failure import FileFailed
from blizzard_py.kernels.framing import LineTooLong, framed
from blizzard_py.kernels.parquet import ParquetFormat
from blizzard_py.kernels.parse import BadLine, LineParser, count_lines
from blizzard_py.kernels.partition import Places, place_rows, without_moved
from blizzard_py.kernels.source import SourceStream
from blizzard_py.kernels.write import OutputNames, OutputSet
from blizzard_py.settings import IngestJob, IngestSettings, JobFile

# Files below the first size are parsed in groups of about the second.
SMALL_FILE_BYTES = 1 << 20
GROUP_BYTES = 8 << 20
# Arrow data of one file that may wait for its end.
FILE_BUFFER_BYTES = 32 << 20

_Piece = tuple[str | Places, pa.Table]  # where in the table, and rows that belong there


@dataclass(frozen=True, slots=True)
class Task:
    """The share of an `IngestJob` that one Spark task works on."""

    index: int
    settings: IngestSettings
    staging: str
    output_prefix: str
    files: tuple[JobFile, ...]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task attempt did; it counts only if the driver receives it.

    ``files`` has every file of the task in its order, ``pid`` the process that
    did the work.
    """

    task: int
    pid: int
    outputs: tuple[StagedOutput, ...]
    files: tuple[FinishedFile, ...]

    def to_json(self) -> str:
        """One line of ASCII."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return cls(
            task=data["task"],
            pid=data["pid"],
            outputs=tuple(StagedOutput(**item) for item in data["outputs"]),
            files=tuple(FinishedFile(**item) for item in data["files"]),
        )


def tasks_of(job: IngestJob, packed: Sequence[tuple[JobFile, ...]]) -> list[Task]:
    """The job's tasks, for files packed by `packing.pack`."""
    return [
        Task(index, job.settings, job.staging, job.output_prefix, files)
        for index, files in enumerate(packed)
    ]


def output_format(settings: IngestSettings, schema: pa.Schema) -> ParquetFormat:
    """How files of such rows are made: without the columns that stand in the directory."""
    moved = {rule.column for rule in settings.partition_rules if rule.moves}
    return ParquetFormat(
        pa.schema([field for field in schema if field.name not in moved]),
        settings.parquet_compression,
        settings.file_bytes,
        settings.row_group_bytes,
        settings.sort_by,
    )


def prepare_process() -> None:
    """Set pyarrow up for a process that runs one task at a time.

    One thread, since every core has a task of its own. The C library's allocator,
    since this work takes an eighth less time with it than with pyarrow's default.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def merged(reports: Iterable[TaskReport]) -> IngestResult:
    """The job's result; outputs in order of task and index, files in path order."""
    ordered = sorted(reports, key=lambda report: report.task)
    files = (file for report in ordered for file in report.files)
    return IngestResult(
        outputs=tuple(output for report in ordered for output in report.outputs),
        files=tuple(sorted(files, key=lambda file: order_key(file.path))),
        tasks=len(ordered),
    )


def run_task(
    task: Task, source: Storage, sink: Storage, attempt_id: int, *, careful: bool = False
) -> TaskReport:
    """Ingest the task's files and report each exactly once.

    ``attempt_id`` is unique among all attempts that write to the staging
    directory. ``careful`` gives up parsing small files together. Raises
    `StorageError` if the sink fails; no source file is to blame for that.
    """
    run = _Run(task, source, sink, attempt_id)
    try:
        return run.run(careful=careful)
    except BaseException:
        run.discard()
        raise


@dataclass(slots=True)
class _Content:
    """A file that is being read. ``chunks`` come from `framed`."""

    file: JobFile
    chunks: Iterator[bytes] = field(default_factory=lambda: iter(()))
    bytes_read: int = 0
    ended: bool = False

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The blocks, counted; ``ended`` is set when there are no more."""
        for block in blocks:
            self.bytes_read += len(block)
            yield block
        self.ended = True


class _Run:
    def __init__(self, task: Task, source: Storage, sink: Storage, attempt_id: int) -> None:
        self._task = task
        self._source = source
        self._sink = sink
        self._parser = LineParser(task.settings.fields)
        self._names = OutputNames(task.staging, task.output_prefix, f"{task.index:05d}", attempt_id)
        self._format = output_format(task.settings, self._parser.schema)
        self._shared = self._output_set()
        self._outputs: list[StagedOutput] = []
        self._finished: dict[str, FinishedFile] = {}
        self._group: list[tuple[_Content, bytes]] = []
        self._group_bytes = 0

    def run(self, *, careful: bool) -> TaskReport:
        group_bytes = 0 if careful else GROUP_BYTES
        for file in self._task.files:
            content = _Content(file)
            try:
                self._read(content)
            except FileFailed as error:
                self._fail(content, error)
            if self._group_bytes >= group_bytes:
                self._ingest_group()
        self._ingest_group()
        outputs = [*self._outputs, *self._shared.close()]
        return TaskReport(
            task=self._task.index,
            pid=os.getpid(),
            outputs=tuple(sorted(outputs, key=lambda output: output.staged)),
            files=tuple(self._finished[file.path] for file in self._task.files),
        )

    def discard(self) -> None:
        self._shared.discard()

    def _output_set(self) -> OutputSet:
        return OutputSet(self._sink, self._names, self._format)

    def _read(self, content: _Content) -> None:
        """Ingest one file; a small one is read and put into the group."""
        with closing(SourceStream(self._source, content.file)) as stream:
            codec = codec_of(content.file.path, self._task.settings.compression)
            chunks = framed(content.counted(decompressed(stream, codec)))
            try:
                first = next(chunks, b"")
            except LineTooLong as error:
                raise FileFailed("parse", f"line 1: {error}") from error
            if content.ended and len(first) <= SMALL_FILE_BYTES:
                self._group.append((content, first))
                self._group_bytes += len(first)
                return
            self._ingest_group()  # rows stay in path order
            content.chunks = itertools.chain([first], chunks)
            self._ingest(content)

    def _ingest(self, content: _Content) -> None:
        """All rows of a file to the outputs, or none and `FileFailed`."""
        waiting: list[_Piece] = []
        waiting_bytes = 0
        private: OutputSet | None = None
        rows = 0
        try:
            for table in self._tables(content.chunks):
                rows += table.num_rows
                for piece in self._pieces(table, content.file.partition):
                    if private is not None:
                        private.add(*piece)
                        continue
                    waiting.append(piece)
                    waiting_bytes += piece[1].nbytes
                if private is None and waiting_bytes > FILE_BUFFER_BYTES:
                    private = self._output_set()
                    for piece in waiting:
                        private.add(*piece)
                    waiting.clear()
            if private is not None:
                self._outputs += private.close()
        except BaseException:
            if private is not None:
                private.discard()
            raise
        for piece in waiting:
            self._shared.add(*piece)
        self._finish(content, rows)

    def _tables(self, chunks: Iterable[bytes]) -> Iterator[pa.Table]:
        """Each chunk's rows; lines are numbered from 1 over the whole file."""
        lines = 0
        try:
            for chunk in chunks:
                parsed = self._parser.parse(chunk)
                yield parsed.table
                lines += parsed.lines
        except BadLine as error:
            number = lines + error.index + 1
            raise FileFailed("parse", f"line {number}: {error.reason}") from error
        except LineTooLong as error:
            raise FileFailed("parse", f"line {lines + 1}: {error}") from error

    def _pieces(self, table: pa.Table, partition: str) -> Iterator[_Piece]:
        rules = self._task.settings.partition_rules
        if not rules:
            return iter([(partition, table)])
        return iter([(place_rows(table, rules), without_moved(table, rules))])

    def _ingest_group(self) -> None:
        """Ingest the small files read so far: together if they are all good, else in turn."""
        group, self._group, self._group_bytes = self._group, [], 0
        try:
            pieces, rows = self._together(group)
        except (BadLine, FileFailed):
            for content, data in group:
                content.chunks = iter([data] if data else [])
                try:
                    self._ingest(content)
                except FileFailed as error:
                    self._fail(content, error)
            return
        for piece in pieces:
            self._shared.add(*piece)
        for (content, _), count in zip(group, rows, strict=True):
            self._finish(content, count)

    def _together(self, group: Sequence[tuple[_Content, bytes]]) -> tuple[list[_Piece], list[int]]:
        """The group's rows by directory, and how many each file has."""
        parsed = self._parser.parse(b"".join(data for _, data in group))
        blank_lines = parsed.lines != parsed.table.num_rows
        rows = [count_lines(data)[0] if blank_lines else data.count(b"\n") for _, data in group]
        if self._task.settings.partition_rules:
            return list(self._pieces(parsed.table, "")), rows
        pieces: list[_Piece] = []
        start = 0
        for partition, same in itertools.groupby(
            zip(group, rows, strict=True), key=lambda item: item[0][0].file.partition
        ):
            count = sum(n for _, n in same)
            pieces.append((partition, parsed.table.slice(start, count)))
            start += count
        return pieces, rows

    def _finish(self, content: _Content, rows: int) -> None:
        self._finished[content.file.path] = FinishedFile(
            content.file.path, "ingested", rows=rows, bytes_read=content.bytes_read
        )

    def _fail(self, content: _Content, error: FileFailed) -> None:
        self._finished[content.file.path] = FinishedFile(
            content.file.path,
            error.outcome,
            bytes_read=content.bytes_read,
            error=error.reason,
            stage=error.stage,
        )

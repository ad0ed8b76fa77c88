"""One task of an ingest job: some files in, staged Parquet files and a report out.

A file's rows are all or nothing. They wait in memory until its end is known to be valid. Then they
go to the outputs that the task's files share. A file too large to wait writes its own outputs,
which are deleted if it fails. Its bad records (`bad_records`) go the same way.

Small files are parsed together, because the parser's fixed cost per call is that of some hundred
rows. Chunks of large files are parsed by several threads if there are fewer tasks than cores.

A retried task parses in child processes (`isolate`), file by file: a line may have ended the
attempt before. From the third attempt on a child also reads each file first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from blizzard_core.storage.protocol import Storage, join
from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.grouping import joined, shares, small_piece
from blizzard_py.formats.isolate import IsolatedDecoder, check_readable
from blizzard_py.formats.names import format_of
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.protocol import BadLine, BadRecord, Parsed
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FinishedFile, StagedBadRecords, StagedOutput
from blizzard_py.kernels.bad_records import BadRecordWriter, FileLetters
from blizzard_py.kernels.file_tally import (
    FileTally,
    Outcome,
    PlacedRows,
    bytes_of,
    outcome_of,
    placed_rows,
    within_tolerance,
)
from blizzard_py.kernels.new_fields import NewFields
from blizzard_py.kernels.packing import IngestTask
from blizzard_py.kernels.prefetch import prefetch
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.row_groups import RowGroupCopier
from blizzard_py.kernels.write.metadata import Metadata
from blizzard_py.kernels.write.parquet_file import output_format
from blizzard_py.kernels.write.partition import (
    Unplaceable,
    place_rows,
    without_moved,
)
from blizzard_py.kernels.write.rolling_outputs import OutputSet, StagedNames
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord

# Files below the first size are parsed in groups of about the second.
SMALL_FILE_BYTES = 1 << 20
GROUP_BYTES = 8 << 20
# Arrow data of one file that may wait for its end.
FILE_BUFFER_BYTES = 32 << 20
# How much raw data may be parsed in advance.
AHEAD_BYTES = 8 << 20
# The share of a group's bytes for each value that its lines may become.
_CELL_BYTES = 4


def run_task(
    task: IngestTask, source: Storage, sink: Storage, attempt_id: int, *, attempt: int = 0
) -> TaskReport:
    """Ingest the task's files and report each exactly once.

    ``attempt_id`` is unique among all attempts that write to the staging directory; ``attempt``
    counts those of this task, from 0. Raises `StorageError` if the sink fails.
    """
    with (
        ChildProcess() as nursery,
        closing(BadRecordWriter(source.uri, task.job.started_ts)) as letters,
        ThreadPoolExecutor(task.threads) as pool,
    ):
        run = _Run(task, source, sink, attempt_id, attempt, nursery, letters, pool)
        try:
            return run.run()
        except BaseException:
            run.discard()
            raise


class _Run:
    def __init__(
        self,
        task: IngestTask,
        source: Storage,
        sink: Storage,
        attempt_id: int,
        attempt: int,
        nursery: ChildProcess,
        letters: BadRecordWriter,
        pool: Executor,
    ) -> None:
        job, settings = task.job, task.job.settings
        schema = settings.schema
        self._layout = settings.layout
        self._tolerance = settings.tolerance
        self._task = task
        self._settings = settings
        self._source = source
        self._sink = sink
        self._attempt = attempt
        self._nursery = nursery
        self._letters = letters
        self._pool = pool
        self._lettered: list[tuple[str, int]] = []
        self._letters_path = join(job.staging, f"{task.index:05d}-{attempt_id}.letters.ndjson")
        self._rows = schema
        self._tolerant = self._tolerance.on_bad_record == "quarantine_record"
        fast = schema.fast_path and not attempt
        self._format = format_of(settings.format)
        self._decoder = self._format.decoder(schema, tolerant=self._tolerant, fast=fast)
        self._unexpected = NewFields(schema)
        added = replace(settings.added_columns, unit=False)  # records again are of no slice
        self._metadata = Metadata(added, source.uri, job.started_ts)
        self._names = StagedNames(job.staging, job.output_prefix, f"{task.index:05d}", attempt_id)
        table = RecordSchema(schema.fields, schema.unexpected_fields).table
        self._output_form = output_format(self._layout, self._metadata.schema(table))
        self._shared = self._output_set()
        self._copier = RowGroupCopier(settings, sink, self._names, self._output_form)
        self._outputs: list[StagedOutput] = []
        self._finished: dict[str, FinishedFile] = {}
        self._group: list[tuple[FileTally, Piece]] = []
        self._group_bytes = 0

    def run(self) -> TaskReport:
        group_bytes = 0 if self._attempt else GROUP_BYTES
        for file in self._task.job.files:
            content = FileTally(file, self._tolerance.limits)
            try:
                self._read(content)
            except FileFailed as error:
                self._fail(content, error)
            if self._group_bytes >= group_bytes:
                self._ingest_group()
        self._ingest_group()
        outputs = [*self._outputs, *self._shared.close(), *self._copier.close()]
        staged = self._letters.stage(self._sink, self._letters_path)
        return TaskReport(
            task=self._task.index,
            outputs=tuple(sorted(outputs, key=lambda output: output.staged)),
            files=tuple(self._finished[file.path] for file in self._task.job.files),
            letters=StagedBadRecords(staged, tuple(self._lettered)) if staged else None,
            unexpected=self._unexpected.found_fields(),
        )

    def discard(self) -> None:
        self._shared.discard()
        self._copier.discard()

    def _output_set(self) -> OutputSet:
        return OutputSet(self._sink, self._names, self._output_form)

    def _read(self, content: FileTally) -> None:
        """Ingest one file; a small one is read and added to the group."""
        self._metadata.check_path(content.file.path)
        if self._attempt > 1:
            source = self._settings.source
            check_readable(self._nursery, source, content.file, content.limits)
        with SourceFile(self._source, content.file, content.expansion, content.read) as file:
            if self._ingest_copies(content, file):
                return
            pieces = content.weighed(file.pieces(self._format, self._rows))
            first = list(itertools.islice(pieces, 2))
            only = small_piece(first, SMALL_FILE_BYTES)
            if only is not None:
                if self._group and self._group[-1][1].context != only.context:
                    self._ingest_group()
                self._group.append((content, only))
                self._group_bytes += max(len(only.data), only.cells * _CELL_BYTES)
                return
            self._ingest_group()  # rows stay in path order
            content.chunks = itertools.chain(first, pieces)
            self._ingest(content)

    def _ingest_copies(self, content: FileTally, file: SourceFile) -> bool:
        """Ingest a file of which row groups are copied; return whether it is one."""
        plan = self._copier.plan(file)
        content.row_groups = plan.story
        if not plan.groups:
            return False
        with self._copier.copied(file, plan, content.file.partition):
            content.copied_rows = plan.rows
            file.check_unchanged()
            if plan.rest is not None:
                content.chunks = content.weighed(file.pieces(plan.rest, self._rows))
            self._ingest(content)
        return True

    def _ingest(self, content: FileTally) -> None:
        """Add all records of a file to the outputs, or raise `FileFailed` and add none."""
        waiting: list[PlacedRows] = []
        waiting_bytes = 0
        private: OutputSet | None = None
        mark = self._letters.mark()
        letters = self._letters_of(content)
        unexpected = NewFields(self._settings.schema)
        content.recount()
        try:
            for piece in self._pieces_of_file(content, letters, unexpected):
                if private is not None:
                    private.add(*piece)
                    continue
                waiting.append(piece)
                waiting_bytes += piece[1].nbytes
                if waiting_bytes > FILE_BUFFER_BYTES:
                    private = self._output_set()
                    for held in waiting:
                        private.add(*held)
                    waiting.clear()
            content.check(self._tolerance.max_bad_fraction)
            letters.close()
            if private is not None:
                self._outputs += private.close()
        except BaseException:
            self._letters.rewind(mark)
            if private is not None:
                private.discard()
            raise
        for piece in waiting:
            self._shared.add(*piece)
        self._unexpected.take(unexpected.found_fields())
        self._finish(content, letters)

    def _pieces_of_file(
        self, content: FileTally, letters: FileLetters, unexpected: NewFields
    ) -> Iterator[PlacedRows]:
        """Yield each chunk's rows; lines are numbered from 1 over the whole file."""
        for outcome in self._outcomes(content.chunks):
            if isinstance(outcome, RefusedRecord):
                content.lines += outcome.skipped
                if not self._tolerant:
                    raise FileFailed("parse", f"line {content.lines + 1}: {outcome.reason}")
                self._bad_lines(content, letters, [BadRecord.of(outcome)], 0, outcome.member)
                content.lines += 1
                continue
            if isinstance(outcome, BadLine):
                reason = f"line {content.lines + 1 + outcome.index}: {outcome.reason}"
                raise FileFailed("parse", reason) from outcome
            piece, parsed = outcome
            content.lines += piece.skipped
            parsed, placed = self._placed(content, piece, parsed)
            if parsed.unexpected:
                self._see_fields(unexpected, parsed, [(content.file.path, piece)])
            content.rows += parsed.table.num_rows
            self._bad_lines(content, letters, parsed.bad, piece.offset, piece.member)
            content.lines += parsed.lines
            yield placed

    def _see_fields(
        self, unexpected: NewFields, parsed: Parsed, parts: Sequence[tuple[str, Piece]]
    ) -> None:
        """Collect fields without a column from pieces of one context."""
        path, piece = parts[0]
        if unexpected.see_columns(parsed, self._decoder.columns(piece), path):
            lines = [(path, self._decoder.as_lines(piece)) for path, piece in parts]
            unexpected.see(parsed, parsed.rows_at, lines)

    def _placed(
        self, content: FileTally, piece: Piece, parsed: Parsed
    ) -> tuple[Parsed, PlacedRows]:
        """Return a chunk's rows with all columns, and their directories.

        Rows without one become bad records.
        """
        rules = self._layout.partition_rules
        table = self._with_origin(content, parsed)
        if not rules:
            return parsed, (content.file.partition, table)
        try:
            places = place_rows(table, rules)
        except Unplaceable as error:
            if not self._tolerant:
                line = content.lines + int(parsed.rows_at[min(error.reasons)]) + 1
                # With `fail`, or if a bad record fails the file, the error is raised at this stage.
                raise FileFailed("parse", f"line {line}: {error.reason}") from error
            parsed = parsed.without(error.reasons, error.stage, self._decoder.records(piece))
            table = self._with_origin(content, parsed)
            places = place_rows(table, rules)
        content.went_to(places.directories)
        return parsed, (places, without_moved(table, rules))

    def _with_origin(self, content: FileTally, parsed: Parsed) -> pa.Table:
        """Return the rows of a chunk at the tally's line, with the columns of their origin."""
        rows_of = [(content.file.path, parsed.table.num_rows)]
        return self._metadata.added(parsed.table, rows_of, parsed.rows_at + (content.lines + 1))

    def _outcomes(self, chunks: Iterable[Piece | RefusedRecord]) -> Iterator[Outcome]:
        if self._attempt:
            alone = IsolatedDecoder(
                self._nursery, self._format, self._rows, tolerant=self._tolerant
            )
            return map(functools.partial(outcome_of, alone), chunks)
        work = functools.partial(outcome_of, self._decoder)
        if self._task.threads == 1:
            return map(work, chunks)
        return prefetch(work, chunks, self._pool, self._task.threads, bytes_of, AHEAD_BYTES)

    def _bad_lines(
        self,
        content: FileTally,
        letters: FileLetters,
        bad: Sequence[BadRecord],
        offset: int,
        member: str,
    ) -> None:
        """Write letters for bad lines of a chunk at ``offset`` and at the tally's line.

        Raises `FileFailed` if there are too many.
        """
        if not bad:
            return
        hopeless = letters.full(len(bad))
        content.note_bad(content.lines + bad[0].index + 1, bad[0].reason, len(bad))
        if hopeless:
            content.check(self._tolerance.max_bad_fraction, so_far=True)
        for number, record in enumerate(bad):
            if letters.full(1):
                letters.pass_over(len(bad) - number)
                return
            letters.add(record.moved(content.lines, offset, member))

    def _letters_of(self, content: FileTally) -> FileLetters:
        return FileLetters(self._letters, content.file.path, content.limits.letters)

    def _ingest_group(self) -> None:
        """Ingest the small files read so far: together, or one by one if that fails."""
        group, self._group, self._group_bytes = self._group, [], 0
        if len(group) > 1 and not self._attempt and self._ingest_together(group):
            return
        for content, chunk in group:
            content.chunks = iter([chunk])
            try:
                self._ingest(content)
            except FileFailed as error:
                self._fail(content, error)

    def _ingest_together(self, group: Sequence[tuple[FileTally, Piece]]) -> bool:
        """Return whether the group was ingested; if not, nothing was done."""
        chunks = [chunk for _, chunk in group]
        try:
            parsed = self._decoder.decode(joined(chunks))
            found, numbers = shares(parsed, chunks)
            rows_of = [
                (content.file.path, share.rows)
                for (content, _), share in zip(group, found, strict=True)
            ]
            table = self._metadata.added(parsed.table, rows_of, numbers)
            kept, lost = within_tolerance(
                [content for content, _ in group], found, self._tolerance.max_bad_fraction
            )
            pieces = list(placed_rows(table, kept, self._layout.partition_rules))
        except (BadLine, FileFailed):
            return False
        if lost and parsed.unexpected and self._settings.schema.evolves:
            return False  # one by one shows which of them have the fields
        if parsed.unexpected:
            parts = [(each.file.path, piece) for each, piece in group]
            self._see_fields(self._unexpected, parsed, parts)
        for piece in pieces:
            self._shared.add(*piece)
        for content, share in kept:
            letters = self._letters_of(content)
            for bad in share.bad:
                letters.add(bad)
            letters.close()
            self._finish(content, letters)
        for content, failure in lost:
            self._fail(content, failure)
        return True

    def _finish(self, content: FileTally, letters: FileLetters) -> None:
        content.unlettered = letters.more
        self._finished[content.file.path] = content.ingested()
        if letters.count:
            self._lettered.append((content.file.path, letters.count))

    def _fail(self, content: FileTally, error: FileFailed) -> None:
        self._finished[content.file.path] = content.failed(error)

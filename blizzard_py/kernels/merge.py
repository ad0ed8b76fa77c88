"""Merging of a batch's small outputs to fewer, larger ones: a second, short job.

Every task of an ingest job leaves its own files in each directory of its rows. Several small ones
become one. They are joined with their pages unchanged if each is worth its own row groups, and
otherwise rewritten. The small files stay in staging, unreported, and are removed with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_py.job import IngestJob, IngestResult, OutputLayout, StagedOutput
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.write.joined_file import JoinedFile
from blizzard_py.kernels.write.parquet_file import output_format
from blizzard_py.kernels.write.rolling_outputs import OutputSet, StagedNames

# Outputs of a file's size divided by this are large enough to stay unchanged: rewriting
# them costs more than their number.
SMALL_SHARE = 8
# Scheduling a task that merges less than this costs more than it saves.
MIN_TASK_BYTES = 4 << 20
# Outputs of this size, and of a file's size divided by JOINED_SHARE, are worth own row groups.
MIN_JOINED_BYTES = 1 << 20
JOINED_SHARE = 32
# The cost of opening a file, in bytes that could be written in that time.
_FILE_COST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Groups of small outputs; each has one directory and slice, and becomes one file."""

    index: int
    job: IngestJob
    groups: tuple[tuple[StagedOutput, ...], ...]


def merge_groups(
    outputs: Iterable[StagedOutput], file_bytes: int
) -> list[tuple[StagedOutput, ...]]:
    """Return outputs to merge into one file each, in the order of their tasks. Pure.

    Only files below an eighth of the target size, two or more of one directory and one slice, and
    no more of them than fill a file.
    """
    groups: list[tuple[StagedOutput, ...]] = []
    by_directory: dict[tuple[str, str], list[StagedOutput]] = {}
    for output in outputs:
        if output.size * SMALL_SHARE < file_bytes:
            by_directory.setdefault((output.partition, output.unit), []).append(output)
    for directory in sorted(by_directory, key=lambda key: (order_key(key[0]), key[1])):
        group: list[StagedOutput] = []
        for output in by_directory[directory]:
            if sum(other.size for other in group) + output.size > file_bytes:
                groups.append(tuple(group))
                group = []
            group.append(output)
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def merge_tasks(job: IngestJob, result: IngestResult, parallelism: int) -> list[MergeTask]:
    """Return the merge tasks of a job's result; empty if nothing is worth it. Pure."""
    groups = merge_groups(result.outputs, job.settings.layout.file_bytes)
    costs = [sum(output.size + _FILE_COST_BYTES for output in group) for group in groups]
    count = max(1, min(len(groups), 2 * parallelism, sum(costs) // MIN_TASK_BYTES))
    packed: list[list[tuple[StagedOutput, ...]]] = [[] for _ in range(count)]
    before = 0
    for group, cost in zip(groups, costs, strict=True):
        packed[min(count - 1, (before + cost // 2) * count // sum(costs))].append(group)
        before += cost
    bare = job.without_items
    return [
        MergeTask(index, bare, tuple(some))
        for index, some in enumerate(some for some in packed if some)
    ]


def is_joinable(group: Sequence[StagedOutput], layout: OutputLayout) -> bool:
    """Return whether files can be joined unchanged: unsorted, and no row group is small.

    Pure.
    """
    least = max(MIN_JOINED_BYTES, layout.file_bytes // JOINED_SHARE)
    return not layout.sort_by and all(output.size >= least for output in group)


def run_merge(task: MergeTask, sink: Storage, attempt_id: int) -> TaskReport:
    """Write each group's rows as one file. Raises `StorageError` if the sink fails."""
    job = task.job
    names = StagedNames(job.staging, job.output_prefix, f"m{task.index:05d}", attempt_id)
    outputs: list[StagedOutput] = []
    for group in task.groups:
        can_join = is_joinable(group, job.settings.layout)
        joined = _joined(job, group, names, sink) if can_join else None
        outputs += [joined] if joined else _written_again(job, group, names, sink)
    return TaskReport(task.index, tuple(outputs), ())


def with_merged(
    result: IngestResult, tasks: Sequence[MergeTask], reports: Sequence[TaskReport]
) -> IngestResult:
    """Return the result with the merged files in place of the small ones.

    Raises `BlizzardError` if rows are missing or too many; only a bug can cause that.
    """
    gone = {output.staged for task in tasks for group in task.groups for output in group}
    new = [output for report in sorted(reports, key=lambda r: r.task) for output in report.outputs]
    kept = [output for output in result.outputs if output.staged not in gone]
    before, after = _rows(result.outputs), _rows([*kept, *new])
    if before != after:
        raise BlizzardError("merging small outputs changed the number of rows of a partition")
    return replace(result, outputs=(*kept, *new))


def _rows(outputs: Iterable[StagedOutput]) -> dict[tuple[str, str], int]:
    rows: dict[tuple[str, str], int] = {}
    for output in outputs:
        place = (output.partition, output.unit)
        rows[place] = rows.get(place, 0) + output.rows
    return rows


def _joined(
    job: IngestJob, group: Sequence[StagedOutput], names: StagedNames, sink: Storage
) -> StagedOutput | None:
    """Return one file of all; None, with nothing left of it, if they cannot be joined unchanged."""
    staged, output_id = names.take()
    file: JoinedFile | None = None
    try:
        for output in group:
            data = sink.read(output.staged)
            if file is None:
                form = output_format(job.settings.layout, pq.read_schema(pa.BufferReader(data)))
                file = JoinedFile(sink, form, staged, output_id)
            file.add(data)
        assert file is not None  # noqa: S101  # a group has members
        file.finish()
        sink.sync(staged)
    except BaseException as error:
        if file is not None:
            file.abandon()
            with contextlib.suppress(Exception):  # the error matters more
                sink.delete(staged)
        if isinstance(error, SchemaMismatch):
            return None
        raise
    first = group[0]
    return StagedOutput(staged, first.partition, file.rows, file.size, output_id, first.unit)


def _written_again(
    job: IngestJob, group: Sequence[StagedOutput], names: StagedNames, sink: Storage
) -> list[StagedOutput]:
    outputs: OutputSet | None = None
    try:
        for output in group:
            for table in _tables(sink, output):
                if outputs is None:
                    form = output_format(job.settings.layout, table.schema)
                    outputs = OutputSet(sink, names, form, output.unit)
                # Copied row groups may hold a column as nullable that has no nulls.
                outputs.add(output.partition, table.cast(form.schema))
        return outputs.close() if outputs is not None else []
    except BaseException:
        if outputs is not None:
            outputs.discard()
        raise


def _tables(sink: Storage, output: StagedOutput) -> Iterator[pa.Table]:
    """Yield the rows of one small file: one request, since it is small."""
    with pq.ParquetFile(pa.BufferReader(sink.read(output.staged))) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False)

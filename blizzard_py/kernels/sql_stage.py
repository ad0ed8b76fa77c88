"""A batch's second job: from the first one's Parquet files to the table's.

The first job decides about files and records and writes accepted records to Parquet files in the
batch's own staging directory. Here they are read again, as Arrow batches for Spark SQL. The result
is written as the first job would write it: the same names, statistics and output ids, and only
reported outputs count.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_core.storage.protocol import Storage
from blizzard_py.job import IngestJob, JobFile, OutputLayout
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.write.parquet_file import output_format
from blizzard_py.kernels.write.partition import RowDirectories, Unplaceable, place_rows
from blizzard_py.kernels.write.rolling_outputs import SLICE, OutputSet, StagedNames

# The directory of a record's file; it passes through Spark as a column, which is marked, since a
# field of records may have this name if there is no such column.
PARTITION = "_partition"
DIRECTORY = pa.field(PARTITION, pa.string(), nullable=False, metadata={"blizzard": "directory"})
# The largest Arrow batch on its way into the JVM.
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 10_000


class RowRefused(ValueError):
    """A row that no table can hold; the same rows will be refused again."""


def by_path(layout: OutputLayout) -> bool:
    """Return whether a record's file decides its directory."""
    return bool(layout.partition_template) and not layout.partition_rules


@dataclass(frozen=True, slots=True)
class SqlStage:
    """The output of a task of the second job; ``directories`` are those that a path may name.

    ``units`` are the allowed slices of rows, if rows name their slice.
    """

    job: IngestJob
    schema: pa.Schema
    directories: frozenset[str]
    units: frozenset[str] = frozenset()


def read_records(
    storage: Storage, files: Sequence[JobFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the records of staged ``files`` in batches of ``schema``, in order.

    The last column is each file's `DIRECTORY` if the schema has it. Raises `StorageError`.
    """
    has_directory = bool(schema.names) and schema.field(-1).equals(DIRECTORY, check_metadata=True)
    columns = schema.names[: len(schema) - has_directory]
    for file in files:
        staged = pq.ParquetFile(io.BytesIO(storage.read(file.path)))
        rows = max(1, staged.metadata.num_rows)
        width = sum(
            staged.metadata.row_group(group).total_byte_size
            for group in range(staged.metadata.num_row_groups)
        )
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, width)))
        for batch in staged.iter_batches(batch_size=size, columns=columns):
            # By name: reading a column with a dot would also read a struct's field of that name.
            arrays = [batch.column(name) for name in columns]
            if has_directory:
                arrays.append(pa.array([file.partition] * batch.num_rows, pa.string()))
            yield pa.RecordBatch.from_arrays(
                [a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema
            )


def write_rows(
    second: SqlStage, index: int, attempt_id: int, batches: Iterable[pa.RecordBatch], sink: Storage
) -> TaskReport:
    """Write rows to staged Parquet files; ``attempt_id`` is unique in the staging directory.

    Raises `StorageError` for the sink, `RowRefused`, and `ValueError` for a transform that changes
    `PARTITION`.
    """
    job = second.job
    form = output_format(job.settings.layout, second.schema)
    names = StagedNames(job.staging, job.output_prefix, f"{index:05d}", attempt_id)
    outputs = OutputSet(sink, names, form)
    try:
        for batch in batches:
            for where, rows in _by_slice(second, pa.Table.from_batches([batch])):
                outputs.add(where, rows.select(form.schema.names).cast(form.schema))
        return TaskReport(index, tuple(outputs.close()), ())
    except BaseException:
        outputs.discard()
        raise


def _by_slice(second: SqlStage, table: pa.Table) -> Iterator[tuple[str | RowDirectories, pa.Table]]:
    """Yield rows by their place; no file has rows of two slices."""
    if not second.units:
        yield from _pieces(second, table)
        return
    given = table.column(UNIT_COLUMN)
    for unit in pc.unique(given).to_pylist():
        if unit not in second.units:
            raise ValueError(f"the transform changes {UNIT_COLUMN}; it must keep it unchanged")
        for where, rows in _pieces(second, table.filter(pc.equal(given, unit))):
            if isinstance(where, str):
                yield f"{where}{SLICE}{unit}", rows
            else:
                named = tuple(f"{directory}{SLICE}{unit}" for directory in where.directories)
                yield RowDirectories(named, where.codes), rows


def _pieces(second: SqlStage, table: pa.Table) -> Iterator[tuple[str | RowDirectories, pa.Table]]:
    layout = second.job.settings.layout
    if layout.partition_rules:
        try:
            yield place_rows(table, layout.partition_rules), table
        except Unplaceable as error:
            raise RowRefused(error.reason) from error
        return
    if not by_path(layout):
        yield "", table
        return
    given = table.column(PARTITION)
    for directory in pc.unique(given).to_pylist():
        if directory not in second.directories:
            raise ValueError(f"the transform changes {PARTITION}; it must keep it unchanged")
        yield directory, table.filter(pc.equal(given, directory))

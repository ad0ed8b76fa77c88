"""Source files in a folder, one ingest job over them, and the rows that came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.settings.formats import FormatSettings, NdjsonOptions
from blizzard_core.settings.schema import FieldType, UnexpectedFields
from blizzard_core.settings.sources import MetadataColumn, OnBadRecord
from blizzard_core.settings.tables import ParquetCompression
from blizzard_core.storage.local import LocalStorage
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject
from blizzard_py.job import (
    AddedColumns,
    Engine,
    ErrorTolerance,
    FieldSpec,
    FileLimits,
    FinishedFile,
    IngestJob,
    IngestResult,
    IngestSettings,
    JobFile,
    OutputLayout,
    PartitionRule,
    Place,
    RowSchema,
    SortKey,
    SqlSteps,
)
from blizzard_py.kernels.packing import tasks_of
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.task import run_task
from tests.support.direct_engine import DirectEngine

STAGING = "_blizzard/staging/p_s/1/1"
PREFIX = "p/s/1/1"
STARTED_TS = 1_714_996_800.25

ID_ONLY = (FieldSpec("id", "int64", nullable=False),)


def specs(**types: FieldType) -> tuple[FieldSpec, ...]:
    """Nullable fields."""
    return tuple(FieldSpec(name, kind, nullable=True) for name, kind in types.items())


@dataclass
class IngestJobHarness:
    """A source directory and a table directory below one folder."""

    root: Path
    fields: tuple[FieldSpec, ...] = ID_ONLY
    parquet: ParquetCompression = "snappy"
    file_bytes: int = 128 << 20
    row_group_bytes: int = 64 << 20
    template: str = ""
    rules: tuple[PartitionRule, ...] = ()
    sort_by: tuple[SortKey, ...] = ()
    on_bad_record: OnBadRecord = "quarantine_record"
    max_bad_fraction: float = 1.0
    metadata: tuple[MetadataColumn, ...] = ()
    path: tuple[FieldSpec, ...] = ()
    path_template: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict)
    transform: str = ""
    deduplicate_by: tuple[str, ...] = ()
    limits: FileLimits = field(default_factory=FileLimits)
    unexpected_fields: UnexpectedFields = "ignore"
    evolves: bool = False
    left_out: tuple[str, ...] = ()
    format: FormatSettings = field(default_factory=NdjsonOptions)

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def table(self) -> Path:
        return self.root / "table"

    def put(self, path: str, data: bytes) -> None:
        target = self.source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def job(self, *extra: str) -> IngestJob:
        """Return a job for all files of the source and for ``extra`` paths, even missing ones."""
        self.source.mkdir(parents=True, exist_ok=True)
        found = {
            str(p.relative_to(self.source)): p.stat().st_size
            for p in self.source.rglob("*")
            if p.is_file()
        }
        sizes = {**dict.fromkeys(extra, 10), **found}
        return IngestJob(
            IngestSettings(
                source=Place(str(self.source)),
                sink=Place(str(self.table)),
                schema=RowSchema(self.fields, self.unexpected_fields, self.evolves, self.left_out),
                layout=OutputLayout(
                    compression=self.parquet,
                    file_bytes=self.file_bytes,
                    row_group_bytes=self.row_group_bytes,
                    partition_template=self.template,
                    partition_rules=self.rules,
                    sort_by=self.sort_by,
                ),
                added_columns=AddedColumns(self.metadata, self.path, self.path_template),
                sql=SqlSteps(self.deduplicate_by, self.transform),
                tolerance=ErrorTolerance(self.on_bad_record, self.max_bad_fraction, self.limits),
                format=self.format,
            ),
            STAGING,
            PREFIX,
            tuple(
                JobFile(path, size, self.partitions.get(path, ""))
                for path, size in sorted(sizes.items())
            ),
            started_ts=STARTED_TS,
        )

    def ingest(self, *extra: str, engine: Engine | None = None) -> IngestResult:
        return (engine or DirectEngine()).ingest(self.job(*extra))

    def run_task(self, *, attempt: int = 0, threads: int = 1) -> TaskReport:
        """Run all files in one task."""
        job = self.job()
        [task] = tasks_of(job, [job.files], threads)
        source, sink = LocalStorage(str(self.source)), LocalStorage(str(self.table))
        return run_task(task, source, sink, attempt_id=7, attempt=attempt)

    def rows(self, result: IngestResult | TaskReport) -> list[dict[str, Any]]:
        """Return the rows of all reported outputs."""
        return [
            row
            for output in result.outputs
            for row in pq.read_table(self.table / output.staged).to_pylist()
        ]

    def ids(self, result: IngestResult | TaskReport) -> list[int]:
        return sorted(row["id"] for row in self.rows(result))

    def letters(self, result: IngestResult | TaskReport) -> list[dict[str, Any]]:
        """Return the staged bad records, each as it would be in the dead-letter queue."""
        staged = result.letters if isinstance(result, IngestResult) else (result.letters,)
        return [
            json.loads(line)
            for letters in staged
            if letters is not None
            for line in (self.table / letters.staged).read_bytes().splitlines()
        ]

    def dead_letters(self, report: TaskReport) -> list[DeadLetter]:
        """Return the same as they are read from the queue."""
        if report.letters is None:
            return []
        found = DeadLetterObject(report.letters.staged, "x.records", "records", 0, 0.0, False)
        return list(reader.read(LocalStorage(str(self.table)), found))

    def staged(self) -> set[str]:
        """Every object in the table directory, reported or not."""
        return {str(p.relative_to(self.table)) for p in self.table.rglob("*") if p.is_file()}


def by_path(result: IngestResult | TaskReport) -> dict[str, FinishedFile]:
    return {file.path: file for file in result.files}


def lines(*ids: int) -> bytes:
    return b"".join(b'{"id":%d}\n' % i for i in ids)

"""A query source in memory: a table, a toy connection, the real kernel, a lake."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.errors import BlizzardError
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.storage.protocol import is_hidden
from blizzard_py.app.workers import source_pipeline
from blizzard_py.connections.drivers import reader_of
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FieldSpec, IngestJob, IngestResult, PartitionRule
from blizzard_py.kernels.read_task import read_item, reading_tasks
from blizzard_py.kernels.report import merged
from blizzard_py.sources.context import SourceContext
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.toy_connection import ToyConnection, ToyTable

FIELDS = (
    FieldSpec("n", "int64", nullable=True),
    FieldSpec("text", "string", nullable=True),
)


class KernelEngine:
    """Runs a job's tasks in this process; ``jobs`` are those that were asked for."""

    def __init__(self, sink: MemoryStorage) -> None:
        self.sink = sink
        self.jobs: list[IngestJob] = []
        self._attempts = itertools.count()

    def ingest(self, job: IngestJob) -> IngestResult:
        self.jobs.append(job)
        reading = job.reading
        assert reading is not None
        read = reader_of(reading.access.driver)
        return merged(
            read_item(
                task,
                lambda spec: read(reading.access, spec, job.settings.schema.as_read.fields),
                self.sink,
                next(self._attempts),
            )
            for task in reading_tasks(job, reading)
        )

    def cancel(self, output_prefix: str) -> None:
        """Do nothing: no job runs in the background."""

    def progress(self, output_prefix: str) -> float | None:
        """Return no progress."""


class QueryHarness(PipelineHarness):
    """``asking`` are settings of `QuerySpec` besides the connection."""

    def __init__(
        self, table: ToyTable, fields: tuple[FieldSpec, ...] = FIELDS, **asking: Any
    ) -> None:
        super().__init__()
        self.table = table
        self.asking = asking
        self.fields = fields
        self.by: tuple[PartitionRule, ...] = ()
        self.job: dict[str, Any] = {}
        self.engine = KernelEngine(self.sink)  # type: ignore[assignment]

    def parts(self) -> SourceContext:
        found = super().parts()
        source = TableSourceSettings(
            kind="table", connection="toy", table="t", watermark={"columns": [self.table.column]}
        )
        asked = QuerySpec(
            ToyConnection(self.table), self.table.access, (self.table.column,), **self.asking
        )
        layout = replace(found.ingest.layout, partition_rules=self.by)
        ingest = replace(found.ingest.with_fields(self.fields), layout=layout, **self.job)
        return replace(found, source=source, query_spec=asked, ingest=ingest)

    def pipeline(self) -> SourcePipeline:
        return source_pipeline(self.parts())

    def drain_with_errors(self) -> None:
        """Poll until all rows are published, as after any number of errors."""
        for _ in range(4):
            self.now += 1000
            with contextlib.suppress(BlizzardError):
                self.drain()

    def table_rows(self) -> list[dict[str, Any]]:
        """Return all rows of all files that a committer would see."""
        return [
            row
            for path, (data, _) in sorted(self.sink.objects.items())
            if path.endswith(".parquet") and not is_hidden(path)
            for row in pq.ParquetFile(io.BytesIO(data)).read().to_pylist()
        ]

    def texts(self) -> list[str]:
        return sorted(row["text"] for row in self.table_rows())

    def known(self) -> dict[str, Any]:
        return self.checkpoint()["columns"]

    def row_letters(self) -> list[dict[str, Any]]:

        return [
            json.loads(line)
            for path, (data, _) in sorted(self.dlq.objects.items())
            if path.endswith(".records.ndjson")
            for line in data.splitlines()
        ]

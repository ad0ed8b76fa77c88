"""A source, a table and dead letters in memory, with an engine that needs no Spark.

The engine keeps the contract of `blizzard_py.job.Engine` on a toy format:
a source file's lines are its rows, a line ``bad`` condemns the file, one that
starts with ``?`` is a bad record, a path in ``flaky`` cannot be read that many
times. Outputs are the rows, joined.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from blizzard_core.errors import NotFound, Unfinished
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.sources import CheckpointSettings, SourceSettings
from blizzard_core.storage.protocol import is_hidden
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import (
    Engine,
    ErrorTolerance,
    FieldSpec,
    FinishedFile,
    IngestJob,
    IngestResult,
    IngestSettings,
    OutputLayout,
    Place,
    RowSchema,
    StagedBadRecords,
    StagedOutput,
)
from blizzard_py.sources.context import SourceContext, Stores
from tests.support.flat_settings import nested
from tests.support.memory_store import MemoryStorage


class LineEngine:
    def __init__(self, source: MemoryStorage, sink: MemoryStorage) -> None:
        self.source = source
        self.sink = sink
        self.flaky: Counter[str] = Counter()
        self.jobs: list[IngestJob] = []
        self.cancelled: list[str] = []

    def ingest(self, job: IngestJob) -> IngestResult:
        self.jobs.append(job)
        rows: dict[str, list[str]] = {}
        files = []
        bad: dict[str, list[str]] = {}
        for file in job.files:
            finished, lines = self.read(file.path)
            files.append(finished)
            if finished.bad_rows:
                bad[file.path] = [row for row in lines if row.startswith("?")]
                lines = [row for row in lines if not row.startswith("?")]
            rows.setdefault(file.partition, []).extend(lines)
        outputs = []
        for index, (partition, lines) in enumerate(sorted(rows.items())):
            if not lines:
                continue
            staged = f"{job.staging}/{index:04d}.parquet"
            data = "\n".join(lines).encode()
            self.sink.put_atomic(staged, data)
            outputs.append(
                StagedOutput(
                    staged, partition, len(lines), len(data), f"{job.output_prefix}/{index}"
                )
            )
        # What a task that died left behind: valid, and reported by no one.
        self.sink.put_atomic(f"{job.staging}/9999.parquet", b"never reported")
        return IngestResult(tuple(outputs), tuple(files), 1, self._letters(job, bad))

    def _letters(self, job: IngestJob, bad: dict[str, list[str]]) -> tuple[StagedBadRecords, ...]:
        """One object per file, the last first, as if each had a task of its own."""
        staged = []
        for number, (path, rows) in enumerate(sorted(bad.items(), reverse=True)):
            name = f"{job.staging}/{number:05d}.letters.ndjson"
            text = "".join(json.dumps({"path": path, "raw": row}) + "\n" for row in rows)
            self.sink.put_atomic(name, text.encode())
            staged.append(StagedBadRecords(name, ((path, len(rows)),)))
        return tuple(staged)

    def read(self, path: str) -> tuple[FinishedFile, list[str]]:
        if self.flaky[path] > 0:
            self.flaky[path] -= 1
            return FinishedFile(path, "retry", error="timed out", stage="read"), []
        try:
            lines = self.source.read(path).decode("utf-8-sig").splitlines()
        except NotFound as error:
            return FinishedFile(path, "quarantined", error=str(error), stage="read"), []
        if "bad" in lines:
            return FinishedFile(path, "quarantined", error="line 1: bad", stage="parse"), []
        bad = sum(row.startswith("?") for row in lines)
        why = "line 1: ?" if bad else ""
        return FinishedFile(path, "ingested", len(lines) - bad, 1, why, bad_rows=bad), lines

    def cancel(self, output_prefix: str) -> None:
        self.cancelled.append(output_prefix)

    def progress(self, output_prefix: str) -> float | None:
        """Return no progress."""

    def session(self) -> None:
        """There is no Spark."""


@contextmanager
def overtaking(engine: Engine, does: Callable[[], object]) -> Iterator[None]:
    """Let another process act while the next job runs."""
    ingest = engine.ingest

    def with_interruption(job: IngestJob) -> IngestResult:
        engine.ingest = ingest  # type: ignore[method-assign]  # for this job alone
        does()
        return ingest(job)

    engine.ingest = with_interruption  # type: ignore[method-assign]  # until the next job
    yield


class PipelineHarness:
    """A source pipeline in memory; `pipeline` makes a fresh one, as a restart does."""

    # When it begins, in epoch seconds.
    begins = 1_750_000_000.0

    def __init__(self, **source: Any) -> None:
        self.now = self.begins
        self.source = MemoryStorage("mem://raw", lambda: self.now)
        self.sink = MemoryStorage("mem://lake", lambda: self.now)
        self.dlq = MemoryStorage("mem://dlq", lambda: self.now)
        self.archive = MemoryStorage("mem://archive", lambda: self.now)
        self.engine = LineEngine(self.source, self.sink)
        self.settings: dict[str, Any] = {
            "source_uri": "mem://raw",
            "compression": "none",
            "checkpoint": CheckpointSettings(interval_files=2),
            **source,
        }
        self.errors: dict[str, Any] = {}
        self.template = ""

    def put(self, path: str, *rows: str) -> None:
        self.source.put_atomic(path, "\n".join(rows).encode())

    def parts(self) -> SourceContext:
        errors = ErrorSettings.model_validate(nested(ErrorSettings, self.errors))
        ingest = IngestSettings(
            source=Place("mem://raw"),
            sink=Place("mem://lake"),
            schema=RowSchema((FieldSpec("a", "string", nullable=True),)),
            layout=OutputLayout("snappy", file_bytes=1 << 20, partition_template=self.template),
            tolerance=ErrorTolerance(errors.on_bad_record),
        )
        return SourceContext(
            "events",
            "main",
            SourceSettings.model_validate(nested(SourceSettings, self.settings)),
            errors,
            ingest,
            Stores(self.source, self.sink, self.dlq),
            self.engine,
            # One request at a time: the same history each time, and no wait for a thread's turn.
            1,
            lambda: self.now,
            lambda: self.now,
        )

    def pipeline(self) -> SourcePipeline:
        return source_pipeline(self.parts())

    def drain(self, pipeline: SourcePipeline | None = None) -> SourcePipeline:
        """Cycle until nothing is left, as ``--once`` does."""
        worker = self.pipeline() if pipeline is None else pipeline
        busy = True
        while busy:
            try:
                busy = worker.cycle(threading.Event())
            except Unfinished as waits:
                self.now += waits.wait_secs
        return worker

    def published(self) -> dict[str, list[str]]:
        """Rows by file, of everything a committer would see."""
        return {
            path: data.decode().splitlines()
            for path, (data, _) in [*self.sink.objects.items()]
            if path.endswith(".parquet") and not is_hidden(path)
        }

    def rows(self) -> list[str]:
        return sorted(row for rows in self.published().values() for row in rows)

    def letters(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path, (data, _) in [*self.dlq.objects.items()]
            if ".records." not in path and "~records/" not in path
            for line in data.decode().splitlines()
        ]

    def records(self) -> list[list[tuple[str, str]]]:
        """Paths and lines of the bad records in each object of the dead-letter queue."""
        return [
            [(record["path"], record["raw"]) for record in map(json.loads, data.splitlines())]
            for path, (data, _) in sorted([*self.dlq.objects.items()])
            if path.endswith(".records.ndjson")
        ]

    def checkpoint(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            self.sink.read("_blizzard/events_main_checkpoint.json")
        )
        return document

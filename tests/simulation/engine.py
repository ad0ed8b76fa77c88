"""An engine without Spark: real Parquet bytes, toy records.

A source file's lines are its rows. A line ``bad`` condemns the file, ``v2`` condemns it
for jobs of an older release's schema, one that starts with ``?`` is a bad record. Files
in ``unreadable`` cannot be read before the time given there. Executors are an owner of
their own: those of a daemon that died may go on writing for a while.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import NotFound, StorageError
from blizzard_py.job import FinishedFile, IngestJob, IngestResult, StagedBadRecords, StagedOutput
from tests.simulation.scheduler import Owner
from tests.simulation.store import Client
from tests.simulation.world import SimulatedWorld

_SCHEMA = pa.schema([pa.field("row", pa.string())])


@lru_cache(maxsize=4096)
def parquet(rows: tuple[str, ...], output_id: str | None) -> bytes:
    """Return the bytes of a Parquet file of the ingest job; other writers give no id."""
    schema = _SCHEMA.with_metadata(output_id and {"blizzard.output_id": output_id})
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"row": list(rows)}, schema=schema), sink, compression="none", use_dictionary=False
    )
    data = sink.getvalue()
    ROWS[data] = rows
    return data


def spoiled(rows: tuple[str, ...], output_id: str) -> bytes:
    """Return as many rows in a column of a type that the table does not take."""
    column = pa.array([{"a": row} for row in rows])
    schema = pa.schema([pa.field("row", column.type)], {"blizzard.output_id": output_id})
    sink = io.BytesIO()
    pq.write_table(pa.table([column], schema), sink, compression="none", use_dictionary=False)
    data = sink.getvalue()
    ROWS[data] = rows
    return data


# What is in the files that were made, so that a check need not read Parquet.
ROWS: dict[bytes, tuple[str, ...]] = {}


def rows_of(data: bytes) -> tuple[str, ...]:
    """Return the rows of a file that this engine made."""
    known = ROWS.get(data)
    if known is None:
        known = tuple(pq.read_table(pa.BufferReader(data)).column(0).to_pylist())
    return known


class _Below:
    """A folder of a store, as jobs read it."""

    def __init__(self, client: Client, folder: str) -> None:
        self.uri = f"{client.uri}/{folder}"
        self._client, self._folder = client, folder

    def read(self, path: str) -> bytes:
        return self._client.read(f"{self._folder}/{path}")


class Engine:
    """Runs the jobs of one process, as ``release`` reads files."""

    def __init__(
        self,
        world: SimulatedWorld,
        executors: Owner,
        clients: Mapping[str, Client],
        sink: Client,
        release: int,
    ) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._executors = executors
        self._clients = dict(clients)
        self._sink = sink
        self._release = release

    def ingest(self, job: IngestJob) -> IngestResult:
        task = self._scheduler.current
        if task is None:
            return self._ingest(job)
        driver, task.owner = task.owner, self._executors
        self._executors.tasks[task] = None
        try:
            return self._ingest(job)
        finally:
            task.owner = driver
            self._executors.tasks.pop(task, None)

    def cancel(self, output_prefix: str) -> None:
        """Jobs are short."""

    def progress(self, output_prefix: str) -> float | None:
        """Return no progress."""

    def _ingest(self, job: IngestJob) -> IngestResult:
        source = self._source(job)
        if self._world.slow_secs:
            secs, self._world.slow_secs = self._world.slow_secs, 0.0
            self._scheduler.sleep(secs)
        files = []
        rows: dict[str, list[str]] = {}
        bad: dict[str, list[str]] = {}
        for file in job.files:
            finished, lines = self._read(source, file.path)
            files.append(finished)
            if finished.bad_rows:
                bad[file.path] = [row for row in lines if row.startswith("?")]
            rows.setdefault(file.partition, []).extend(r for r in lines if r[:1] not in {"?", ""})
        outputs = []
        for index, (partition, lines) in enumerate(sorted(rows.items())):
            if not lines:
                continue
            staged = f"{job.staging}/{index:04d}.parquet"
            name = f"{job.output_prefix}/{index}"
            data = self._parquet(tuple(lines), name)
            self._sink.put_atomic(staged, data)
            outputs.append(StagedOutput(staged, partition, len(lines), len(data), name))
        return IngestResult(tuple(outputs), tuple(files), 1, self._letters(job, bad))

    def _source(self, job: IngestJob) -> Client | _Below:
        """Return the client for a job's files: of a source, or of a folder with dead letters."""
        uri = job.settings.source.uri
        if uri in self._clients:
            return self._clients[uri]
        home, _, folder = uri.rpartition("/")
        return _Below(self._clients[home], folder)

    def _parquet(self, rows: tuple[str, ...], name: str) -> bytes:
        if not self._world.spoiling:
            return parquet(rows, name)
        self._world.spoiling -= 1
        self._world.counts["outputs spoiled"] += 1
        return spoiled(rows, name)

    def _letters(
        self, job: IngestJob, bad: Mapping[str, list[str]]
    ) -> tuple[StagedBadRecords, ...]:
        staged = []
        source = self._source(job)
        for number, (path, rows) in enumerate(sorted(bad.items())):
            name = f"{job.staging}/{number:05d}.letters.ndjson"
            lines = [
                {
                    "path": f"{source.uri}/{path}",
                    "error": "line is bad",
                    "stage": "parse",
                    "timestamp": "2024-01-28T00:00:00Z",
                    "line": line,
                    "offset": 0,
                    "length": len(row),
                    "raw": row,
                }
                for line, row in enumerate(rows, 1)
            ]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            self._sink.put_atomic(name, text.encode())
            staged.append(StagedBadRecords(name, ((path, len(rows)),)))
        return tuple(staged)

    def _read(self, source: Client | _Below, path: str) -> tuple[FinishedFile, list[str]]:
        if self._scheduler.now < self._world.unreadable.get(path, 0.0):
            return FinishedFile(path, "retry", error="timed out", stage="read"), []
        try:
            lines = source.read(path).decode("utf-8-sig").splitlines()
        except NotFound as error:
            return FinishedFile(path, "quarantined", error=str(error), stage="read"), []
        except StorageError as error:
            return FinishedFile(path, "retry", error=str(error), stage="read"), []
        if "bad" in lines or ("v2" in lines and self._release < 2):
            return FinishedFile(path, "quarantined", error="line 1: bad", stage="parse"), []
        lines = [line for line in lines if line != "v2"]
        bad = sum(row.startswith("?") for row in lines)
        error = "line 1: ?" if bad else ""
        return FinishedFile(path, "ingested", len(lines) - bad, 1, error, bad_rows=bad), lines

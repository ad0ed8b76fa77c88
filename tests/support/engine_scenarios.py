"""Scenarios that every Spark engine passes on any master; called by the tests of each master."""

from __future__ import annotations

import dataclasses
import gzip
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from blizzard_core.errors import Cancelled
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.job import IngestResult
from tests.support.ingest_job_harness import STAGING, IngestJobHarness, by_path, lines, specs
from tests.support.pipe import Pipe, holders


def ingests_a_batch(engine: SparkEngine, world: IngestJobHarness) -> None:
    """Several tasks, a bad file, names and ids as ever."""
    for number in range(6):
        world.put(f"{number}.ndjson", lines(*range(number * 100, (number + 1) * 100)))
    world.put("zz.gz", gzip.compress(b"{}\n")[:-6])
    job = world.job()
    files = tuple(dataclasses.replace(file, size=2 << 20) for file in job.files)
    result = engine.ingest(dataclasses.replace(job, files=files))
    assert result.tasks > 1
    assert world.ids(result) == list(range(600))
    assert by_path(result)["zz.gz"].stage == "decompress"


def transforms_a_batch(engine: SparkEngine, world: IngestJobHarness) -> None:
    world.put("a.ndjson", lines(1, 2, 2, 3))
    world.deduplicate_by = ("id",)
    world.transform = "SELECT id * 2 AS id FROM source WHERE id > 1"
    result = world.ingest(engine=engine)
    assert world.ids(result) == [4, 6]
    assert result.rows_dropped == 2


def refuses_statements(engine: SparkEngine, world: IngestJobHarness) -> list[str]:
    """Return the errors for a syntax error, an aggregate, a random number and a foreign table."""
    said = []
    for statement in (
        "SELEC id FROM source",
        "SELECT count(*) AS n FROM source",
        "SELECT rand() AS r FROM source",
        "SELECT id FROM range(3)",
        "DROP VIEW source",
    ):
        world.transform = statement
        with pytest.raises(Exception, match="problem") as caught:
            engine.columns("p", world.job().settings)
        said.append(str(caught.value))
    return said


def cancels_the_first_job(engine: SparkEngine, world: IngestJobHarness) -> None:
    job = dataclasses.replace(world.job("stuck.ndjson"), output_prefix="to/cancel/1/1")
    with ThreadPoolExecutor(1) as pool, Pipe(world, "stuck.ndjson") as pipe:
        stuck = pool.submit(engine.ingest, job)
        pipe.wait_for_reader(stuck)
        engine.cancel("to/cancel/1/1")
        with pytest.raises(Cancelled, match="to/cancel/1/1"):
            stuck.result()
        pipe.wait_for_no_reader()


def cancels_the_second_job(engine: SparkEngine, world: IngestJobHarness) -> None:
    _make_long(world, 20_000, 20_000)
    job = dataclasses.replace(world.job(), output_prefix="to/cancel/2/1")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.ingest, job)
        _wait_for_second(world, running)
        engine.cancel("to/cancel/2/1")
        with pytest.raises(Cancelled, match="to/cancel/2/1"):
            running.result()


def survives_a_killed_worker(engine: SparkEngine, world: IngestJobHarness) -> None:
    world.put("a.ndjson", lines(1, 2))
    with ThreadPoolExecutor(1) as pool, Pipe(world, "b.ndjson") as pipe:
        running = pool.submit(engine.ingest, world.job("b.ndjson"))
        pipe.kill_reader(running)
        pipe.wait_for_reader(running)
        result = pipe.feed(lines(3), running)
    assert world.ids(result) == [1, 2, 3]
    assert {file.outcome for file in result.files} == {"ingested"}


def survives_a_killed_worker_of_the_second_job(
    engine: SparkEngine, world: IngestJobHarness
) -> None:
    _make_long(world, 2500, 2500)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.ingest, world.job())
        for pid in _wait_for_second(world, running):
            os.kill(pid, signal.SIGKILL)
        result = running.result()
    assert sum(output.rows for output in result.outputs) == 2500**2
    assert len({output.output_id for output in result.outputs}) == len(result.outputs)


def the_package_comes_along(engine: SparkEngine) -> None:
    """Workers import it from the file that was sent, not from this machine's disk."""

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import blizzard_core  # noqa: PLC0415  # the worker's, not ours
        import blizzard_py  # noqa: PLC0415  # the worker's, not ours

        for _ in batches:
            path = [blizzard_core.__file__, blizzard_py.__file__]
            yield pa.RecordBatch.from_pydict({"path": path})

    rows = engine.session().range(0, 1, 1, 1).mapInArrow(where, "path string").collect()
    assert rows[0]["path"].endswith("blizzard.zip/blizzard_core/__init__.py")
    assert rows[1]["path"].endswith("blizzard.zip/blizzard_py/__init__.py")


def _make_long(world: IngestJobHarness, records: int, rows_of_each: int) -> None:
    """Set a transform that makes ``records`` times ``rows_of_each`` rows, and writes all the time.

    Spark holds all the rows that one record becomes, so a few records must not make them all.
    """
    world.fields = specs(id="int64")
    world.file_bytes = 1 << 20
    world.put("a.ndjson", lines(*range(records)))
    many = f"LATERAL VIEW explode(sequence(1L, {rows_of_each}L))"
    world.transform = f"SELECT id * a AS n FROM source {many} AS a"


def _wait_for_second(world: IngestJobHarness, running: Future[IngestResult]) -> set[int]:
    """Wait for the workers that write outputs; return their process ids."""
    outputs = Path(world.table, STAGING, "0")
    while not (found := holders(outputs)):
        assert not running.done()
    return found

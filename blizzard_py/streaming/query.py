"""One long-running query over one working copy: start it, offer a batch, wait for it, stop it.

This module does not know our state. The conditions for a finished batch, all measured on Spark 4.3:

* ``processAllAvailable`` also waits for the empty micro-batch after a moved watermark. But it may
  return normally when the query has died or was stopped. So the query must be active, without an
  exception, and must report a micro-batch that ends at the offer.
* The callback runs the frame exactly once and to its end; otherwise Spark refuses the micro-batch.
  Its errors travel as text through both languages, and a long text has ended the stream's thread.
  So it saves the error and raises a short one.
* Progress is matched by offset and micro-batch, never by count: the first start runs an empty one.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from blizzard_core.errors import BlizzardError, Cancelled, ConfigError, EngineError
from blizzard_core.settings.event_time import EMITTED_BATCH
from blizzard_py.engines.spark.failures import FAILURES, reason_of
from blizzard_py.engines.spark.job_secrets import attach_secrets
from blizzard_py.engines.spark.transform_guard import spark_message
from blizzard_py.engines.spark.worker import nothing, reports, write_emitted
from blizzard_py.job import IngestJob
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.sql_stage import SqlStage
from blizzard_py.state.stream_state import OperatorState
from blizzard_py.streaming.batch_queue import Offer, begin_after, publish_number
from blizzard_py.streaming.operators import Definition, frame_of
from blizzard_py.streaming.query_watermark import watermarks_of
from blizzard_py.streaming.source import StagedRows

_STATE = "spark.sql.streaming.stateStore"
SETTINGS = {
    # The source delays its answer while nothing is offered, so this is not the real cost.
    "spark.sql.streaming.pollingDelay": "10ms",
    # All of these are read after each batch; a batch has few.
    "spark.sql.streaming.numRecentProgressUpdates": "8",
    # If the machine is suspended, Spark would report ten idle seconds as progress. Such a report
    # names a micro-batch that does not exist.
    "spark.sql.streaming.noDataProgressEventInterval": "1000d",
    # Spark's default uses Hadoop's FileContext. On a local disk it starts a process (`readlink`,
    # `chmod`) for each step of each file: about 200 in a small batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # A checksum file for each file, and a process for each here as well. Restored files are checked
    # against the digests of the archive. Hadoop's checksums stay: its file system without them
    # cannot upload a snapshot of RocksDB.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # It generates and compiles code for each micro-batch: a quarter of a small one's time, without
    # a measurable gain below a million rows.
    "spark.sql.codegen.wholeStage": "false",
    # Each is a file in every archive; older ones are useless, since we never go back.
    "spark.sql.streaming.minBatchesToRetain": "5",
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # The reported counts of state need it.
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "true",
    f"{_STATE}.checkpointFormatVersion": "2",
    # The next version stores the path of the directory, and a copy elsewhere cannot be read.
    "spark.sql.streaming.join.stateFormatVersion": "2",
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch as Spark reports it."""

    number: int
    end: int
    operators: tuple[OperatorState, ...]
    secs: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a batch: the reports of its callbacks, and its micro-batches in order.

    ``used_ms`` is the watermark of the first micro-batch, which had the batch's rows. ``judged_ms``
    is that of the last one, and ``watermark_ms`` that of the next.
    """

    reports: tuple[TaskReport, ...]
    micro_batches: tuple[MicroBatch, ...]
    used_ms: int
    judged_ms: int
    watermark_ms: int


class StreamQuery:
    """The query over ``folder``: the working copy is its ``checkpoint``, offers are in ``offers``.

    It begins after batch ``settled``. ``schema`` is that of its output. Raises `EngineError` if it
    cannot be started, `ConfigError` if Spark refuses it.
    """

    def __init__(
        self, root: SparkSession, definition: Definition, folder: Path, settled: int, name: str
    ) -> None:
        self.root = root
        self.checkpoint = folder / "checkpoint"
        self._definition = definition
        self._offers = folder / "offers"
        self._offers.mkdir(parents=True)
        self._name = name
        self._lock = threading.Lock()
        self._job: IngestJob | None = None
        self._number = settled
        self._reports: list[TaskReport] = []
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._seen = -1  # the last micro-batch that was counted
        begin_after(self._offers, settled)
        try:
            self._query = self._started(root)
        except AnalysisException as error:
            place = f"pipelines.{name.partition('/')[0]}.event_time"
            raise ConfigError(place, [spark_message(str(error))]) from None
        except FAILURES as error:
            raise EngineError(
                f"{name}: the query could not be started: {reason_of(error)}"
            ) from None

    def run_batch(self, number: int, offer: Offer, job: IngestJob) -> QueryResult:
        """Offer a batch and wait until its work is finished.

        After any error the working copy is useless: `EngineError`, `Cancelled` if `stop` was
        called, and any error of the callback.
        """
        done = self._done(number, offer, job)
        used, _ = watermarks_of(self.checkpoint, done[0].number)
        judged, upcoming = watermarks_of(self.checkpoint, self._seen)
        return QueryResult(tuple(self._reports), done, used, judged, upcoming)

    def move(self, number: int, ticks: Offer) -> int:
        """Make ticks move the watermark, in a query without state yet.

        Returns the watermark of the last micro-batch, by which late rows of the next are found.
        Writes nothing. Raises as `run_batch` does.
        """
        self._done(number, ticks, None)
        judged, _ = watermarks_of(self.checkpoint, self._seen)
        return judged

    def _done(self, number: int, offer: Offer, job: IngestJob | None) -> tuple[MicroBatch, ...]:
        """Offer it, wait until its work is finished, and return its micro-batches."""
        with self._lock:
            self._job, self._number, self._reports, self._error = job, number, [], None
        try:
            publish_number(self._offers, number, offer)
            self._query.processAllAvailable()
            self._check()
            done = self._micro_batches(number)
        except FAILURES as error:
            self._raise_saved_error()
            raise EngineError(f"{self._name}: the query failed: {reason_of(error)}") from None
        if not done or all(each.end != number for each in done):
            raise EngineError(f"{self._name}: the query reports nothing about batch {number}")
        self._seen = done[-1].number
        return done

    def stop(self) -> None:
        """End the query; threads that wait for it are notified."""
        self._stopped.set()
        try:
            self._query.stop()
        except FAILURES:  # its JVM is gone, and so is the query
            return

    @property
    def is_active(self) -> bool:
        """True if it may be offered more batches."""
        try:
            return self._query.isActive and self._query.exception() is None
        except FAILURES:
            return False

    def _started(self, root: SparkSession) -> StreamingQuery:
        session = root.newSession()
        # The query's thread inherits it, so pipelines share the cores fairly.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self._name)
        given = self._definition.settings
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        session.conf.set("spark.sql.shuffle.partitions", str(given.advanced.partitions))
        session.conf.set("spark.sql.streaming.multipleWatermarkPolicy", given.advanced.policy)
        empty = "true" if given.advanced.emit == "each_batch" else "false"
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", empty)
        if given.join is not None:  # a bound of a day is 24 hours, also when clocks change
            session.conf.set("spark.sql.session.timeZone", "UTC")
        session.dataSource.register(StagedRows)
        frame = frame_of(session, self._definition, str(self._offers))
        written = self._definition.written_columns(frame.schema)
        self.schema: pa.Schema = to_arrow_schema(written, timezone="UTC")
        return (
            frame.writeStream.foreachBatch(self._emitted)
            .outputMode(given.mode)
            .queryName(self._name)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _emitted(self, frame: DataFrame, _micro_batch: int) -> None:
        """Write the output of a micro-batch, once and to its end: the callback."""
        try:
            with self._lock:
                job, number = self._job, self._number
            if job is None:
                reports(frame, nothing).collect()  # without a job: a start, or ticks alone
                return
            # Tasks add it: in the query it would be different code to compile for each batch.
            same = {EMITTED_BATCH: number} if self._definition.emitted_batch else {}
            with attach_secrets(self.root.sparkContext, job) as bare:
                stage = SqlStage(bare.without_items, self.schema, frozenset())
                write = functools.partial(write_emitted, stage, same)
                rows = reports(frame, write).collect()
            found = [TaskReport.from_json(row["result"]) for row in rows]
            with self._lock:
                # In mode complete each micro-batch has everything, so the last one counts.
                complete = self._definition.settings.mode == "complete"
                self._reports = found if complete else [*self._reports, *found]
        except BaseException as error:
            with self._lock:
                self._error = error
            raise RuntimeError("the batch's rows could not be written") from None

    def _check(self) -> None:
        """Raise if the query did not finish its work."""
        self._raise_saved_error()
        if self._stopped.is_set():
            raise Cancelled(f"{self._name}: stopped")
        if (error := self._query.exception()) is not None:
            raise EngineError(f"{self._name}: the query failed: {reason_of(error)}")
        if not self._query.isActive:
            raise EngineError(f"{self._name}: the query has ended")

    def _raise_saved_error(self) -> None:
        with self._lock:
            error, self._error = self._error, None
        if self._stopped.is_set():
            raise Cancelled(f"{self._name}: stopped") from None
        if isinstance(error, BlizzardError):
            raise error
        if error is not None and isinstance(error, Exception):
            raise EngineError(f"{self._name}: writing failed: {reason_of(error)}") from None

    def _micro_batches(self, number: int) -> tuple[MicroBatch, ...]:
        """Return the micro-batches since the last finished batch, from the query's progress."""
        found = (_micro_batch(json.loads(one.json)) for one in self._query.recentProgress)
        fresh = {m.number: m for m in found if m.number > self._seen and m.end == number}
        return tuple(fresh[key] for key in sorted(fresh))


def _micro_batch(progress: Mapping[str, Any]) -> MicroBatch:
    operators: Sequence[Mapping[str, Any]] = progress["stateOperators"]
    end = progress["sources"][0]["endOffset"]
    return MicroBatch(
        progress["batchId"],
        end["batch"] if isinstance(end, Mapping) else -1,
        tuple(
            OperatorState(
                each["operatorName"],
                each["numRowsTotal"],
                each["memoryUsedBytes"],
                each["numRowsUpdated"],
                each["numRowsRemoved"],
                each["numRowsDroppedByWatermark"],
            )
            for each in operators
        ),
        progress.get("batchDuration", 0) / 1000,
    )


# A start takes some Python processes; each imports for about a second of CPU time and must answer
# Spark within ten seconds. Five pipelines that started together on two cores failed by that;
# twenty made no batch. Two starts keep two cores busy and leave each process enough time.
STARTS = 2
# The interval at which a waiting start checks whether it was cancelled.
_LOOK_SECS = 0.2

_turns = threading.BoundedSemaphore(STARTS)


@contextmanager
def wait_for_turn(check_wanted: Callable[[], None]) -> Iterator[None]:
    """Wait until fewer queries start, and count as one of them until the block ends.

    Calls ``check_wanted`` meanwhile and raises its errors.
    """
    while not _turns.acquire(timeout=_LOOK_SECS):
        check_wanted()
    try:
        yield
    finally:
        _turns.release()

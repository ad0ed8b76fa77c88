"""Events of OpenLineage: which batch read what, and which commit put it into which table.

A batch reads its source and writes to the table; a commit gives the table a version. Runs have
START, COMPLETE, FAIL or ABORT, with counts; the source has the columns that a batch reads, and the
table those that it has after the commit.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    schema_dataset,
    set_producer,
    tags_run,
)

from blizzard_core.handover.outputs import output_id_of
from blizzard_core.log import get_logger

if TYPE_CHECKING:
    from blizzard_core.observability import runs

PRODUCER = "https://pypi.org/project/blizzard-penguin"
NAMESPACE = "blizzard-penguin"
# Events that wait for a slow receiver; more are dropped.
WAITING_AT_MOST = 1000
CLOSE_SECS = 5.0
_STATES = {
    "start": RunState.START,
    "complete": RunState.COMPLETE,
    "fail": RunState.FAIL,
    "abort": RunState.ABORT,
}


class Lineage:
    """The sink that sends events in a thread of its own.

    Dropped events are logged once until none waits, and failures once until an event is received:
    a receiver that is down for hours must not fill the log.
    """

    def __init__(self, client: OpenLineageClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._is_dropping = self._is_failing = False
        self._waiting: queue.Queue[runs.RunEvent | None] = queue.Queue(WAITING_AT_MOST)
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def take(self, event: runs.RunEvent) -> None:
        """Queue an event, or drop it if too many wait."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            if not self._is_dropping:
                self._is_dropping = True
                get_logger().warning("lineage_dropped", run=event.key, waiting=WAITING_AT_MOST)

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECS` at most."""
        until = time.monotonic() + CLOSE_SECS
        try:
            self._waiting.put(None, timeout=CLOSE_SECS)
        except queue.Full:
            return
        self._thread.join(max(0.0, until - time.monotonic()))

    def _send_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._client.emit(lineage_event(event, self._namespace))
                self._is_failing = False
            except Exception as error:  # the transport's; the next event may pass
                if not self._is_failing:
                    self._is_failing = True
                    get_logger().warning("lineage_failed", run=event.key, error=repr(error))
            if self._waiting.empty():
                self._is_dropping = False


def lineage(target: str, environment: Mapping[str, str]) -> Lineage:
    """Return the sink that sends to a URL, or appends to a file.

    ``OPENLINEAGE_API_KEY`` and ``OPENLINEAGE_NAMESPACE`` count, as in other producers.
    """
    set_producer(PRODUCER)
    transport: dict[str, Any] = {"type": "file", "log_file_path": target, "append": True}
    if target.startswith(("http://", "https://")):
        transport = {"type": "http", "url": target}
        if key := environment.get("OPENLINEAGE_API_KEY"):
            transport["auth"] = {"type": "api_key", "apiKey": key}
    namespace = environment.get("OPENLINEAGE_NAMESPACE", NAMESPACE)
    return Lineage(OpenLineageClient(config={"transport": transport}), namespace)


def lineage_event(event: runs.RunEvent, namespace: str) -> RunEvent:
    """Return an event as OpenLineage has it."""
    job = event.job
    about_run: dict[str, RunFacet] = {"tags": tags_run.TagsRunFacet(_tags(event.key))}
    if event.kind == "fail":
        about_run["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.error, "Python")
    return RunEvent(
        eventTime=datetime.fromtimestamp(event.at, UTC).isoformat(),
        producer=PRODUCER,
        eventType=_STATES[event.kind],
        run=Run(str(uuid.uuid5(uuid.NAMESPACE_URL, event.key)), about_run),
        job=Job(
            namespace,
            f"{job.daemon}.{job.name}",
            {"jobType": job_type_job.JobTypeJobFacet("BATCH", job.daemon.upper(), "JOB")},
        ),
        inputs=[] if job.source is None else [_input(event, job.source)],
        outputs=[_output(event, job.table)],
    )


def _input(event: runs.RunEvent, uri: str) -> InputDataset:
    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    counts: dict[str, InputDatasetFacet] = {}
    if event.kind == "complete":
        counts["inputStatistics"] = facet(*_counts(event.result.read))
    return InputDataset(*dataset_name(uri), counts, facets=_schema(event.result.columns))


def _output(event: runs.RunEvent, uri: str) -> OutputDataset:
    result = event.result
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    counts: dict[str, OutputDatasetFacet] = {}
    if event.kind == "complete":
        counts["outputStatistics"] = facet(*_counts(result.written))
    # A batch does not know the table's columns: a transform may have made them.
    about = _schema(result.columns) if event.job.source is None else {}
    if result.version is not None:
        about["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(result.version))
    return OutputDataset(*dataset_name(uri), counts, facets=about)


def _counts(counts: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(counts.get(name) for name in ("rows", "bytes", "files"))


def dataset_name(uri: str) -> tuple[str, str]:
    """Return the namespace and the name of a dataset, as OpenLineage's naming has them."""
    found = urlsplit(uri)
    if not found.scheme or not found.netloc:
        return "file", found.path or uri
    return f"{found.scheme}://{found.netloc}", found.path.strip("/") or "/"


def _tags(key: str) -> list[tags_run.TagsRunFacetFields]:
    batch = output_id_of(f"{key}/")
    if batch is None:
        return []
    named = {"batch": batch.batch, "attempt": str(batch.attempt)}
    return [tags_run.TagsRunFacetFields(name, text, "blizzard") for name, text in named.items()]


def _schema(columns: Iterable[tuple[str, str]]) -> dict[str, DatasetFacet]:
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)} if fields else {}

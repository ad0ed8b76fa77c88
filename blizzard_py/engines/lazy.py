"""An engine that is made with its first job.

Importing Spark takes longer than a poll, and a daemon with idle sources never needs it. Until there
is work, neither the import nor a JVM costs anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from blizzard_py.job import Engine, IngestJob, IngestResult, IngestSettings
from blizzard_py.reading import Access

_CANCEL_INTERVAL_SECS = 0.1


@runtime_checkable
class HasSession(Protocol):
    """An engine that has a Spark session."""

    def session(self) -> Any:
        """Return the Spark session, started if there is none; for modules that know Spark."""


class StoppableEngine(Engine, HasSession, Protocol):
    """An engine with resources that are held until it is stopped."""

    def ask(self, access: Access, statement: str) -> pa.Table:
        """Return the complete result of a query; for databases that only the engine can reach."""

    def columns(self, pipeline: str, settings: IngestSettings) -> pa.Schema:
        """Return the columns of a pipeline's query. Raises `ConfigError` if it cannot be used."""

    def stop(self) -> None:
        """Release everything; running jobs fail."""


class LazyEngine:
    """A proxy for the engine that ``make`` returns; ``make`` is called once, with the first job.

    A failed ``make`` fails only that job; the next job tries again.
    """

    def __init__(self, make: Callable[[], StoppableEngine]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: StoppableEngine | None = None
        self._ended: dict[str, threading.Event] = {}

    def ingest(self, job: IngestJob) -> IngestResult:
        """See `Engine.ingest`."""
        ended = self._ended[job.output_prefix] = threading.Event()
        try:
            return self._engine().ingest(job)
        finally:
            del self._ended[job.output_prefix]
            ended.set()

    def ask(self, access: Access, statement: str) -> pa.Table:
        """See `StoppableEngine.ask`."""
        return self._engine().ask(access, statement)

    def session(self) -> Any:
        """See `HasSession`."""
        return self._engine().session()

    def columns(self, pipeline: str, settings: IngestSettings) -> pa.Schema:
        """See `StoppableEngine.columns`."""
        return self._engine().columns(pipeline, settings)

    def cancel(self, output_prefix: str) -> None:
        """Cancel as `Engine.cancel` does, including a job that still waits for its engine."""
        ended = self._ended.get(output_prefix)
        # The engine registers the job later than this class: repeat until it is gone.
        while ended is not None and not ended.is_set():
            if self._made is not None:
                self._made.cancel(output_prefix)
            ended.wait(_CANCEL_INTERVAL_SECS)

    def progress(self, output_prefix: str) -> float | None:
        """See `Engine.progress`."""
        return None if self._made is None else self._made.progress(output_prefix)

    def stop(self) -> None:
        """Stop the engine if there is one."""
        with self._making:
            made, self._made = self._made, None
        if made is not None:
            made.stop()

    def _engine(self) -> StoppableEngine:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

"""An engine that is made with its first job.

Importing Spark takes longer than a poll, and a daemon whose sources are idle
never needs it: until there is work, neither the import nor a JVM is paid for.
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
        """The Spark session, started if there is none; for modules that know Spark."""


class StoppableEngine(Engine, HasSession, Protocol):
    """An engine that holds something until it is stopped."""

    def ask(self, access: Access, statement: str) -> pa.Table:
        """The whole answer of a database that only the engine has a driver for."""

    def columns(self, pipeline: str, settings: IngestSettings) -> pa.Schema:
        """The columns that a pipeline's query gives. Raises `ConfigError` if it cannot be used."""

    def stop(self) -> None:
        """Let go of everything; running jobs fail."""


class LazyEngine:
    """Stands for the engine that ``make`` returns and calls ``make`` once, when a job comes.

    A failed ``make`` fails that job only; the next one tries again.
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
        """See `Engine.cancel`; a job that still waits for its engine is ended, too."""
        ended = self._ended.get(output_prefix)
        # The engine knows the job only some time after we do: ask until it is gone.
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

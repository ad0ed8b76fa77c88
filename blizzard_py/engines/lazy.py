"""An engine that is made with its first job, and may be released when there is no work.

Importing Spark takes longer than a poll, and a daemon with idle sources never needs it. Until there
is work, neither the import nor a JVM costs anything.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from blizzard_core.errors import BlizzardError
from blizzard_core.log import get_logger
from blizzard_py.job import IngestJob, IngestResult, IngestSettings
from blizzard_py.reading import Access

if TYPE_CHECKING:
    import pyarrow as pa

    from blizzard_py.engines.spark.engine import SparkEngine

_CANCEL_INTERVAL_SECS = 0.1


class Timer(Protocol):
    """A call that waits, as `threading.Timer`."""

    daemon: bool

    def start(self) -> None: ...

    def cancel(self) -> None: ...


class LazyEngine:
    """A proxy for the engine that ``make`` returns; ``make`` is called with the first job.

    A failed ``make`` fails only that job; the next job tries again. After ``idle_secs`` without a
    job the engine is released, and made again by the next one. A query keeps its `session`, so an
    engine whose session was asked for stays.
    """

    def __init__(
        self,
        make: Callable[[], SparkEngine],
        idle_secs: float | None = None,
        timer: Callable[[float, Callable[[], None]], Timer] = threading.Timer,
    ) -> None:
        self._make = make
        self._idle_secs = idle_secs
        self._timer = timer
        self._making = threading.Lock()
        self._made: SparkEngine | None = None
        self._ended: dict[str, threading.Event] = {}
        self._users = 0
        self._uses = 0
        self._waiting: Timer | None = None
        self._starting: threading.Thread | None = None

    def ingest(self, job: IngestJob) -> IngestResult:
        """See `Engine.ingest`."""
        ended = self._ended[job.output_prefix] = threading.Event()
        try:
            with self._in_use() as engine:
                return engine.ingest(job)
        finally:
            del self._ended[job.output_prefix]
            ended.set()

    def start_in_background(self, *, warm: bool = False) -> None:
        """Start the engine in a thread, where a job is sure to follow; it meets a failure again.

        ``warm``: it may follow much later, and must not wait then.
        """
        with self._making:
            if self._made is not None or self._starting is not None:
                return
            self._starting = threading.Thread(
                target=self._start, args=(warm,), name="engine-start", daemon=True
            )
            self._starting.start()

    def _start(self, warm: bool) -> None:  # a thread's argument
        with contextlib.suppress(BlizzardError), self._in_use() as engine:
            if warm:
                engine.warm_up()
            else:
                engine.start()

    def ask(self, access: Access, statement: str) -> pa.Table:
        """See `SparkEngine.ask`."""
        with self._in_use() as engine:
            return engine.ask(access, statement)

    def session(self) -> Any:
        """See `Engine.session`; its engine stays."""
        with self._making:
            self._idle_secs = None
        with self._in_use() as engine:
            return engine.session()

    def columns(self, pipeline: str, settings: IngestSettings) -> pa.Schema:
        """See `SparkEngine.columns`."""
        with self._in_use() as engine:
            return engine.columns(pipeline, settings)

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
        if self._starting is not None:
            self._starting.join()
        with self._making:
            made, self._made = self._made, None
        if made is not None:
            made.stop()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[SparkEngine]:
        with self._making:
            if self._made is None:
                self._made = self._make()
            engine = self._made
            self._users += 1
            self._uses += 1
            if self._waiting is not None:
                self._waiting.cancel()
        try:
            yield engine
        finally:
            with self._making:
                self._users -= 1
                if not self._users and self._idle_secs is not None:
                    call = partial(self._release, self._uses)
                    self._waiting = self._timer(self._idle_secs, call)
                    self._waiting.daemon = True
                    self._waiting.start()

    def _release(self, uses: int) -> None:
        """Release the engine if it was not used again: a timer may be cancelled too late."""
        with self._making:
            if self._uses == uses and not self._users:
                made, self._made = self._made, None
                if made is not None:
                    made.release()
                    get_logger().info("spark_released", idle_secs=self._idle_secs)

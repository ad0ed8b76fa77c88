"""The interface between a batch and the jobs that make outputs of its files.

`blizzard_py.ingest.batch_runner` brings files from planned to done and does not know how their rows
become the table's. Most pipelines run one job of the engine; one over event time settles the batch
in a query that remembers the ones before (`blizzard_py.streaming.jobs`). The state of such a query
counts from the same save as the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from blizzard_py.job import Engine, IngestJob, IngestResult
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_state import StreamState


@dataclass(frozen=True, slots=True)
class Ingested:
    """A job's result and, of a query that remembers, what it will know once that is saved."""

    result: IngestResult
    stream: StreamState | None = None


class Jobs:
    """Runs the jobs of one source, one at a time. Here nothing is remembered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self, state: SourceState, where: str) -> None:
        """Raise `StateError` if what is kept in ``state`` does not go with what these jobs compute.

        ``where`` it is saved. May ask the engine.
        """

    def run(self, state: SourceState, job: IngestJob, epoch: int) -> Ingested:  # noqa: ARG002  # others remember
        """Bring the job to its end, in a thread that touches no state.

        ``state`` is saved, in ``epoch``, and everything that counts. Raises as `Engine.ingest`
        does, and `StateError` where what is kept beside the state is not there.
        """
        return Ingested(self._engine.ingest(job))

    def has_due(self, state: SourceState) -> bool:  # noqa: ARG002  # others remember
        """Return whether a batch is due without files, too: for something that is saved."""
        return False

    def cancel(self, output_prefix: str) -> None:
        """End the running job with that prefix soon; no effect if there is none."""
        self._engine.cancel(output_prefix)

    def progress(self, output_prefix: str) -> float | None:
        """Return how much of the running job is done; see `Engine.progress`."""
        return self._engine.progress(output_prefix)

    def clean_up(self, state: SourceState) -> None:
        """Remove replaced data after a batch is done and ``state`` is saved."""

    def close(self) -> None:
        """Let go of what is held open."""

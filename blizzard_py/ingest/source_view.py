"""One source for inspection: its stored state, the next poll, pending work. Writes nothing.

The pipeline (`blizzard_py.ingest.source_pipeline`) uses the same view, so ``plan``, ``status`` and
a poll always agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import DeadLetterObject, objects
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Backlog, CheckpointServices, Opener, Source, SourceScan
from blizzard_py.state.checkpoint_file import check_identity, read_state
from blizzard_py.state.source_state import SourceState, checkpoint_path
from blizzard_py.state.stream_query import check_query
from blizzard_py.state.transitions import end_batch


class SourceView:
    """A source as it is in storage."""

    def __init__(self, parts: SourceContext, source: Source[Any]) -> None:
        self.pipeline = parts.pipeline
        self.source_name = parts.source_name
        self.checkpoint_path = checkpoint_path(parts.id)
        self.source = source
        self.parts = parts
        self._where = f"{parts.stores.sink.uri}/{self.checkpoint_path}"

    @staticmethod
    def opened(parts: SourceContext, opens: Opener) -> SourceView:
        """Return the source that ``opens`` makes, without what only its owner may do."""
        services = CheckpointServices(
            _is_no_owner, parts.clock, _is_no_owner, _is_no_owner, _is_no_owner, _is_no_owner
        )
        return SourceView(parts, opens(parts, services))

    @property
    def each(self) -> tuple[SourceContext, ...]:
        """The parts of every source that it is made of: itself, or several that share batches."""
        return self.parts.members or (self.parts,)

    @property
    def name(self) -> str:
        """``pipeline/source``."""
        return self.parts.name

    @property
    def id(self) -> str:
        """Return what its state is named by."""
        return self.parts.id

    @property
    def poll_interval_secs(self) -> float:
        """From the source's settings."""
        return self.parts.source.poll_interval

    @property
    def sink(self) -> Storage:
        """The table's storage, where the state is."""
        return self.parts.stores.sink

    def load(self) -> SourceState:
        """Return the stored state, or a cold start. Raises `StateError`, `StorageError`."""
        found = read_state(self.sink, self.id)
        return SourceState() if found is None else found

    def outlook(self, state: SourceState) -> SourceState:
        """Return the state with batches that are being published already done."""
        for batch in state.work.in_flight:
            if batch.phase == "publishing":
                state = end_batch(
                    self.source.outlook(state, batch), batch, batch.results.committed_ts
                )
        return state

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:
        """Return what the next poll would find; ``full``: the ones after it as well.

        Writes nothing.
        """
        self.check(state)
        return self.source.discover(state, full=full)

    def backlog(self, state: SourceState) -> Backlog | None:
        """Return the pending work for a bounded number of requests; None if unknown.

        Raises `StorageError`, `StateError`.
        """
        return self.source.backlog(state)

    def dead_letters(self) -> Iterator[DeadLetterObject]:
        """Return the open objects of its dead-letter queue. Raises `StorageError`."""
        return objects(self.parts.stores.dlq, self.parts.letters_id)

    def close(self) -> None:
        """Let go of what the source holds open."""
        self.source.close()

    def check(self, state: SourceState) -> None:
        """Raise `StateError` if the state is not this source's or was kept in another way."""
        check_identity(state, self.parts.identity, self.parts.source.id, self._where)
        self.source.check(state)
        check_query(state, self.parts.query_fingerprint, self._where)


def _is_no_owner(*_arguments: object) -> NoReturn:
    raise AssertionError("a view changes nothing")

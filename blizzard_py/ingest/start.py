"""Start of a source: the state to continue with, stored or new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.watermark.progress import start_grace
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.state.checkpoint_document import state_to_json
from blizzard_py.state.checkpoint_file import with_journal_names
from blizzard_py.state.journal import Journal
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.source_state import (
    NO_BATCH,
    IssuedIds,
    Position,
    ProcessedNames,
    SourceState,
)
from blizzard_py.state.stream_state import placeholder_query
from blizzard_py.state.transitions import clamp_times


@dataclass(frozen=True, slots=True)
class Start:
    """Begins a source. ``fresh`` forces a cold start if the state is missing.

    ``clock`` is the store's.
    """

    parts: SourceContext
    source: Source[Any]
    clock: Callable[[], float]
    fresh: bool = False

    def load(self, found: SourceState | None, epoch: int) -> tuple[SourceState, bool]:
        """Return the state to continue with, and whether to save it first.

        ``found`` is the state in storage. Raises `StateError`, `StorageError`.
        """
        parts = self.parts
        state = (
            self._cold()
            if found is None
            else with_journal_names(parts.stores.sink, parts.id, found)
        )
        if found is None and self.fresh:
            journal = Journal(parts.stores.sink, parts.letters_id, parts.concurrency)
            state = state.with_position(reset_ts=journal.latest_commit(self.clock()))
        ledger = state.names.ledger
        if self._starts_over(state):
            # Names processed before the reset must not hide late or repeated files after it.
            state = self.source.start_over(state, epoch)
        own = replace(state, source=parts.identity)
        watch, stream = parts.watch, state.kind.stream
        if stream is not None and stream.is_watched:
            # The watermark is not reported any more, or it is of another column now.
            same = watch is not None and stream.query == placeholder_query(watch.column)
            own = own.with_kind(stream=stream if same else None)
        state = clamp_times(own, self.clock())
        if found is not None and found.source is None:
            # The checkpoint is an original's, or a copy for this source.
            state = state.with_position(progress=start_grace(state.position.progress, self.clock()))
        # Other sources of the same files use the stored range.
        is_new = found is not None and found.source != parts.identity
        return state, is_new or state != own or state.names.ledger != ledger

    def first_document(self) -> Mapping[str, Any]:
        """Return the first checkpoint. Raises `ColdStartRefused` if there was one before."""
        if not self.fresh:
            check_cold_start(self.parts)
        return state_to_json(self._cold(), self.parts.clock())

    def _cold(self) -> SourceState:
        # The next start must know of a forced start, too, if this process dies at once. Then there
        # may be earlier batches, and the first look at the journal finds them.
        reset_ts, last = (self.parts.clock(), "") if self.fresh else (0.0, NO_BATCH)
        return SourceState(
            source=self.parts.identity,
            position=Position(reset_ts=reset_ts),
            ids=IssuedIds(last_batch=last),
            names=ProcessedNames(unfolded=None if self.fresh else JournalTally()),
        )

    def _starts_over(self, state: SourceState) -> bool:
        """Return whether this is a forced cold start that has not done anything yet."""
        cold = state.position.origin is None and state.position.progress.state == "Initial"
        idle = not (state.work.in_flight or state.names.ledger)
        return bool(state.position.reset_ts) and cold and idle

"""Start of a source: the state to go on with, from the one in storage or from nothing."""

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
from blizzard_py.state.source_state import NO_BATCH, SourceState
from blizzard_py.state.stream_state import watched_query
from blizzard_py.state.transitions import clamp_times


@dataclass(frozen=True, slots=True)
class Start:
    """Begins a source. ``fresh`` insists on a start from nothing where state is missing.

    ``clock`` is the store's.
    """

    parts: SourceContext
    source: Source[Any]
    clock: Callable[[], float]
    fresh: bool = False

    def load(self, found: SourceState | None, epoch: int) -> tuple[SourceState, bool]:
        """Return what to go on with, and whether to save it before anything else.

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
            state = replace(state, reset_ts=journal.latest_commit(self.clock()))
        ledger = state.ledger
        if self._starts_over(state):
            # What was settled before is not to hide what is late from now on, or comes again.
            state = self.source.start_over(state, epoch)
        own = replace(state, source=parts.identity)
        watch, stream = parts.watch, state.stream
        if stream is not None and stream.is_watched:
            # Nobody watches it any more, or by another column, of which it says nothing.
            same = watch is not None and stream.query == watched_query(watch.column)
            own = replace(own, stream=stream if same else None)
        state = clamp_times(own, self.clock())
        if found is not None and found.source is None:
            # The original's, or an older release's.
            state = replace(state, progress=start_grace(state.progress, self.clock()))
        # Who reads the same files goes by the range that is stored.
        is_new = found is not None and found.source != parts.identity
        return state, is_new or state != own or state.ledger != ledger

    def first_document(self) -> Mapping[str, Any]:
        """Return what to write where there is no checkpoint, unless there was one."""
        if not self.fresh:
            check_cold_start(self.parts)
        return state_to_json(self._cold(), self.parts.clock())

    def _cold(self) -> SourceState:
        # Of an insisted start also whoever starts next has to know, if we die at once.
        # Then there may be batches of before, too, which the first look at the journal tells of.
        reset_ts, last = (self.parts.clock(), "") if self.fresh else (0.0, NO_BATCH)
        return SourceState(
            source=self.parts.identity,
            reset_ts=reset_ts,
            last_batch=last,
            unfolded=None if self.fresh else JournalTally(),
        )

    def _starts_over(self, state: SourceState) -> bool:
        """Return whether this is an insisted start from nothing that has not done anything yet."""
        cold = state.origin is None and state.progress.state == "Initial"
        idle = not (state.in_flight or state.ledger)
        return bool(state.reset_ts) and cold and idle

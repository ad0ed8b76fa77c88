"""Names and batches that a rebuilt checkpoint counts on: its segments, and what the journal has."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from blizzard_core.storage.protocol import Storage, is_hidden
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.sources.files.discovery import accepts
from blizzard_py.state import processed_set
from blizzard_py.state.journal_tally import JournalTally, tally_of
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import StatePaths


def can_count(path: str) -> bool:
    """Return whether polls take the file under any setting of ``compression``."""
    return accepts("auto")(path) and not is_hidden(path)


def unfolded_without(evidence: Evidence, flying: Container[str]) -> JournalTally | None:
    """Return what the journal must hold besides; None where a batch to end is folded already."""
    if any(batch in flying for batch in evidence.folded):
        return None  # the next sweep counts anew
    return tally_of(batch for batch in evidence.unfolded if batch not in flying)


def with_segments(
    sink: Storage,
    source_id: str,
    states: tuple[SourceState, SourceState],
    said: Iterable[str],
    settled: Iterable[str],
    epoch: int,
) -> SourceState:
    """The second of the states, the first one's successor, with its names in segments that stay.

    What the checkpoint did not name a daemon that runs takes for rubbish of an older epoch,
    also after it was fenced: such segments are written again in an epoch of ours.
    """
    old, state = states
    paths = StatePaths(source_id)
    ledger = Ledger(sink, source_id)
    ledger.load(state.ledger)
    # Names in grace among them would be late once that is over, whatever a sweep took for done.
    noted = ledger.note(said) or state.ledger
    again = processed_set.written_again(sink, paths.ledger, noted, old.ledger, epoch)
    state = replace(state, ledger=again)
    if state.processed is None:
        return state
    folder = paths.processed
    known = old.processed or ()
    segments = processed_set.written_again(sink, folder, state.processed, known, epoch)
    names = processed_set.load(sink, folder, segments)
    change = names.adding(settled)
    if change is not None:
        names = processed_set.write(sink, folder, change, epoch)
    return replace(state, processed=names.segments)

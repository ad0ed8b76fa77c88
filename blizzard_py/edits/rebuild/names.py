"""Names and batches that a rebuilt checkpoint counts on: its segments, and what the journal has."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.paths import joined
from blizzard_core.watermark.progress import Progress
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.sources.context import SourceContext
from blizzard_py.state import processed_set
from blizzard_py.state.batch import Batch
from blizzard_py.state.fence_record import FenceRecord
from blizzard_py.state.journal_tally import JournalTally, tally_of
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import ProcessedSet
from blizzard_py.state.source_state import ProcessedNames, SourceState
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.transitions import requests_of, without_request


def unfolded_without(evidence: Evidence, flying: Container[str]) -> JournalTally | None:
    """Return what the journal must hold besides; None where a batch to end is folded already."""
    if any(batch in flying for batch in evidence.folded):
        return None  # the next sweep counts anew
    return tally_of(batch for batch in evidence.unfolded if batch not in flying)


def segment_paths(source_id: str, names: ProcessedNames) -> set[str]:
    """Return where the segments are that a state names."""
    paths = StatePaths(source_id)
    named = (paths.ledger, names.ledger), (paths.processed, names.processed or ())
    return {processed_set.path_of(folder, one.segment) for folder, found in named for one in found}


def with_segments(
    sink: Storage,
    source_id: str,
    states: tuple[SourceState, SourceState],
    done: tuple[Iterable[str], Iterable[str], Iterable[str]],
    epoch: int,
) -> SourceState:
    """Return the second state, the successor of the first, with permanent segments.

    ``done`` are names that somebody said, all that are settled, and those whose batch the journal
    has lost. A running daemon takes segments that the checkpoint did not name for rubbish of an
    older epoch, also after it was fenced. So they are written again in an epoch of ours.
    """
    old, state = states
    said, settled, unknown = done
    paths = StatePaths(source_id)
    ledger = Ledger(sink, source_id)
    ledger.load(state.names.ledger)
    # Names in grace among them would be late once that is over, whatever a sweep took for done.
    noted = ledger.note(said, unknown) or state.names.ledger
    again = processed_set.copy_segments(sink, paths.ledger, noted, old.names.ledger, epoch)
    for segment in set(noted).difference(state.names.ledger):
        sink.delete(processed_set.path_of(paths.ledger, segment.segment))  # it has been copied
    state = state.with_names(ledger=again)
    if state.names.processed is None:
        return state
    folder = paths.processed
    known = old.names.processed or ()
    segments = processed_set.copy_segments(sink, folder, state.names.processed, known, epoch)
    names = ProcessedSet(sink, folder)
    names.load(segments)
    names.epoch = epoch  # nothing is swept: the old checkpoint may list other segments
    return state.with_names(processed=names.adding(settled) or segments)


def check_record(parts: SourceContext, record: FenceRecord, *, is_lost: bool) -> None:
    """Raise `EditRefused` for what the fence record says is another source's than configured.

    Of a checkpoint that ``is_lost`` nothing else tells which names were read.
    """
    if record.moved_to:
        raise EditRefused(
            f"{parts.name}: the state was renamed to {record.moved_to}, and everything would be"
            " ingested again under this name. Use the new names in the configuration, or give the"
            f" source `id: {record.moved_to}`"
        )
    names = parts.identity.range
    if is_lost and record.number and record.range != names:
        raise EditRefused(
            f"{parts.name}: has read {record.range or 'all names'}, and the configuration has"
            f" {names or 'no range'}; set `advanced.range` back"
        )


def without_requested(state: SourceState) -> SourceState:
    """Return the state without files of requests: these select them anew."""
    for request in requests_of(state.work):
        state = without_request(state, request)
    return state


def window_of(
    progress: Progress, evidence: Evidence, flying: Sequence[Batch]
) -> tuple[tuple[str, float], ...]:
    """Return the batches by which the checkpoint names many names in grace, as it always does.

    Only of a scan whose names the journal has, every one: the others it goes on to list. Names of
    requests are not among them: no scan has reached these.
    """
    unfinished = {batch.batch for batch in flying}
    records = [r for r in evidence.records if not (r.request or r.batch in unfinished)]
    told = {(record.seen_ts, path) for record in records for path in record.done_paths}
    names = {
        (at, joined(partition, name))
        for partition, known in progress.partitions.items()
        for name, at in known.done.items()
    }
    times = {at for at, _ in names} - {at for at, _ in names - told}
    return tuple((record.batch, record.seen_ts) for record in records if record.seen_ts in times)

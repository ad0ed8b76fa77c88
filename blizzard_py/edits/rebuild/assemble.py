"""The state of a rebuilt checkpoint, put together from the evidence. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import Progress, is_new
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.edits.rebuild.names import unfolded_without, window_of
from blizzard_py.requests.progress import open_of, without
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import last_of_partitions, with_reached
from blizzard_py.sources.stale import adopt_numbers
from blizzard_py.state.batch import Batch
from blizzard_py.state.source_state import (
    LateFileState,
    PendingWork,
    Position,
    ProcessedNames,
    SourceState,
    Summary,
    Sweep,
)


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The listed files by their state.

    ``processed`` maps each processed file to its time. ``in_flight`` are files of open batches.
    ``by_operator`` are processed only because an operator says so. ``requested`` are the processed
    files that no poll has finished, so they move no watermark.
    """

    listed: dict[str, Entry]
    processed: dict[str, float]
    in_flight: frozenset[str]
    history: frozenset[str]
    requested: frozenset[str]
    by_operator: frozenset[str]


def rebuilt_state(
    parts: SourceContext,
    old: SourceState | None,
    evidence: Evidence,
    known: KnownFiles,
    flying: tuple[Batch, ...],
    progress: Progress,
    origin: str,
) -> SourceState:
    """Return the state with ``flying`` batches; ``old`` is the checkpoint, None if it is lost."""
    before = SourceState() if old is None else old
    window = window_of(progress, evidence, flying)
    flying = tuple(
        replace(b, files=tuple(e if e.modified else known.listed.get(e.path, e) for e in b.files))
        for b in flying
    )
    requests = before.work.requests
    groups = (batch.results.group.seq for batch in flying if batch.results.group)
    has_watermark = parts.files.use_watermark
    state = SourceState(
        # What an original did none of our scans has seen, until the next start.
        source=parts.identity if old is None or old.source is not None else None,
        former=before.former,
        position=Position(progress, reset_ts=before.position.reset_ts),
        work=PendingWork(flying, requests=without(requests, open_of(requests))),
        ids=replace(before.ids, last_batch="", group_seq=max([before.ids.group_seq, *groups])),
        names=ProcessedNames(
            ledger=evidence.segments,
            unfolded=unfolded_without(evidence, {batch.batch for batch in flying}),
            processed=None if has_watermark else evidence.set_segments,
        ),
        late_files=LateFileState(lateness=before.late_files.lateness),
        summary=Summary(before.summary.totals),
    )
    if not has_watermark:
        return adopt_numbers(state, parts, evidence.world)
    state = adopt_numbers(state.with_position(window=window), parts, evidence.world)
    reached = with_reached(before.with_position(origin=origin), known.requested)
    ahead = (path for path in known.requested if is_new(progress, path))
    state = state.with_position(
        origin=origin,
        reached=reached.position.reached,
        ahead=last_of_partitions(ahead, progress.depth),
    )
    retries = {
        path: retry
        for path, retry in before.work.retries.items()
        if path in known.listed and path not in known.processed
    }
    queue = tuple(
        entry
        for entry in before.work.queue
        if not (entry.path in known.processed or is_new(progress, entry.path))
    )
    state = state.with_work(retries=retries, queue=queue)
    return state.with_late_files(sweep=Sweep(whole=True, noted=not origin))

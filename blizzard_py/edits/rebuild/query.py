"""Rebuilding the checkpoint of a query over event time. Writes nothing.

The query's state belongs to exactly the files that are done, and only the checkpoint has both. So
the checkpoint stays, with the watermark, the query's state, waiting files and files in flight. Only
the data beside it is rebuilt: a journal or a ledger that has lost objects.

Names that only these had count as done if the checkpoint has passed them, as without a query. They
are noted in the ledger, so no sweep takes them for late files. Names in grace that only the journal
had are unknown: an operator says up to where files are done.

A checkpoint that is stale, damaged or missing cannot be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.progress import is_new
from blizzard_py.edits.checkpoint_store import EditRefused, Stored
from blizzard_py.edits.rebuild.decide import (
    Rebuilt,
    bound_of,
    unrecorded_paths,
)
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.edits.rebuild.names import unfolded_without
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts_file, can_count
from blizzard_py.sources.stale import NO_OTHER_WAY, World, newer_work
from blizzard_py.state.checkpoint_file import batches_in_journal, with_names
from blizzard_py.state.composite_state import of_source, qualify_path, split_path, with_source
from blizzard_py.state.fence_record import FenceRecord
from blizzard_py.state.source_state import SourceState, under_way


@dataclass(frozen=True, slots=True)
class _Mended:
    """One source of a rebuilt query: its state and its files.

    ``by_operator`` are files that are processed only because an operator says so.
    """

    state: SourceState
    listed: int
    processed: int
    new: Sequence[str]
    by_operator: Sequence[str]


def members_of(
    parts: SourceContext, state: SourceState
) -> Iterator[tuple[SourceContext, SourceState]]:
    """Each source with its part of the state, of one source the source itself."""
    for member in parts.members:
        yield member, of_source(state, member.source_name)
    if not parts.members:
        yield parts, state


def rebuild_query(
    parts: SourceContext, found: Stored, world: World, done_before: str | None, whose: str
) -> Rebuilt:
    """Return a query's checkpoint with the data that it needs. Writes nothing.

    ``done_before`` is of the source ``whose``, and concerns that source alone. Raises `EditRefused`
    if the evidence is not sufficient, or if there is nothing to keep; `StateError`, `StorageError`.
    """
    state = found.state
    if found.document is None:
        damaged = "is gone" if found.raw is None else "is damaged"
        raise EditRefused(f"{parts.name}: the checkpoint {damaged}. {NO_OTHER_WAY}")
    newer = newer_work(state, parts, world)
    if newer is not None:
        raise EditRefused(f"{parts.name}: the checkpoint is stale: {newer}. {NO_OTHER_WAY}")
    mends: dict[str, _Mended] = {}
    for each, own in members_of(parts, state):
        if done_before is not None and each.source_name != whose:
            continue  # the word is of one source, and says nothing of what others have lost
        evidence = Evidence(each, own, world)
        doubts = evidence.doubts()
        if doubts and done_before is None:
            raise EditRefused(
                f"{each.name}: {len(doubts):,} things tell of work that neither journal nor ledger"
                f" know, the first: {doubts[0]}. Bring back what is missing below _blizzard/, or"
                " find out up to where files of this source are done and say so with --done-before"
                " PARTITION_OR_PATH; files below it that were not read are skipped, files above it"
                " that were read come again into open windows"
            )
        mends[each.source_name] = _mended(each, own, evidence, done_before)
    whole = state
    for name, one in mends.items():
        whole = with_source(whole, name, one.state) if parts.members else one.state

    def named(name: str, paths: Sequence[str]) -> list[str]:
        return [qualify_path(name, path) if parts.members else path for path in paths]

    said = tuple(path for name, one in mends.items() for path in named(name, one.by_operator))
    record = world.record or FenceRecord()
    return Rebuilt(
        found,
        whole,
        max(record.epoch, 0 if found.writer is None else found.writer.epoch) + 1,
        sum(one.listed for one in mends.values()),
        sum(one.processed for one in mends.values()),
        said,
        tuple(path for name, one in mends.items() for path in named(name, one.new)),
        (),
        said,
    )


def paths_of(parts: SourceContext, member: SourceContext, paths: Sequence[str]) -> list[str]:
    """Return the `mended` paths of one source, as it calls them."""
    if not parts.members:
        return list(paths)
    return [path for name, path in map(split_path, paths) if name == member.source_name]


def _mended(
    parts: SourceContext, state: SourceState, evidence: Evidence, done_before: str | None
) -> _Mended:
    count = can_count(parts.files)
    entries = [
        entry
        for page in parts.stores.source.list_range("", None)
        for entry in page.entries
        if count(entry.path)
    ]
    there = [entry.path for entry in entries]
    listed = [entry.path for entry in filter(accepts_file(parts.files), entries)]
    waits = set(under_way(state.work))
    flying = {batch.batch for batch in state.work.in_flight}
    gone = set(batches_in_journal(state.position)).difference(evidence.batches)
    state, told = _with_journal(state, evidence, listed, flying, lost=bool(gone))
    if done_before is not None:
        bound = bound_of(done_before, count)
        below = [path for path in there if order_key(path) < bound and path not in waits]
        told.update(below)
        if state.names.processed is None:
            state = _with_new(state, below)
    if gone:
        # A batch that is folded needs no object; the checkpoint left its names to it all the same.
        state = _with_new(state, set(there).difference(evidence.unprocessed(there), waits))
    said = sorted(set(evidence.unprocessed(sorted(told - waits))), key=order_key)
    if state.names.processed is None:
        new = [path for path in listed if is_new(state.position.progress, path)]
    else:
        new = sorted(set(evidence.unprocessed(listed)).difference(said), key=order_key)
    new = [path for path in new if path not in waits]
    mended_state = state.with_names(
        ledger=evidence.segments,
        processed=None if state.names.processed is None else evidence.set_segments,
        unfolded=unfolded_without(evidence, flying),
    )
    done = len(listed) - len(new) - len(waits.intersection(listed))
    return _Mended(mended_state, len(listed), done, new, said)


def _with_journal(
    state: SourceState, evidence: Evidence, listed: list[str], flying: set[str], *, lost: bool
) -> tuple[SourceState, set[str]]:
    """Return the state with the journal's names in grace, and the names that it has passed."""
    seen = dict(state.position.window)
    settled = {r.batch: r.done_paths for r in evidence.records if r.batch in seen}
    names = {path: seen[batch] for batch, paths in settled.items() for path in paths}
    # Every name in grace is listed now: the journal may have lost some of those that it had.
    state = state.with_position(progress=with_names(state.position.progress, names), window=())
    counts = state.names.unfolded is None or state.names.unfolded.agrees_with(
        batch for batch in evidence.unfolded if batch not in flying
    )
    return state, unrecorded_paths(state, listed, is_journal_whole=counts and not lost)


def _with_new(state: SourceState, paths: Iterable[str]) -> SourceState:
    found = {path: 0.0 for path in paths if is_new(state.position.progress, path)}
    return state.with_position(progress=with_names(state.position.progress, found))

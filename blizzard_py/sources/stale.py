"""Stale checkpoints: a check whether a checkpoint is older than the work around it.

A start from an older checkpoint would ingest files again, or assign used numbers again. One check
detects it for every kind of source, at each take-over, from these traces outside of the checkpoint:

=====================  =============================================================================
fence record           the newest commit point, outside of the state folder
journal                an object for each batch, written before anything of it is published
the table's log        ``txn`` of the newest batch that was committed, which no clean-up removes
outputs                footers of the files that wait for their commit, which is all that tells of
                       them where the state folder and the fence record are of another moment
groups                 manifests, and ``txn`` of the last group that was applied
=====================  =============================================================================

Any trace may be lost or restored from a copy: the newest one counts. The check costs a few LISTs
and GETs, whatever is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from blizzard_core.delta_json import newest_transactions
from blizzard_core.errors import StateError
from blizzard_core.handover.outputs import group_app, source_app, sources_in
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import live_states, read_state
from blizzard_py.state.composite_state import of_source
from blizzard_py.state.fence_record import (
    FenceFile,
    FenceRecord,
    contradiction,
    fence_path,
    recorded_ids,
    with_move,
)
from blizzard_py.state.journal import Journal
from blizzard_py.state.journal_tally import check_tally, millis_of
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.source_state import NO_BATCH, SourceState, checkpoint_path
from blizzard_py.state.waiting_outputs import WaitingOutput, newest_waiting

# How often a checkpoint is read again whose daemon goes on meanwhile.
_LOOKS = 5


# Of a query over event time: the open windows hold rows of exactly the files that are done.
NO_OTHER_WAY = (
    "Bring its last version back; nothing else tells what its query remembers, so without it the"
    " query needs a new pipeline and a table of its own"
)


@dataclass(frozen=True, slots=True)
class World:
    """The fence record and the table's log, as they concern a source.

    ``names`` are the source names of its batches in the log. ``committed_ms`` is the time in the id
    of the newest one, ``groups`` the number of its last group. Both are 0 if the log has none.
    ``log`` has every application's ``txn``.
    """

    record: FenceRecord | None = None
    names: frozenset[str] = frozenset()
    committed_ms: int = 0
    groups: int = 0
    log: Mapping[str, int] = field(default_factory=dict)

    @property
    def committed_names(self) -> str:
        """Its names of which there are batches in the log, for messages."""
        return ", ".join(sorted(name for name in self.names if source_app(name) in self.log))


def names_in_log(parts: SourceContext, stored: SourceState | None) -> set[str]:
    """Return the names under which the table's log may have batches of a source.

    With an ``id`` of its own a source may have had other names, which its checkpoint in storage
    tells. Where that is lost the id does, which mostly was made of one.
    """
    names = {parts.name}
    if stored is None:
        words = parts.letters_id.split("_")
        names |= {f"{'_'.join(words[:at])}/{'_'.join(words[at:])}" for at in range(1, len(words))}
    elif stored.source is not None:
        names.add(f"{stored.source.pipeline}/{stored.source.source}")
    return names


def look(parts: SourceContext, record: FenceRecord | None, stored: SourceState | None) -> World:
    """Return the world around a source, whose checkpoint is ``stored``, None if there is none.

    Raises `StateError`, `StorageError`.
    """
    record = with_move(parts.stores.sink, parts.id, record)
    newest = newest_transactions(parts.stores.sink, parts.concurrency)
    names = names_in_log(parts, stored)
    names |= _other_names(parts, stored or SourceState(), newest, names)
    committed = max(newest.get(source_app(name), 0) for name in names)
    groups = newest.get(group_app(parts.letters_id), 0)
    return World(record, frozenset(names), committed, groups, newest)


def _other_names(
    parts: SourceContext, stored: SourceState, log: Mapping[str, int], names: AbstractSet[str]
) -> set[str]:
    """Return other names with later batches in the log, that nobody but this source had.

    Such names exist only if the table has batches of no other source: after a rename, if the state
    is lost, or if state, fence records and configuration are older than the rename. Costs a LIST
    where there are later batches of another source.
    """
    sink, last = parts.stores.sink, millis_of(stored.ids.last_batch)
    later = {name for name in sources_in(log) if log[source_app(name)] > last}
    others = later - names
    if not others or {*recorded_ids(sink)} - {parts.id} or {*live_states(sink)} - {parts.id}:
        return set()
    ids = {name: name.replace("/", "_") for name in others}
    return {name for name in others if next(Journal(sink, ids[name]).batches(), None) is None}


def world_of(parts: SourceContext, stored: SourceState | None) -> World:
    """Return the world around a source, for a reader that does not own it. Raises as `look`."""
    return look(parts, FenceFile(parts.stores.sink, parts.id).read(), stored)


def waiting_of(parts: SourceContext, world: World) -> WaitingOutput | None:
    """Return the newest output of a source that may wait for its commit. Raises `StorageError`."""
    is_own = world.names.__contains__
    return newest_waiting(parts.stores.sink, is_own, world.log, parts.concurrency)


def require_current(state: SourceState, parts: SourceContext, world: World) -> SourceState:
    """Return the state, with missing numbers taken from the world.

    Raises `StateError` for a stale checkpoint and for a journal that lacks batches.
    """
    newer = newer_work(state, parts, world)
    if newer is not None:
        where = f"{parts.stores.sink.uri}/{checkpoint_path(parts.id)}"
        raise StateError(f"{where}: is stale: {newer}. {_remedy(state, parts, world)}")
    for member in parts.members:
        _check_journal(of_source(state, member.source_name), member)
    if not parts.members:
        _check_journal(state, parts)
    return adopt_numbers(state, parts, world)


def newer_work(state: SourceState, parts: SourceContext, world: World) -> str | None:
    """Return what tells that a state is stale, None if nothing does. Raises `StorageError`."""
    if world.record is not None and world.record.moved_to:
        return contradiction(state.ids.committed, world.record)
    from_nothing = state.position.reset_ts or state.position.progress.state == "Initial"
    if from_nothing and not state.ids.last_batch:
        return None  # an operator forced it
    if world.record is not None:
        conflict = contradiction(state.ids.committed, world.record)
        if conflict is not None:
            return f"{FenceFile(parts.stores.sink, parts.id).where} says that {conflict}"
    return _later_batches(state, parts, world) or _later_attempts(state, parts)


def was_published(state: SourceState, parts: SourceContext, world: World) -> bool:
    """Return whether later commit points tell that each batch was published or discarded.

    A source publishes one batch after the other. Raises `StorageError`, `StateError`.
    """
    if world.record is not None and world.record.number > state.ids.committed.number:
        return True
    return bool(state.ids.last_batch) and _later_batches(state, parts, world) is not None


def _later_batches(state: SourceState, parts: SourceContext, world: World) -> str | None:
    """Return what of the journal and the table's log tells of later commit points, if anything."""
    running = {batch.batch for batch in state.work.in_flight if batch.phase == "running"}
    last = state.ids.last_batch
    for each in parts.members or (parts,):
        journal = Journal(parts.stores.sink, each.id)
        unknown = [
            b for b in journal.batches_from(min(running, default=last)) if b > last or b in running
        ]
        if unknown:
            return f"the journal goes on to batch {unknown[-1]}"
    newest = world.committed_ms
    if newest and (newest > millis_of(last) or newest in map(millis_of, running)):
        evidence = f"the table's log commits newer batches of {world.committed_names}"
        return f"{evidence}, and the journal is older, too"
    waiting = waiting_of(parts, world)
    known = {batch.batch: batch.attempt for batch in state.work.in_flight if batch.results.outputs}
    if waiting is not None and (
        waiting.batch > last
        or waiting.batch in running
        or waiting.attempt > known.get(waiting.batch, waiting.attempt)
    ):
        return f"{summary_of(waiting)}, and the journal is older, too"
    return None


def summary_of(output: WaitingOutput) -> str:
    """Return what an output tells, for messages."""
    return f"{output.path} waits for its commit, and it is of batch {output.batch}"


def _later_attempts(state: SourceState, parts: SourceContext) -> str | None:
    """Return what the journal has of a batch that another attempt has committed since."""
    attempts = {b.batch: b.attempt for b in state.work.in_flight if b.phase == "publishing"}
    for each in parts.members or (parts,):
        for committed in Journal(parts.stores.sink, each.id).read_committed(sorted(attempts)):
            if committed.attempt > attempts[committed.batch]:
                return f"the journal has attempt {committed.attempt} of batch {committed.batch}"
    return None


def adopt_numbers(state: SourceState, parts: SourceContext, world: World) -> SourceState:
    """Return the state with every number at least as high as the world tells."""
    known, record = state.ids.committed, world.record
    if record is not None and record.number >= known.number - 1 and contradiction(known, record):
        known = record.commit_point
    if not state.ids.last_batch:
        waiting = waiting_of(parts, world)
        last, name = last_known(state, parts, world, waiting), waiting.name if waiting else ""
        state = state.with_ids(last_batch=last, last_output=max(state.ids.last_output, name))
    return state.with_ids(committed=known, group_seq=max(state.ids.group_seq, world.groups))


def current_state(parts: SourceContext, moves_to: str = "") -> SourceState | None:
    """Return the state in storage for a process that does not own it; None without one.

    A daemon may run meanwhile. ``moves_to`` is the new id of a rename, which may have died before.
    Raises `StorageError`, and `StateError` for a state that the daemon would refuse: it lists files
    as pending that were done long ago.
    """
    sink = parts.stores.sink
    looks = _LOOKS
    while True:
        looks -= 1
        state = read_state(sink, parts.id)
        if state is None:
            return None
        try:
            world = world_of(parts, state)
            if world.record is not None and world.record.moved_to == moves_to:
                world = replace(world, record=replace(world.record, moved_to=""))
            require_current(state, parts, world)
        except StateError:
            # Its owner may have published since we read it: then there is a newer one by now.
            if not looks or read_state(sink, parts.id) == state:
                raise
        else:
            return state


def last_known(
    state: SourceState, parts: SourceContext, world: World, waiting: WaitingOutput | None
) -> str:
    """Return the last batch that any trace shows, for a checkpoint that is made from them.

    A batch in flight may have no journal entry yet. The log may be ahead of the journal if an
    operator set the done items, or forced a fresh start.
    """
    in_flight = [batch.batch for batch in state.work.in_flight]
    for each in parts.members or (parts,):
        in_flight += Journal(parts.stores.sink, each.id).batches()
    if world.record is not None:
        in_flight.append(world.record.batch)
    if world.committed_ms:
        in_flight.append(_highest_of(world.committed_ms))
    if waiting is not None:
        in_flight.append(waiting.batch)
    return max(in_flight, default="") or NO_BATCH


def _check_journal(state: SourceState, parts: SourceContext) -> None:
    """Raise `StateError` if batches are gone that no segment has."""
    expected = state.names.unfolded
    if not parts.has_files or expected is None or not expected.count:
        return
    flying = {batch.batch for batch in state.work.in_flight}
    journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
    there = [batch for batch in journal.batches_from(expected.first) if batch not in flying]
    if not expected.agrees_with(there):
        # A clock that was put back may have named batches among those that are folded.
        ledger = Ledger(parts.stores.sink, parts.id, parts.concurrency)
        ledger.load(state.names.ledger)
        unfolded = ledger.not_folded(there)
        check_tally(expected, unfolded, journal.where)


def _highest_of(millis: int) -> str:
    """Return the highest id that a batch of that millisecond can have."""
    return str(uuid.UUID(int=(millis << 80) | ((1 << 80) - 1)))


def _remedy(state: SourceState, parts: SourceContext, world: World) -> str:
    record = world.record or FenceRecord()
    if record.moved_to:
        return f"Use the new names in the configuration, or give the source `id: {record.moved_to}`"
    if record.number and state.ids.committed.number - record.number > 1:
        return (
            "Put back _blizzard of the same moment, since rows of later batches may be missing; if"
            f" nothing else was put back, delete {fence_path(parts.id)}"
        )
    if parts.event_time is not None:
        return NO_OTHER_WAY
    if not parts.has_files:
        return (
            "Bring its last version back, or say from where to read with `blizzard checkpoint set"
            " --column` after a look at the table"
        )
    return "Bring its last version back, or have `blizzard checkpoint rebuild` make one"

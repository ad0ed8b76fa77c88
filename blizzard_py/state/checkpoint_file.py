"""A source's state from storage: its checkpoint, and the names that it leaves to the journal.

Readers use `read_state`. The owner of a state uses `with_journal_names` after taking it over. So
nobody mistakes a processed file in grace for a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError, Unavailable
from blizzard_core.storage.opening import is_same_place
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import PartitionProgress, Progress, closed_by
from blizzard_py.state.checkpoint_document import (
    MOVED_DOCUMENT,
    MOVED_TO,
    SHARED,
    state_from_json,
)
from blizzard_py.state.composite_state import of_source
from blizzard_py.state.journal import Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import ProcessedSet, Segment
from blizzard_py.state.source_state import IN, Identity, Position, SourceState, checkpoint_path
from blizzard_py.state.state_paths import StatePaths, checkpoints

T = TypeVar("T")

# A segment may be replaced after the checkpoint was read. The checkpoint is read this often.
_LOOKS = 5


def live_states(sink: Storage) -> tuple[str, ...]:
    """Return the ids of the table's sources that have a state, including a damaged one.

    The remains of a renamed state do not count. Costs the LISTs of the state folder and a GET for
    each source. Raises `StorageError`.
    """

    def has_state(source_id: str) -> bool:
        try:
            found = checkpoint.load(
                sink, checkpoint_path(source_id), lambda document, _where: document
            )
        except StateError:
            return True
        return found is not None and (MOVED_TO not in found or MOVED_DOCUMENT in found)

    return tuple(filter(has_state, checkpoints(sink)))


def read_state(sink: Storage, source_id: str) -> SourceState | None:
    """Return the stored state, or None. Raises `StateError`, `StorageError`."""
    state = load_state(sink, source_id)
    return None if state is None else with_journal_names(sink, source_id, state)


def load_state(sink: Storage, source_id: str) -> SourceState | None:
    """Return the state as `read_state` does, without names in grace that only the journal has.

    For a source that shares a checkpoint this is its part of the shared one.
    """
    where = f"{sink.uri}/{checkpoint_path(source_id)}"
    document = checkpoint.load(sink, checkpoint_path(source_id), lambda found, _where: found)
    if document is None:
        return None
    if not isinstance(document, Mapping) or SHARED not in document:
        return state_from_json(document, where)
    home = checkpoint.load(sink, checkpoint_path(str(document[SHARED])), state_from_json)
    if home is None:
        raise StateError(
            f"{where}: its state is in {checkpoint_path(str(document[SHARED]))}, which is gone;"
            " restore it as it was saved"
        )
    return of_source(home, str(document["source"]))


def read_ledger(sink: Storage, source_id: str) -> Ledger:
    """Return the ledger of all processed names. Raises `StateError`, `StorageError`.

    The owner may fold the journal while we read, and delete folded objects. The result is complete
    only if the checkpoint still lists the same segments afterwards.
    """

    def read(state: SourceState) -> Ledger:
        ledger = Ledger(sink, source_id)
        ledger.load(state.names.ledger)
        flying = {batch.batch for batch in state.work.in_flight}
        ledger.look(state.names.unfolded, flying, state.ids.last_batch)
        return ledger

    return _read_by_state(sink, source_id, read, lambda state: state.names.ledger)


def read_names(sink: Storage, source_id: str) -> ProcessedSet:
    """Return the processed names of a source without a watermark.

    The owner may merge segments while we read. Raises `StateError`, `StorageError`.
    """

    def read(state: SourceState) -> ProcessedSet:
        names = ProcessedSet(sink, StatePaths(source_id).processed)
        names.load(state.names.processed or ())
        return names

    return _read_by_state(sink, source_id, read, lambda state: state.names.processed)


def _read_by_state(
    sink: Storage,
    source_id: str,
    read: Callable[[SourceState], T],
    segments_of: Callable[[SourceState], Sequence[Segment] | None],
) -> T:
    """Return what is read beside a state, whose segments stay the same meanwhile.

    A missing segment is lost only if the checkpoint still lists it.
    """
    state = load_state(sink, source_id) or SourceState()
    for _ in range(_LOOKS):
        before, found, problem = state, None, None
        try:
            found = read(state)
        except StateError as error:
            problem = error
        state = load_state(sink, source_id) or SourceState()
        if problem is not None and state == before:
            raise problem
        if found is not None and segments_of(state) == segments_of(before):
            return found
    raise problem or Unavailable(
        f"{sink.uri}/{checkpoint_path(source_id)}: changes faster than it can be read; try again"
    )


def with_journal_names(sink: Storage, source_id: str, state: SourceState) -> SourceState:
    """Return the state with the names in grace that only the journal has.

    Raises `StateError` if the journal lacks a batch that the checkpoint needs.
    """
    absent = batches_in_journal(state.position)
    records = list(Journal(sink, source_id).read(absent))
    missing = set(absent) - {record.batch for record in records}
    if missing:
        raise StateError(
            f"{sink.uri}/{checkpoint_path(source_id)}: batch {min(missing)} of the journal is"
            " missing. Restore it, or run `blizzard checkpoint rebuild`"
        )
    seen = dict(state.position.window)
    names = {path: seen[record.batch] for record in records for path in record.done_paths}
    return state.with_position(progress=with_names(state.position.progress, names))


def batches_in_journal(position: Position) -> list[str]:
    """Return the batches whose names in grace a stored checkpoint leaves to the journal."""
    listed = {at for known in position.progress.partitions.values() for at in known.done.values()}
    return [batch for batch, seen in position.window if seen not in listed]


def with_names(progress: Progress, names: Mapping[str, float]) -> Progress:
    """Return the progress with processed paths and the times when scans first saw them."""
    fresh: dict[str, dict[str, float]] = {}
    for path, seen in names.items():
        partition, name = split(path, progress.depth or 0)
        known = progress.partitions.get(partition)
        if known is None and closed_by(progress, path) is not None:
            continue
        before = None if known is None else known.before
        if before is None or order_key(name) > order_key(before):
            fresh.setdefault(partition, {})[name] = seen
    if not fresh:
        return progress
    partitions = dict(progress.partitions)
    for partition, found in fresh.items():
        known = partitions.get(partition, PartitionProgress())
        partitions[partition] = replace(known, done={**found, **known.done})
    return replace(progress, partitions=partitions)


def check_identity(
    state: SourceState, parts_identity: Identity, own_id: str | None, where: str
) -> None:
    """Raise `StateError` if the state belongs to another source or to files in another place.

    A source with its own ``id`` may have been renamed, but its files may not have moved.
    Before the first batch a wrong location may still be corrected.
    """
    known = state.source
    progress = state.position.progress
    has_begun = progress.value is not None or progress.partitions or state.names.processed
    if not (has_begun or state.work.in_flight or state.work.queue or state.work.retries):
        return
    _check_range(state, parts_identity.range or NameRange(), where)
    if known is None:
        return
    names = (known.pipeline, known.source)
    if own_id is None and names != (parts_identity.pipeline, parts_identity.source):
        raise StateError(
            f"{where}: belongs to {'/'.join(names)}, whose names make the same file name; give one"
            " of the two an `id:`"
        )
    was, now = known.uri, parts_identity.uri
    if was == now and not _is_same_lake(known.lake, parts_identity.lake):
        was, now = f"{was}, {known.lake}", f"{now}, {parts_identity.lake}"
    if was != now and (state.kind.columns or state.kind.units):
        raise StateError(
            f"{where}: is of {was}, the configuration now says {now}; set"
            " connection and path (or table) back; or give the source another `id:` and start"
            " once with --fresh to read everything there; or, if it gives the same rows under its"
            f" new name, say so with `blizzard rename --moved-from '{known.uri}'`"
        )
    if not is_same_place(known.uri, parts_identity.uri):
        raise StateError(
            f"{where}: is of the files below {known.uri}, the configuration now says"
            f" {parts_identity.uri}; set source_uri back, give the source another `id:` and"
            " start once with --fresh to ingest everything there, or, if the same files were moved"
            f" there under their names, say so with `blizzard rename --moved-from '{known.uri}'`"
        )


def _check_range(state: SourceState, names: NameRange, where: str) -> None:
    """Raise `StateError` for another range: names would be skipped, or read by two sources."""
    known = NameRange() if state.source is None else state.source.range or NameRange()
    if known != names:
        raise StateError(
            f"{where}: reads {known or 'all names'} since its first start, the configuration now"
            f" has {names or 'no range'}; set `advanced.range` back, and read other names"
            " by a source with another `id:` and a range of its own"
        )


def _is_same_lake(known: str | None, given: str | None) -> bool:
    """Return whether the same driver reads the same place. True if either is unknown."""
    if known is None or given is None:
        return True
    (driver, _, place), (other, _, elsewhere) = known.partition(IN), given.partition(IN)
    return driver == other and is_same_place(place, elsewhere)

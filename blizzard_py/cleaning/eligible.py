"""The files of a source that may be cleaned. Pure.

A file may be archived or deleted only if all of this holds:

1. its last outcome in the journal is ``ingested``, and it has no open letter;
2. every output of its batch was seen in the table at least ``after`` ago, by the store's clock;
3. the table was not restored since its batch was made;
4. the object has the version that was listed for its batch (`Storage.delete_if` compares);
5. it is in no request, queue or batch of the source;
6. the source is not bare. The caller looks.

``CleaningState`` proves 2 and 3. A `Sighting` says that all outputs of all batches up to one were
in the table at a moment. One a day is enough, so the state stays small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from blizzard_py.state.journal import BatchDocument

# Sightings are at least this far apart. Files wait for up to a day longer than asked for.
SIGHTING_SECS = 86_400.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """All outputs of batches up to ``batch`` were in the table at ``seen_ts``."""

    batch: str
    seen_ts: float


@dataclass(frozen=True, slots=True)
class CleaningState:
    """The sightings, oldest first, and the last batch whose files were cleaned or left for good.

    ``log_version`` is the version of the table up to which the log was searched for RESTORE.
    """

    sightings: tuple[Sighting, ...] = ()
    done: str = ""
    log_version: int = -1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be cleaned, with the version that its batch was made of."""

    path: str
    size: int
    version: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Files to clean, and the last batch that has none behind them."""

    files: tuple[Candidate, ...]
    done: str


def is_sighting_due(state: CleaningState, last_batch: str, now: float) -> bool:
    """Return whether the table has to be looked at again, for batches that no sighting has."""
    newest = state.sightings[-1].batch if state.sightings else state.done
    if last_batch <= newest:
        return False
    return not state.sightings or now - state.sightings[-1].seen_ts >= SIGHTING_SECS


def with_sighting(state: CleaningState, found: Sighting) -> CleaningState:
    """Return the state with one more sighting.

    The store's clock may have been set back. Then the later look does not count before its time.
    """
    last = state.sightings[-1] if state.sightings else None
    if found.batch <= state.done or (last is not None and found.batch <= last.batch):
        return state
    if last is not None:
        found = replace(found, seen_ts=max(found.seen_ts, last.seen_ts))
    return replace(state, sightings=(*state.sightings, found))


def after_log(
    state: CleaningState, version: int, last_batch: str, *, is_restored: bool
) -> CleaningState:
    """Return the state after a look at the log up to ``version``, for RESTORE.

    ``is_restored``: there was one since the last look, or the log does not reach back to it. Then
    rows may have left the table, and the files of all batches up to ``last_batch`` stay for good.
    """
    if is_restored:
        return CleaningState((), max(state.done, last_batch), version)
    return replace(state, log_version=version)


def settled_through(state: CleaningState, now: float, after_secs: float) -> str:
    """Return the last batch whose rows have been in the table for that long, empty if none."""
    old = [one.batch for one in state.sightings if one.seen_ts <= now - after_secs]
    return max(old, default="")


def choose(
    batches: Iterable[BatchDocument],
    through: str,
    barred: Collection[str],
    limit: int,
) -> Choice:
    """Return the files to clean of the batches behind the last ones that were cleaned.

    ``batches`` are all of the journal from there on, in order, also those above ``through``: a
    later outcome of a file counts. ``barred`` are files with an open letter, and those that a
    request, the queue or a batch in flight has. They are left for good, as are files without a
    version. The limit is exceeded by less than one batch.
    """
    chosen: dict[str, Candidate] = {}
    done = ""
    is_full = False
    for batch in batches:
        for file in batch.files:
            chosen.pop(file.path, None)
        if batch.batch > through or is_full:
            continue
        done = batch.batch
        for file in batch.files:
            if file.outcome == "ingested" and file.version and file.path not in barred:
                chosen[file.path] = Candidate(file.path, file.size, file.version)
        is_full = len(chosen) >= limit
    return Choice(tuple(chosen.values()), done)


def after_cleaning(state: CleaningState, done: str) -> CleaningState:
    """Return the state after the files up to that batch; sightings of them are dropped."""
    done = max(done, state.done)
    later = tuple(one for one in state.sightings if one.batch > done)
    return replace(state, sightings=later, done=done)

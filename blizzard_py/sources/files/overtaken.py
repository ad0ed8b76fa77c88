"""A checkpoint that was brought back from a copy, although files were published since.

To go on from it would ingest these files again. Each batch is written down in the checkpoint before
it begins, in the journal before anything of it is published, and by its outputs' ids in the table's
log: so one above the last that the checkpoint has seen tells that it is an older one, and so does
one that is still to be read, as it says. (Sources of tables and APIs know by the numbers of their
groups, and what they read again replaces what was published.)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from blizzard_core.delta_json import commits, listed, read_each
from blizzard_core.errors import StateError
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import Journal
from blizzard_py.state.siblings import siblings_of
from blizzard_py.state.source_state import NO_BATCH, SourceState, checkpoint_path
from blizzard_py.state.state_paths import JOURNAL_FOLDER

# So many of the table's newest commits are looked at, at each start.
COMMITS = 10


@dataclass(frozen=True, slots=True)
class _Unknown:
    """The last of the batches that a checkpoint does not know of, and what tells of it."""

    batch: str
    what: str

    def is_to(self, state: SourceState) -> bool:
        """Whether the batch is one of which this state does not know that it was committed."""
        return self.batch > state.last_batch or self.batch in _to_read(state)


def not_overtaken(state: SourceState, parts: Parts, where: str) -> SourceState:
    """The state, with the last batch that the journal knows of where nobody wrote that down.

    Costs two LISTs and a few GETs, once a start. Raises `StateError` if batches were committed
    that the state does not know of.
    """
    unknown = _unknown_to(state, parts)
    if unknown is not None:
        raise StateError(f"{where}: {unknown.what}. {_remedy(parts)}")
    return state if state.last_batch else replace(state, last_batch=last_known(state, parts))


def current_state(parts: Parts) -> SourceState | None:
    """The state in storage, for who decides by it and does not own it; None if there is none.

    A daemon may go on meanwhile. Raises `StateError` for one that the daemon would refuse, since
    it says of files that they are still to be done that were done long ago; `StorageError`.
    """
    sink = parts.stores.sink
    state = read_state(sink, parts.id)
    unknown = None if state is None else _unknown_to(state, parts)
    if unknown is None:
        return state
    # Its owner writes a batch down before anything tells of it: by now it is there, if ever.
    state = read_state(sink, parts.id)
    if state is not None and unknown.is_to(state):
        raise StateError(
            f"{sink.uri}/{checkpoint_path(parts.id)}: {unknown.what}. {_remedy(parts)}"
        )
    return state


def _unknown_to(state: SourceState, parts: Parts) -> _Unknown | None:
    if not (state.last_batch or _is_of_an_original(state)):
        return None  # an older release did not write down which batch was the last
    to_read, last = _to_read(state), state.last_batch
    journal = Journal(parts.stores.sink, parts.id)
    told = [b for b in journal.since(min(to_read, default=last)) if b > last or b in to_read]
    if told:
        return _Unknown(
            told[-1],
            f"is older than what was published since: the journal goes on to batch {told[-1]}, and"
            " files would come again",
        )
    unknown = max(_committed_since(parts, last, to_read), default=None)
    if unknown is None:
        return None
    return _Unknown(
        unknown,
        "it and the journal are older than the table, whose log commits batch"
        f" {unknown} of it, and files would come again",
    )


def _to_read(state: SourceState) -> frozenset[str]:
    """Batches of which nothing was committed, by what the state says."""
    return frozenset(batch.batch for batch in state.in_flight if batch.phase == "running")


def _is_of_an_original(state: SourceState) -> bool:
    """Whether no batch of ours was ever begun on it, although files are done."""
    begun = state.totals.batches or state.in_flight or state.ledger or state.anew_ts
    return state.progress.state != "Initial" and not begun


def last_known(state: SourceState, parts: Parts) -> str:
    """The last batch that anything tells of, for whoever makes a checkpoint that knows of all.

    What is in flight may have no entry in the journal yet. Where an operator has said what is done,
    or insisted on a start from nothing, the log may go on behind the journal: it is known of.
    """
    journal = Journal(parts.stores.sink, parts.id).batches()
    begun = (*journal, *(batch.batch for batch in state.in_flight), *_committed_since(parts, ""))
    return max(begun, default=NO_BATCH)


def _committed_since(parts: Parts, last: str, to_read: Collection[str] = frozenset()) -> set[str]:
    """Batches in the table's newest commits above the last one or still to be read.

    Without those that any journal has.
    """
    sink = parts.stores.sink
    ours = re.compile(rf'"{re.escape(parts.name)}/([0-9a-f-]{{36}})/\d+/'.encode())
    newest = iter(commits(sink)[-COMMITS:])
    found = {
        batch.decode()
        for _, raw in read_each(sink, newest, COMMITS)
        for batch in ours.findall(raw)
        if batch.decode() > last or batch.decode() in to_read
    }
    if found:
        # Replays and backfills have journals of their own, and their outputs this source's name.
        entries = listed(sink, f"{JOURNAL_FOLDER}/", f"{JOURNAL_FOLDER}0")
        found -= {entry.path.rpartition("/")[2].removesuffix(".json") for entry in entries}
    if found:
        # They are kept for thirty days, and folded before.
        for source_id in siblings_of(sink, parts.letters_id):
            found = set(read_ledger(sink, source_id).not_folded(sorted(found)))
    return found


def _remedy(parts: Parts) -> str:
    if parts.suffix:
        return (
            "Bring its last version back, or take the files that are still missing with `blizzard"
            " ingest`, which knows what was done"
        )
    if parts.event_time is not None:
        return (
            "Bring its last version back; nothing else tells what its query remembers, so without"
            " it the query needs a new pipeline and a table of its own"
        )
    return "Bring its last version back, or have `blizzard checkpoint rebuild` make one"

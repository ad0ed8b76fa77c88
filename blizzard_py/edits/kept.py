"""The copies of a checkpoint that changes by hand keep, in the order in which they were kept.

The order is our own count, which stands in each copy's note: the store's clock may have been
put right in between, and epochs begin again where a checkpoint was lost. So what is removed when
there are many is the oldest, and never the one that was kept just now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blizzard_core.errors import Conflict, NotFound, StateError
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.edits.notes import Note, drop, note_of, whoever, write_note
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.siblings import siblings_of

# So many copies of earlier checkpoints stay.
COPIES_KEPT = 50


@dataclass(frozen=True, slots=True)
class Kept:
    """A copy with its note, None if there is none; ``error`` is why it cannot be read."""

    entry: Entry
    note: Note | None
    error: str = ""


def kept(sink: Storage, path: str) -> list[Kept]:
    """The copies of the checkpoint at ``path``, oldest first. Raises `StorageError`."""
    stem = f"{path}.epoch-"
    try:
        entries = [
            entry
            for page in sink.list_range(stem, f"{stem}\U0010ffff")
            for entry in page.entries
            if entry.path.endswith(".bak")
        ]
    except NotFound:
        return []
    return sorted((_with_note(sink, entry) for entry in entries), key=_order)


def _with_note(sink: Storage, entry: Entry) -> Kept:
    try:
        return Kept(entry, note_of(sink, entry.path))
    except StateError as error:
        return Kept(entry, None, str(error))


def _order(found: Kept) -> tuple[int, float, str]:
    number = 0 if found.note is None else found.note.number
    return number, found.entry.modified, found.entry.path


def published_by(sink: Storage, live_id: str) -> dict[str, int]:
    """Return how many batches each replay and backfill of a source has ended, by its id.

    Raises `StateError`, `StorageError`.
    """
    states = {run: read_state(sink, run) for run in siblings_of(sink, live_id)}
    return {run: state.totals.batches for run, state in states.items() if state is not None}


def keep(
    sink: Storage,
    path: str,
    raw: bytes,
    epoch: int,
    *,
    at: float,
    why: str,
    runs: Mapping[str, int],
) -> str:
    """A copy of a checkpoint beside it, as a path: one per epoch, never overwritten.

    Its note says who has it replaced ``at`` a time and ``why``, and what `published_by` said.
    """
    known = kept(sink, path)
    number = 1 + max((each.note.number for each in known if each.note is not None), default=0)
    copy = _put(sink, path, raw, epoch)
    write_note(sink, copy, Note(whoever(), at, why, number, dict(runs)))
    older = [each.entry.path for each in known if each.entry.path != copy]
    for old in older[: max(0, len(older) + 1 - COPIES_KEPT)]:
        drop(sink, old)
    return copy


def _put(sink: Storage, path: str, raw: bytes, epoch: int) -> str:
    copy = f"{path}.epoch-{epoch}.bak"
    number = 1
    while True:
        try:
            sink.put_if(copy, raw, None)
        except Conflict:
            if sink.read(copy) == raw:
                return copy
            number += 1
            copy = f"{path}.epoch-{epoch}-{number}.bak"
        else:
            return copy

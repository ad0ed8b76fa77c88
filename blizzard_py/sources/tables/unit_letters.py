"""Letters of units: closed by the reading that succeeds, or that took the place of bad rows."""

from __future__ import annotations

from collections.abc import Collection

from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import DeadLetterObject, objects, put_away, read
from blizzard_py.slices.units.state import UnitsState


def close_letters(dlq: Storage, source_id: str, uri: str, known: UnitsState) -> list[str]:
    """Archive dead letters whose units were all read since, and return their ids.

    ``uri`` is the source's; paths of letters begin with it. Only the owner of the checkpoint calls
    this, with a saved state; a second call changes nothing. Raises `StorageError`,
    `UnreadableDeadLetter`.
    """
    closed = []
    for found in list(objects(dlq, source_id)):
        if found.kind == "files" and not _is_open(dlq, found, uri, known):
            dlq.rename(*put_away(source_id, found.id))
            closed.append(found.id)
    return closed


def close_bad_rows(
    dlq: Storage, source_id: str, uri: str, units: Collection[str], batch: str
) -> list[str]:
    """Archive dead letters of bad rows whose units were all read again as a whole by ``batch``.

    Rows that are still bad have a letter of that batch. Called like `close_letters`. A death before
    this call leaves open letters that are not needed.
    """
    closed = []
    for found in list(objects(dlq, source_id)):
        if found.kind != "records" or found.batch == batch:
            continue
        if all(letter.uri.removeprefix(f"{uri}/") in units for letter in read(dlq, found)):
            dlq.rename(*put_away(source_id, found.id))
            closed.append(found.id)
    return closed


def _is_open(dlq: Storage, found: DeadLetterObject, uri: str, known: UnitsState) -> bool:
    """Return whether one of its units still fails."""
    keys = (letter.uri.removeprefix(f"{uri}/") for letter in read(dlq, found))
    return any(key in known.open and known.open[key].failures for key in keys)

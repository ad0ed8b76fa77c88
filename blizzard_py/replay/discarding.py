"""``blizzard dlq discard``: dead letters that are not to be ingested are closed, with the reason.

Nothing of the table or of what is settled changes: the files and records stay given up. A
letter that a replay has taken, or whose batch is not finished, is refused. The replays of the
source are taken over first, and one that runs is fenced. Then the letters are taken, as a replay
takes them, by a save that is refused if another replay came in between. It has the reason, which
is written and the letter put away after it, by whoever comes next if this one dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_core.errors import BlizzardError
from blizzard_py.dead_letters.counting import lines_of
from blizzard_py.dead_letters.reader import DeadLetterObject, put_away
from blizzard_py.dead_letters.reasons import write_reason
from blizzard_py.replay.files import DeadLetterFiles
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.siblings import backfills_of
from blizzard_py.state.source_state import Closing, SourceState


class DiscardRefused(BlizzardError):
    """Letters that cannot be closed now; nothing was changed. The message has the remedy."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """One object of ``letters`` that was closed."""

    id: str
    kind: str
    letters: int


def discard(
    live: Parts,
    replays: tuple[Parts, Parts] | None,
    chosen: Sequence[DeadLetterObject],
    reason: Closing | None,
) -> list[Discarded]:
    """Close the letters; without a ``reason`` only say which.

    ``replays`` are the source's, of files and of records; None where it can have none.
    Raises `DiscardRefused`, `FencedError`, `StateError`, `StorageError`.
    """
    taken = [Taken(parts) for parts in replays or ()] if chosen else []
    states = [each.peek() if reason is None else each.open() for each in taken]
    _check(live, states, chosen)
    homes = {} if replays is None or reason is None else _homes(live, replays, chosen)
    done = [Discarded(each.id, each.kind, lines_of(live.stores.dlq, each)) for each in chosen]
    if reason is None:
        return done
    if replays is None:
        for each in chosen:
            write_reason(live.stores.dlq, live.letters_id, each.id, reason)
            live.stores.dlq.rename(*put_away(live.letters_id, each.id))
        return done
    for ledger, state, parts in zip(taken, states, replays, strict=False):
        closing = {name: reason for name, home in homes.items() if home == parts.id}
        if closing:
            ledger.close(state, closing)
    return done


def _homes(
    live: Parts, replays: tuple[Parts, Parts], chosen: Sequence[DeadLetterObject]
) -> dict[str, str]:
    """Return which of the replays would take each object, by their ids."""
    files = DeadLetterFiles(live, *replays, from_source=False)
    return {each.id: files.parts_for(each).id for each in chosen}


def _check(live: Parts, replays: Sequence[SourceState], chosen: Sequence[DeadLetterObject]) -> None:
    sink = live.stores.sink
    runs = (live.letters_id, *backfills_of(sink, live.letters_id))
    states = [*replays, *(read_state(sink, run) or SourceState() for run in runs)]
    taken = {letter for state in replays for letter in state.letters if letter not in state.closing}
    unfinished = {batch.batch for state in states for batch in state.in_flight}
    for each in chosen:
        if each.id in taken:
            raise DiscardRefused(
                f"{each.id}: a replay has taken it; have it end (`blizzard dlq replay`) first"
            )
        if each.batch in unfinished:
            raise DiscardRefused(
                f"{each.id} is of a batch that is not finished yet; let the daemon finish it"
            )

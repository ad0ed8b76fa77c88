"""``blizzard dlq discard``: dead letters that are not to be ingested are closed, with the reason.

Nothing of the table or of what is settled changes: the files and records stay given up. A
letter that a replay has taken, or whose batch is not finished, is refused. The replays of the
source are taken over first, so that none takes the letter at the same moment: one that runs is
fenced. Reason first, then the letter is put away; who dies in between does both again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_core.errors import BlizzardError
from blizzard_py.dead_letters.counting import lines_of
from blizzard_py.dead_letters.reader import DeadLetterObject, put_away
from blizzard_py.dead_letters.reasons import Reason, write_reason
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.siblings import backfills_of
from blizzard_py.state.source_state import SourceState


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
    replays: Sequence[Parts],
    chosen: Sequence[DeadLetterObject],
    reason: Reason | None,
) -> list[Discarded]:
    """Close the letters; without a ``reason`` only say which. ``replays`` are the source's.

    Raises `DiscardRefused`, `FencedError`, `StateError`, `StorageError`.
    """
    taken = [Taken(parts) for parts in replays]
    states = [each.peek() if reason is None else each.open() for each in taken] if chosen else []
    _check(live, states, chosen)
    dlq = live.stores.dlq
    done = []
    for each in chosen:
        done.append(Discarded(each.id, each.kind, lines_of(dlq, each)))
        if reason is not None:
            write_reason(dlq, live.letters_id, each.id, reason)
            dlq.rename(*put_away(live.letters_id, each.id))
    return done


def _check(live: Parts, replays: Sequence[SourceState], chosen: Sequence[DeadLetterObject]) -> None:
    sink = live.stores.sink
    runs = (live.letters_id, *backfills_of(sink, live.letters_id))
    states = [*replays, *(read_state(sink, run) or SourceState() for run in runs)]
    taken = {letter for state in replays for letter in state.letters}
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

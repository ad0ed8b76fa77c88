"""Files that a replay or ``blizzard ingest`` has taken and that a poll may still come upon.

Mostly these lie where no poll looks. But ``blizzard ingest`` also takes files whose
partition is kept apart until its time has come, or whose ending does not count with
today's configuration; later they look new. So whoever has found files asks here before
they are begun: what is queued at the replay or ingested by it is passed without a row.

The other half is `blizzard_py.claims`: a file that polls look at, or will within the
hour, is the live daemon's. Between the two a file is always somebody's.
"""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_py.batch import Parts
from blizzard_py.core import checkpoint
from blizzard_py.core.model import Entry, FinishedFile
from blizzard_py.journal import Ingested
from blizzard_py.siblings import replays_of
from blizzard_py.state import Batch, SourceState, checkpoint_path, state_from_json, under_way


class OutOfTurn:
    """What the replay of one source has taken. A request per question while it never ran."""

    def __init__(self, parts: Parts) -> None:
        self._sink = parts.stores.sink
        self._replay_id = replays_of(parts.letters_id)[0]
        self._is_replay = parts.is_replay
        self._ingested = Ingested(self._sink, self._replay_id, parts.concurrency)

    def among(self, entries: Sequence[Entry], anew_ts: float) -> list[Entry]:
        """Those of the files that are the replay's, done or not.

        Done before ``anew_ts`` they are not: then an operator had the source start over.
        Raises `StateError`, `StorageError`.
        """
        # The state first: what it has not finished yet the journal may have by now.
        state = self._state(entries)
        if state is None:
            return []
        taken = {*under_way(state), *self._ingested.since(anew_ts)}
        return [entry for entry in entries if entry.path in taken]

    def unfinished(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of the files that the replay has still to do. Raises as `among` does."""
        state = self._state(entries)
        waiting = () if state is None else set(under_way(state))
        return [entry for entry in entries if entry.path in waiting]

    def _state(self, entries: Sequence[Entry]) -> SourceState | None:
        if not entries or self._is_replay:
            return None
        return checkpoint.load(self._sink, checkpoint_path(self._replay_id), state_from_json)


def passed(batch: str, entries: Sequence[Entry], seen: float, now: float) -> Batch:
    """The batch that passes files without a row, committed as it is."""
    finished = tuple(
        FinishedFile(entry.path, "reported", error="a replay has taken it", stage="replay")
        for entry in entries
    )
    return Batch(
        batch, 1, "publishing", now, tuple(entries), seen, finished=finished, committed_ts=now
    )

"""Whose a file is that a replay or ``blizzard ingest`` would take: theirs, or somebody else's.

This is what keeps rows from coming twice: a letter may be written for a batch that is
not finished, a file may have two letters, the live daemon may still have it to do, and
a backfill may have ingested it since. The journals of the letter's batch and of all
other runs decide, and the ledgers that they are folded into; no time does.
"""

from __future__ import annotations

from collections.abc import Mapping

from blizzard_py.backfill import Range
from blizzard_py.batch import Parts
from blizzard_py.core.errors import BlizzardError
from blizzard_py.core.watermark import is_hidden, is_new
from blizzard_py.discovery import Places, accepts
from blizzard_py.letters import LetterObject
from blizzard_py.settrack import SetTracker
from blizzard_py.siblings import BACKFILL, backfills_of, replays_of
from blizzard_py.state import STATE_FOLDER, SourceState
from blizzard_py.statefile import read_ledger, read_state


class BatchInFlight(BlizzardError):
    """The letters are of a batch that is not finished, so they are not final."""


class Claims:
    """What the live daemon, its backfills and earlier replays have to do with files.

    ``replayed`` maps the paths that replays have ingested to their batches.
    Reads the state as it is now, so make one after the letters were listed.
    Raises `StateError`, `StorageError`.
    """

    def __init__(self, live: Parts, replayed: Mapping[str, str]) -> None:
        self._live = live
        self._replayed = replayed
        sink = live.stores.sink
        backfills = backfills_of(sink, live.id)
        # The state first: what it has not finished yet the ledger may have by now.
        self._state = read_state(sink, live.id) or SourceState()
        self._others = [
            read_state(sink, source_id) or SourceState()
            for source_id in (*backfills, *replays_of(live.id))
        ]
        self._ledger = read_ledger(sink, live.id)
        self._ledgers = {source_id: read_ledger(sink, source_id) for source_id in backfills}
        self._in_flight = {
            batch.batch for state in (self._state, *self._others) for batch in state.in_flight
        }
        self._tracker: SetTracker | None = None

    def check_batch(self, found: LetterObject) -> None:
        """Raise `BatchInFlight` for letters of a batch that is not finished."""
        if found.batch in self._in_flight:
            raise BatchInFlight(
                f"{found.path} is of a batch that is not finished yet; let the daemon finish it,"
                " then replay"
            )

    def whose(self, path: str, *, live: bool) -> str:
        """Why the file of a dead letter is not the replay's; empty if it is.

        ``live`` says whether it is a file of the source (and not one of records).
        """
        if path in self._replayed:
            return f"a replay has ingested it in batch {self._replayed[path]}"
        if not live:
            return ""
        waits = self._waits(path)
        if waits:
            return waits
        if self._ledger.settled_as(path) == "rows":
            return "it was ingested since"
        for source_id, ledger in self._ledgers.items():
            if ledger.settled_as(path) == "rows":
                name = source_id.removeprefix(f"{self._live.id}{BACKFILL}")
                return f"the backfill {name} has ingested it"
        return ""

    def _waits(self, path: str) -> str:
        """Whether a run has still to do the file; empty if none has."""
        if _has_it(self._state, path) or self._is_new(path):
            return "the live daemon has still to do it"
        if any(_has_it(state, path) for state in self._others):
            return "a backfill or an earlier replay has still to do it"
        return ""

    def _is_new(self, path: str) -> bool:
        """Whether the live daemon's polls will find it."""
        live, state = self._live, self._state
        if is_hidden(path) or not accepts(live.source.compression)(path):
            return False
        if live.source.use_watermark:
            if state.progress.state == "Initial" and not state.progress.partitions:
                return True
            if not Places(state.progress, live.source, live.clock()).take(path):
                return False
            return is_new(state.progress, path)
        if self._tracker is None:
            self._tracker = SetTracker(live.stores.sink, f"{STATE_FOLDER}/{live.id}_processed")
            self._tracker.load(state.processed or ())
        return bool(self._tracker.unseen([path]))


def _has_it(state: SourceState, path: str) -> bool:
    if path in state.retries or any(entry.path == path for entry in state.queue):
        return True
    return any(entry.path == path for batch in state.in_flight for entry in batch.files)


def backfill_ranges(live: Parts) -> list[Range]:
    """The ranges of a source's backfills so far, from the names of their checkpoints."""
    stem = f"{live.id}{BACKFILL}"
    sink = live.stores.sink
    found = (Range.from_slug(name.removeprefix(stem)) for name in backfills_of(sink, live.id))
    return [known for known in found if known is not None]

"""Whose a dead letter's file is: the replay's, or somebody's who has ingested it or will.

This is what keeps a replay from doubling rows: a file that was mended at the
source may be the live daemon's late file, a letter may be written for a batch
that is going to run again, and a file may have two letters.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from blizzard_py.backfill import BACKFILL, Range
from blizzard_py.batch import RECORDS_SUFFIX, REPLAY_SUFFIX, Parts
from blizzard_py.core import checkpoint
from blizzard_py.core.errors import BlizzardError, NotFound
from blizzard_py.core.model import Entry
from blizzard_py.core.watermark import is_new
from blizzard_py.journal import Ingested
from blizzard_py.late import CLOCK_SLACK_SECS, find_late
from blizzard_py.letters import DeadLetter, LetterObject
from blizzard_py.settrack import SetTracker
from blizzard_py.state import STATE_FOLDER, SourceState, state_from_json


class BatchInFlight(BlizzardError):
    """The letters are of a batch that is not finished, so they are not final."""


class Claims:
    """What the live daemon and earlier replays have to do with files.

    ``replayed`` maps the paths that replays have ingested to their batches.
    Reads the state as it is now, so make one after the letters were listed.
    Raises `StateError`, `StorageError`.
    """

    def __init__(self, live: Parts, replayed: Mapping[str, str]) -> None:
        self._live = live
        self._replayed = replayed
        self._state = _state(live, live.id)
        self._backfills = _backfills_of(live)
        self._in_flight = {
            batch.batch
            for source_id in (live.id, *self._backfills, *_replays_of(live))
            for batch in _state(live, source_id).in_flight
        }
        self._ingested: dict[tuple[str, ...], dict[str, str]] = {}

    def check_batch(self, found: LetterObject) -> None:
        """Raise `BatchInFlight` for letters of a batch that may still run again."""
        if found.batch in self._in_flight:
            raise BatchInFlight(
                f"{found.path} is of a batch that is not finished yet; let the daemon finish it,"
                " then replay"
            )

    def whose(self, path: str, entry: Entry | None, letter: DeadLetter, *, live: bool) -> str:
        """Why the file is not the replay's; empty if it is.

        ``live`` says whether it is a file of the source (and not one of records).
        """
        if path in self._replayed:
            return f"a replay has ingested it in batch {self._replayed[path]}"
        if not live:
            return ""
        return self._taken_by_live(entry) or self._ingested_since(path, entry, letter)

    def _taken_by_live(self, entry: Entry | None) -> str:
        state, source = self._state, self._live.source
        if entry is None:
            return ""
        queued = {e.path for e in state.passed.queue} | set(state.retries)
        if entry.path in queued or self._is_new(entry):
            return "the live daemon has still to do it"
        if (
            source.use_watermark
            and source.late_files == "ingest"
            and source.late_sweep_interval_secs
            and find_late(state.passed, state.progress, [entry])
        ):
            return "the live daemon's next late sweep ingests it (late_files: ingest)"
        return ""

    def _is_new(self, entry: Entry) -> bool:
        state = self._state
        if self._live.source.use_watermark:
            started = state.progress.state != "Initial" or bool(state.progress.partitions)
            return not started or is_new(state.progress, entry.path)
        tracker = SetTracker(self._live.stores.sink, self._live.id)
        tracker.load(state, sweep=False)
        return bool(tracker.unseen([entry]))

    def _ingested_since(self, path: str, entry: Entry | None, letter: DeadLetter) -> str:
        """Whether a journal has it as ingested, where that is possible at all.

        The live daemon takes a file again only if it was rewritten, and calls it
        late if that was after it was ingested. A backfill takes what it is told.
        """
        late = letter.stage == "late"
        try:
            written = dt.datetime.fromisoformat(letter.timestamp).timestamp() - CLOCK_SLACK_SECS
        except ValueError:
            written = 0.0
        since = 0.0 if late else written
        where = self._backfills
        if late or (entry is not None and entry.modified > written):
            where = (self._live.id, *where)
        batch = self._journal(where, since).get(path)
        return f"it was ingested in batch {batch}" if batch else ""

    def _journal(self, source_ids: tuple[str, ...], since: float) -> dict[str, str]:
        sink, concurrency = self._live.stores.sink, self._live.concurrency
        key = (*source_ids, str(since))
        if key not in self._ingested:
            self._ingested = {  # one letter object's after the other's
                key: {
                    path: batch
                    for source_id in source_ids
                    for path, batch in Ingested(sink, source_id, concurrency)
                    .since(since)
                    .batches()
                    .items()
                }
            }
        return self._ingested[key]


def _state(parts: Parts, source_id: str) -> SourceState:
    path = f"{STATE_FOLDER}/{source_id}_checkpoint.json"
    return checkpoint.load(parts.stores.sink, path, state_from_json) or SourceState()


def _replays_of(live: Parts) -> tuple[str, str]:
    return f"{live.id}{REPLAY_SUFFIX}", f"{live.id}{RECORDS_SUFFIX}"


def backfill_ranges(live: Parts) -> list[Range]:
    """The ranges of a source's backfills so far, from the names of their checkpoints."""
    stem = f"{live.id}{BACKFILL}"
    found = (Range.from_slug(name.removeprefix(stem)) for name in _backfills_of(live))
    return [known for known in found if known is not None]


def _backfills_of(live: Parts) -> tuple[str, ...]:
    """The ids of the source's backfills: they write letters into its queue as well."""
    stem = f"{STATE_FOLDER}/{live.id}{BACKFILL}"
    try:
        return tuple(
            entry.path.removeprefix(f"{STATE_FOLDER}/").removesuffix("_checkpoint.json")
            for page in live.stores.sink.list_range(stem, f"{stem}\U0010ffff")
            for entry in page.entries
            if entry.path.endswith("_checkpoint.json")
        )
    except NotFound:
        return ()

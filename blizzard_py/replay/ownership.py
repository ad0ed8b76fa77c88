"""Claims on files that a replay or a request would take: theirs, or another run's.

This is what keeps rows from coming twice: a letter may be written for a batch that is
not finished, a file may have two letters, the live daemon may still have it to do, and
a backfill may have ingested it since. The journals of the letter's batch and of all
other runs decide, and the ledgers that they are folded into; no time does.

A file that a checkpoint of an older release passed over is in no ledger: nobody knows
whether rows came of it. Its letter, if it has one, says that none did; without one
somebody has to insist.

Taken over first, read afterwards: whoever acts on a claim has the replay's checkpoint by
then, so that no other replay can have taken the file since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import is_hidden
from blizzard_core.watermark.progress import is_new
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.files.discovery import accepts, check_tracking, starting_point
from blizzard_py.sources.files.opening import known_of
from blizzard_py.sources.files.replaced_since import ReplacedSince
from blizzard_py.sources.files.sweep import sweeps
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import Range
from blizzard_py.sources.stale import current_state
from blizzard_py.state.checkpoint_file import check_identity, read_ledger, read_state
from blizzard_py.state.journal import Ingested
from blizzard_py.state.siblings import BACKFILL, backfills_of, replays_of
from blizzard_py.state.source_state import SourceState, checkpoint_path, under_way
from blizzard_py.state.transitions import is_below_origin

# A partition that is kept apart and will be looked at within this time is the live
# daemon's already: what is taken now is queued later.
APART_MARGIN_SECS = 3600.0


class BatchInFlight(BlizzardError):
    """The letters are of a batch that is not finished, so they are not final."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's claim on a file of the source, and the reason.

    ``free``: nobody's. ``waits``: a run has still to do it, and if that is ``open`` people may
    have it not do it. ``rows``: its rows are in, ``replayed`` if a replay has brought them.
    ``unknown``: it was passed before there was a ledger, and only the operator can know.
    """

    standing: Literal["free", "waits", "rows", "unknown"]
    reason: str = ""
    open: bool = False
    replayed: bool = False


_FREE = Claim("free")
_UNKNOWN = Claim(
    "unknown",
    "it was passed over before there was a ledger, so nobody knows whether its rows are in; look"
    " into the table, and give --insist if they are not",
)

_KEPT = (
    "it was to replace rows that are in the table still, and nobody knows where these are;"
    " `blizzard backfill --replace --insist` takes it, if each row names its file"
)


class Claims:
    """Claims of the live daemon, its backfills and earlier replays on files.

    ``replays`` tell what replays have ingested, as far as their journals reach; their ledgers
    know of what is older. Before an operator had the source start over it counts no more.
    ``now`` is the store's time, from whoever has just written there: the daemon goes by
    it, and a machine's clock may be anywhere. Who only looks has none to give; then it is not
    before the last save.
    Reads the state as it is now, so make one after the letters were listed.
    Raises `ColdStartRefused` where the live checkpoint is lost: without it everything would
    seem to be the live daemon's to do. Raises `StateError`, `StorageError`.
    """

    def __init__(self, live: Parts, replays: Iterable[Ingested], now: float | None = None) -> None:
        self._live = live
        self._now = _latest_known(live) if now is None else now
        sink = live.stores.sink
        backfills = backfills_of(sink, live.id)
        # The state first: what it has not finished yet the ledger may have by now.
        self._state = _live_state(live)
        self._backfills = {
            source_id: read_state(sink, source_id) or SourceState() for source_id in backfills
        }
        self._taken = [
            read_state(sink, source_id) or SourceState() for source_id in replays_of(live.id)
        ]
        self._others = [*self._backfills.values(), *self._taken]
        # What the live daemon would refuse to run on tells nothing of what it has to do.
        where = f"{sink.uri}/{checkpoint_path(live.id)}"
        check_identity(self._state, live.identity, live.source.id, where)
        # Rows of tables and APIs are no files that anybody else could come upon.
        self._files = live.files if live.has_files else None
        if self._files is not None:
            check_tracking(self._state, self._files, where)
            starting_point(self._state, self._files, self._now, where)
            # Before the ledger: what is done in between is still the daemon's then, not unknown.
            self._known = known_of(live, self._state, self._now + APART_MARGIN_SECS)
        self._ledger = read_ledger(sink, live.id)
        self._replayed: dict[str, str] = {}
        for replay in replays:
            self._replayed |= replay.batches(self._state.anew_ts)
        self._ledgers = {source_id: read_ledger(sink, source_id) for source_id in backfills}
        anew = self._state.anew_ts
        self._replays = [read_ledger(sink, source_id, anew) for source_id in replays_of(live.id)]
        self._replaced = ReplacedSince(sink, live.id)
        self._in_flight = {
            batch.batch for state in (self._state, *self._others) for batch in state.in_flight
        }

    def check_batch(self, found: DeadLetterObject) -> None:
        """Raise `BatchInFlight` for letters of a batch that is not finished."""
        if found.batch in self._in_flight:
            raise BatchInFlight(
                f"{found.path} is of a batch that is not finished yet; let the daemon finish it,"
                " then replay"
            )

    def whose(self, path: str, *, live: bool, kept: bool = False) -> Claim:
        """Return the claim on the file of a dead letter; with a reason it is not the replay's.

        ``live`` says whether it is a file of the source (and not one of records), ``kept``
        whether the letter is of a reading that was to replace rows.
        """
        if not live:
            reason = self._replay_of(path) or self._replaced.of([path]).get(path, "")
            return Claim("rows", reason) if reason else _FREE
        found = self.claim(path)
        if found.standing == "unknown":
            # The letter itself says that no rows came of it, unless it was to replace them.
            return Claim("unknown", _KEPT) if kept else _FREE
        return found

    def claim(self, path: str) -> Claim:
        """Return the claim on a file of the source."""
        replayed = self._replay_of(path)
        if replayed:
            return Claim("rows", replayed, replayed=True)
        waits = self._waits(path)
        if waits:
            # What a replay has taken it does: nobody moves its watermark.
            taken = any(path in under_way(state) for state in self._taken)
            return Claim("waits", waits, open=not taken)
        if self._ledger.settled_as(path) == "rows":
            return Claim("rows", "its rows are in")
        for source_id, ledger in self._ledgers.items():
            if ledger.settled_as(path) == "rows":
                return Claim("rows", f"the backfill {self._range_of(source_id)} has ingested it")
        return _UNKNOWN if self._is_older(path) else _FREE

    def failed(self, path: str) -> bool:
        """Return whether a run has settled the file without a row: by a letter, or as late."""
        ledgers = (self._ledger, *self._ledgers.values(), *self._replays)
        return any(ledger.settled_as(path) == "none" for ledger in ledgers)

    def _replay_of(self, path: str) -> str:
        batch = self._replayed.get(path)
        if batch is not None:
            return f"a replay has ingested it in batch {batch}"
        rows = any(ledger.ingested_since([path]) for ledger in self._replays)
        return "a replay has ingested it, more than thirty days ago" if rows else ""

    def _waits(self, path: str) -> str:
        """Return whether a run has still to do the file; empty if none has."""
        if path in under_way(self._state) or self._is_new(path):
            return "the live daemon has still to do it"
        if self._sweep_takes(path):
            return "the live daemon's next late sweep ingests it (late_files: ingest)"
        if any(path in under_way(state) for state in self._others):
            return "a backfill or an earlier replay has still to do it"
        for source_id, state in self._backfills.items():
            if state.progress.state != "Idle" and self._finds(source_id, path):
                return f"the backfill {self._range_of(source_id)} has still to do it; finish it"
        return ""

    def _is_candidate(self, path: str) -> bool:
        """Return whether the live daemon's listings take such a name at all."""
        source = self._files
        return (
            source is not None
            and not is_hidden(path)
            and accepts(source.advanced.compression)(path)
        )

    def _is_new(self, path: str) -> bool:
        """Return whether the live daemon's polls will find it."""
        return self._is_candidate(path) and self._known.finds(path)

    def is_ahead(self, path: str) -> bool:
        """Return whether polls that do not look at a file of that name yet may find it later.

        Once its partition is looked at, or once its ending counts.
        """
        source = self._files
        if source is None or not source.use_watermark or is_hidden(path):
            return False
        return is_new(self._state.progress, path)

    def _sweep_takes(self, path: str) -> bool:
        """Return whether the late sweep would ingest the file, which no poll finds."""
        source, state = self._files, self._state
        if source is None:
            return False
        if source.late_files != "ingest" or not sweeps(source) or not self._is_candidate(path):
            return False
        # What is new is no sweep's, also where polls do not look yet.
        if is_new(state.progress, path) or not self._ledger.not_settled([path]):
            return False
        return state.sweep.whole and not is_below_origin(state, path)

    def _is_older(self, path: str) -> bool:
        """Return whether the file may have been ingested before there was a ledger to say so."""
        settled = self._ledger.settled_as(path)
        if settled is not None:
            return settled == "noted" and not self._failed_in_replay(path)
        if not self._is_candidate(path):
            return False
        if self._known.is_older(path):
            return True
        return any(
            not other.sweep.whole
            and other.progress.state != "Initial"
            and self._range(source_id, path)
            and not is_new(other.progress, path)
            for source_id, other in self._backfills.items()
        )

    def _failed_in_replay(self, path: str) -> bool:
        """Return whether a replay has settled the file; without rows, or it would not get here."""
        return any(ledger.settled_as(path) == "none" for ledger in self._replays)

    def _finds(self, source_id: str, path: str) -> bool:
        """Return whether a backfill's listing would find the file."""
        progress = self._backfills[source_id].progress
        if not self._is_candidate(path) or not self._range(source_id, path):
            return False
        return is_new(progress, path) and bool(self._ledger.not_settled([path]))

    def _range(self, source_id: str, path: str) -> bool:
        found = Range.from_slug(self._range_of(source_id))
        return found is not None and found.holds(path)

    def _range_of(self, source_id: str) -> str:
        return source_id.removeprefix(f"{self._live.id}{BACKFILL}")


def check_live(live: Parts) -> None:
    """Raise `StateError` where the live daemon would be refused, before anything is written.

    A replay's own checkpoint would else be of files that the right configuration does not name.
    """
    state = _current(live)
    if state is not None:
        where = f"{live.stores.sink.uri}/{checkpoint_path(live.id)}"
        check_identity(state, live.identity, live.source.id, where)
        if live.has_files:
            check_tracking(state, live.files, where)


def _latest_known(live: Parts) -> float:
    """The time by this machine, or that of the daemon's last save by the store if it is later."""
    saved = live.stores.sink.stat(checkpoint_path(live.id))
    return max(live.clock(), 0.0 if saved is None else saved.modified)


def _live_state(live: Parts) -> SourceState:
    state = _current(live)
    if state is None:
        check_cold_start(live)
        # A first start may have come between.
        state = _current(live)
    return state or SourceState()


def _current(live: Parts) -> SourceState | None:
    """The live state. What tables and APIs read again replaces what was published."""
    return current_state(live) if live.has_files else read_state(live.stores.sink, live.id)


def backfill_ranges(live: Parts) -> list[Range]:
    """The ranges of a source's backfills so far, from the names of their checkpoints."""
    stem = f"{live.id}{BACKFILL}"
    sink = live.stores.sink
    found = (Range.from_slug(name.removeprefix(stem)) for name in backfills_of(sink, live.id))
    return [known for known in found if known is not None]

"""``blizzard ingest``: files that are named are ingested exactly once, however they are called.

They go through the replay of whole files, beside the live daemon: the one save that
puts them into its queue takes them (`blizzard_py.replay`), and from there on it is the
batch protocol that neither doubles nor loses a row. Killed at any moment, the same
command goes on where it was; two at once fence each other.

Names do not matter: late files, hidden ones, those with another ending, in partitions
that are kept apart or closed, are all taken. What matters is whose a file is
(`blizzard_py.replay.ownership`):

* one that the live daemon or a backfill has still to do is left to it;
* one whose rows are in is refused, unless a replay has brought them and it is the same file
  still: then it is done, for whoever was told to run the command again;
* one that was passed over before there was a ledger is refused unless somebody insists;
* one with an open dead letter is taken, and a replay of the letter leaves it out then.

What cannot be ingested ends as a dead letter, as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry
from blizzard_py.replay.ownership import Claims, check_live
from blizzard_py.replay.run import Drain, drain_taken
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Ingested, Journal
from blizzard_py.state.source_state import under_way

State = Literal[
    "would ingest", "ingested", "done", "quarantined", "taken", "left", "refused", "missing"
]

# What the operator has to look at.
_FAILED = frozenset({"quarantined", "taken", "refused", "missing"})


@dataclass(frozen=True, slots=True)
class Told:
    """The outcome of one file, ``path`` relative to the source.

    ``taken`` is queued and not done yet: run the same again. ``done`` is in since an earlier
    run, ``left`` is another's, ``reason`` says which one, and for ``refused`` why.
    """

    path: str
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """The outcomes of all files of one source; ``rows`` counts what this run has added."""

    files: tuple[Told, ...]
    rows: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """Takes files of one source: ``live`` are its parts, ``files`` those of its replay."""

    live: Parts
    files: Parts
    drain: Drain
    insist: bool = False

    def preview(self, paths: Sequence[str]) -> Given:
        """Return what `run` would do. Writes nothing. Raises `StateError`, `StorageError`."""
        state = Taken(self.files).peek()
        begun = set(under_way(state))
        told, _ = self._judged([path for path in paths if path not in begun])
        found = {file.path: file for file in told}
        again = tuple(found.get(path, Told(path, "would ingest")) for path in paths)
        return _given(again, 0)

    def run(self, paths: Sequence[str]) -> Given:
        """Ingest the files, and finish what an earlier run left.

        Raises `FencedError` if another replay of the source takes over, `StateError`,
        `StorageError`; then run it again.
        """
        check_live(self.live)
        ledger = Taken(self.files)
        journal = Journal(self.live.stores.sink, self.files.id, self.live.concurrency)
        before, known = ledger.peek(), set(journal.batches())
        begun = set(under_way(before)).intersection(paths)
        code = drain_taken(self.files, self.drain)
        if code:
            return _given(tuple(Told(path, "taken") for path in begun), 0, code)
        told, entries = self._judged([path for path in paths if path not in begun], ledger)
        code = drain_taken(self.files, self.drain) if entries else 0
        after = ledger.peek()
        left = set(under_way(after))
        records = journal.read(sorted(set(journal.batches()) - known))
        outcomes = {p: outcome for record in records for p, outcome in record.outcomes.items()}
        found = {file.path: file for file in told}
        ended = tuple(
            _ended(found.get(path, Told(path, "taken")), outcomes, left) for path in paths
        )
        return _given(ended, after.totals.rows - before.totals.rows, code)

    def _judged(
        self, paths: Sequence[str], ledger: Taken | None = None
    ) -> tuple[list[Told], list[Entry]]:
        """Return what is to be done with each file; with ``ledger`` those to ingest are taken."""
        # Taken over before it is asked whose they are; see `blizzard_py.replay.ownership`.
        state = now = None
        if ledger is not None and paths:
            state, now = ledger.open(), ledger.now()
        sink = self.live.stores.sink
        replays = Ingested(sink, self.files.id, self.live.concurrency)
        claims = Claims(self.live, [replays], now)
        told: list[Told] = []
        entries: list[Entry] = []
        for path in paths:
            entry = self.live.stores.source.stat(path)
            claim = claims.claim(path)
            if entry is None:
                told.append(Told(path, "missing", "there is no such file"))
            elif claim.standing == "waits":
                told.append(Told(path, "left", claim.reason))
            elif claim.replayed:
                same = replays.unchanged(entry)
                since = "" if same else "; it is not known to be the same file still"
                told.append(Told(path, "done" if same else "refused", claim.reason + since))
            elif claim.standing == "rows" or (claim.standing == "unknown" and not self.insist):
                told.append(Told(path, "refused", claim.reason))
            else:
                told.append(Told(path, "would ingest"))
                entries.append(entry)
        if ledger is not None and state is not None and entries:
            ledger.add(state, entries)
            log = get_logger(pipeline=self.live.pipeline, source=self.live.source_name)
            log.info("files_taken", files=len(entries))
        return told, entries


def _ended(file: Told, outcomes: dict[str, str], left: set[str]) -> Told:
    if file.state not in {"would ingest", "taken"}:
        return file
    if file.path in left:
        return Told(file.path, "taken", "not done yet; run the same command again")
    if outcomes.get(file.path) == "ingested":
        return replace(file, state="ingested")
    return Told(file.path, "quarantined", "it could not be ingested; its dead letter says why")


def _given(told: tuple[Told, ...], rows: int, code: int = 0) -> Given:
    failed = any(file.state in _FAILED for file in told)
    return Given(told, rows, code or int(failed))

"""Unfinished work of a replay: steps 2 and 4 of `blizzard_py.replay`.

A checkpoint that is gone where the journal tells of work is never taken for a first
replay: nobody would publish what was committed, while its files count as ingested.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from blizzard_core.checkpoint.fence import FencedFile
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reasons import write_reason
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.ledger import Ledger as BatchLedger
from blizzard_py.state.source_state import (
    Closing,
    SourceState,
    ToReplace,
    checkpoint_path,
    queued,
)


class Taken:
    """The checkpoint of a replay, as the list of letters it has taken."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._file = FencedFile(self._sink, checkpoint_path(parts.id))

    def peek(self) -> SourceState:
        """The state in storage. Writes nothing.

        Raises `ColdStartRefused` if it is lost, `StateError`, `StorageError`.
        """
        found = read_state(self._sink, self._parts.id)
        if found is None:
            check_cold_start(self._parts)
        return found or SourceState()

    def has_work(self) -> bool:
        """Return whether an earlier run left anything to finish."""
        state = self.peek()
        return bool(state.letters or state.in_flight or state.queue)

    def open(self) -> SourceState:
        """Take the checkpoint over: another replay of this source stops at its next save.

        Raises `ColdStartRefused` if it is lost, `FencedError`, `StateError`, `StorageError`.
        """

        def fresh() -> Mapping[str, Any]:
            check_cold_start(self._parts)
            begun = SourceState(source=self._parts.identity, unfolded=JournalTally())
            return state_to_json(begun, self._parts.clock())

        return self._file.take(state_from_json, fresh) or SourceState()

    def now(self) -> float:
        """The store's time, to be asked right after `open`. Raises as `FencedFile.now`."""
        return self._file.now()

    def add(
        self,
        state: SourceState,
        files: Sequence[Entry],
        *,
        letters_taken: Sequence[str] = (),
        replacing: Mapping[str, ToReplace] | None = None,
    ) -> None:
        """Step 2: the letters are taken, and their files are in the queue, each once.

        Those in ``replacing`` take the place of what they were ingested as before.
        """
        known = {entry.path for entry in state.queue}
        known.update(entry.path for batch in state.in_flight for entry in batch.files)
        fresh = [entry for entry in files if entry.path not in known]
        wanted = replacing or {}
        self._save(
            replace(
                state,
                queue=(*state.queue, *map(queued, fresh)),
                letters=tuple(dict.fromkeys((*state.letters, *letters_taken))),
                replacing=dict(state.replacing)
                | {entry.path: wanted[entry.path] for entry in fresh if entry.path in wanted},
            )
        )

    def close(self, state: SourceState, closing: Mapping[str, Closing]) -> None:
        """The letters are taken without a file, and put away with the reason; as `settle` does."""
        ours = dict.fromkeys((*state.letters, *closing))
        self._save(replace(state, letters=tuple(ours), closing={**state.closing, **closing}))
        self._put_away(closing, closing)
        left = tuple(letter for letter in state.letters if letter not in closing)
        others = {name: why for name, why in state.closing.items() if name not in closing}
        self._save(replace(state, letters=left, closing=others))

    def settle(self) -> None:
        """Step 4, unless something is left to do: then the next run takes it up.

        The journal is folded, and what it has of more than thirty days ago removed.
        """
        state = self.open()
        if state.in_flight or state.queue:
            return
        self._put_away(state.letters, state.closing)
        folded = self._folded(state)
        segments = folded.fold(state.unfolded)
        done = replace(state, letters=(), closing={}, ledger=segments or state.ledger)
        self._save(replace(done, unfolded=JournalTally()))
        folded.saved()
        folded.prune(self._file.now(), ())

    def _put_away(self, taken: Iterable[str], closing: Mapping[str, Closing]) -> None:
        dlq, source_id = self._parts.stores.dlq, self._parts.letters_id
        for letter_id in taken:
            if letter_id in closing:
                write_reason(dlq, source_id, letter_id, closing[letter_id])
            here, there = letters.put_away(source_id, letter_id)
            with contextlib.suppress(NotFound):  # moved before a crash
                dlq.rename(here, there)

    def _folded(self, state: SourceState) -> BatchLedger:
        """The replay's journal and what it was folded into.

        Replays have no late sweep that does it. When the live source was last started over is
        marked, for what was taken before that counts no more.
        """
        live = read_state(self._sink, self._parts.letters_id)
        found = BatchLedger(self._sink, self._parts.id, self._parts.concurrency)
        found.load(state.ledger, self._file.epoch, 0.0 if live is None else live.anew_ts)
        return found

    def _save(self, state: SourceState) -> None:
        self._file.save(state_to_json(state, self._parts.clock()))

"""Files that were changed after they were settled, of which nothing more is read.

The sweep lists size and modification time of each file. What these were when a file was listed
for its batch stands in the journals, for thirty days. Two kinds of settled files are told:

* one that a journal has, with another size or time in each of its records;
* one that no journal has any more, and that was modified since the sweep before this one.

So a file that is older than the journals is told if it was changed between two sweeps, and not
told if its time of modification was set back, or lies ahead of now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blizzard_core.checkpoint.digests import Digests, among
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.files.discovery import AHEAD_SLACK_SECS
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Journal
from blizzard_py.state.processed_set import digests_of
from blizzard_py.state.siblings import siblings_of

# Batches are named by a machine's clock, and files may wait for so long between look and batch.
_EARLIER_SECS = 86_400.0


class ChangedFiles:
    """Compares what a sweep lists with the journals of all runs of the source.

    32 bytes are held for each file of the journals' last two days or so, and of all thirty once
    there is a file that those do not explain. `forget` lets go of them.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._since: float | None = None
        self._paths = self._stamps = digests_of(())

    def forget(self) -> None:
        """The sweep is over."""
        self._since = None
        self._paths = self._stamps = digests_of(())

    def among(self, settled: Sequence[Entry], before: float, now: float) -> list[Entry]:
        """Those of the settled files that were changed; ``before`` is when the last sweep began.

        Raises `StateError`, `StorageError`.
        """
        left = self._unlike(settled, before)
        if left and self._since:
            left = self._unlike(left, 0.0)
        known = among(digests_of(entry.path for entry in left), self._paths)
        recent = before - AHEAD_SLACK_SECS, now + AHEAD_SLACK_SECS
        return [
            entry
            for entry, told in zip(left, known, strict=True)
            if told or (before and recent[0] <= entry.modified <= recent[1])
        ]

    def _unlike(self, entries: Sequence[Entry], before: float) -> list[Entry]:
        """Those that were modified since, or that journals have otherwise than they are."""
        self._read(max(0.0, before - _EARLIER_SECS))
        paths = among(digests_of(entry.path for entry in entries), self._paths)
        stamps = among(digests_of(map(stamp_of, entries)), self._stamps)
        limit = before - AHEAD_SLACK_SECS
        return [
            entry
            for entry, there, same in zip(entries, paths, stamps, strict=True)
            if not same and (there or entry.modified >= limit)
        ]

    def _read(self, since: float) -> None:
        if self._since is not None and self._since <= since:
            return
        paths: list[Digests] = []
        stamps: list[Digests] = []
        sink = self._parts.stores.sink
        for source_id in (self._parts.id, *siblings_of(sink, self._parts.id)):
            journal = Journal(sink, source_id, self._parts.concurrency)
            for record in journal.read(journal.since(first_name(since))):
                there = [path for path in record.settled if path in record.listed]
                paths.append(digests_of(there))
                stamps.append(digests_of(stamp_of(Entry(p, *record.listed[p])) for p in there))
        self._since = since
        self._paths, self._stamps = _sorted(paths), _sorted(stamps)


def stamp_of(entry: Entry) -> str:
    """A file with its size and time, as one text; stores tell times of single files in seconds."""
    return f"\0{entry.size}/{int(entry.modified)}/{entry.path}"


def _sorted(parts: Sequence[Digests]) -> Digests:
    return np.unique(np.concatenate([digests_of(()), *parts]))

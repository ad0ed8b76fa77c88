"""Single records whose whole file takes, or has taken, the place of what it had. Writes nothing.

A replay of records must not bring them then: the file has them, or was mended without them.
As with files (`blizzard_py.sources.files.out_of_turn`) it asks once its own claim is saved.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import letter_batch_of, original_of, stem_of
from blizzard_py.state.journal import Journal
from blizzard_py.state.siblings import replays_of
from blizzard_py.state.source_state import checkpoint_path, state_from_json


class ReplacedSince:
    """What replacements of whole files have to do with files of single records."""

    def __init__(self, sink: Storage, live_id: str) -> None:
        self._sink = sink
        self._replay_id = replays_of(live_id)[0]
        self._journal = Journal(sink, self._replay_id)
        self._read: set[str] = set()
        # Stems of files with the batches whose rows, and letters, were replaced.
        self._replaced: dict[str, set[str]] = {}

    def of(self, paths: Iterable[str]) -> dict[str, str]:
        """Those of a replay's record files that it has to leave out, with the reason.

        Raises `StateError`, `StorageError`.
        """
        state = checkpoint.load(self._sink, checkpoint_path(self._replay_id), state_from_json)
        if state is None:
            return {}
        under_way = {stem_of(path) for path in state.replacing}
        self._look()
        found: dict[str, str] = {}
        for path in paths:
            stem = original_of(path)
            if stem in under_way:
                found[path] = "its file is about to be replaced as a whole"
            elif letter_batch_of(path) in self._replaced.get(stem, ()):
                found[path] = "its file was replaced as a whole since"
        return found

    def _look(self) -> None:
        fresh = [batch for batch in self._journal.batches() if batch not in self._read]
        for document in self._journal.documents(fresh):
            self._read.add(document.batch)
            if document.group is None:
                continue
            for file in document.files:
                if file.outcome == "ingested":
                    known = self._replaced.setdefault(stem_of(file.path), set())
                    known.update(document.group.replaced.batches)

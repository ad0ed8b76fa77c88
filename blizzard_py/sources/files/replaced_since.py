"""Single records whose whole file takes, or has taken, the place of what it had. Writes nothing.

A replay of records must not bring them then: the file has them, or was mended without them.
As with files (`blizzard_py.sources.files.out_of_turn`) it asks once its own claim is saved.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import letter_batch_of, original_of, stem_of
from blizzard_py.state.checkpoint_document import state_from_json
from blizzard_py.state.journal import Journal, moment_of
from blizzard_py.state.siblings import replays_of
from blizzard_py.state.source_state import SourceState, checkpoint_path

# What replaces a batch's rows begins after it; by so much the clocks of two machines may differ.
SLACK_SECS = 86_400.0


class ReplacedSince:
    """Replacements of whole files, as they concern files of single records.

    Files are replaced by a replay of them, and by a source whose files are offered again.
    """

    def __init__(self, sink: Storage, live_id: str) -> None:
        self._sink = sink
        self._runs = [_Run(sink, live_id, is_live=True), _Run(sink, replays_of(live_id)[0])]

    def of(self, paths: Iterable[str]) -> dict[str, str]:
        """Return a replay's record files that it has to leave out, with the reason.

        Raises `StateError`, `StorageError`.
        """
        found: dict[str, str] = {}
        named = {path: letter_batch_of(path) for path in paths}
        batches = {path: batch for path, batch in named.items() if batch is not None}
        for run in self._runs if batches else ():
            state = run.state()
            if state is None or (run.is_live and state.processed is None):
                continue  # of names that sort none is offered again, and the journal may be long
            under_way = {stem_of(path) for path in state.replacing}
            run.look(first_name(moment_of(min(batches.values())) - SLACK_SECS))
            for path, batch in batches.items():
                stem = original_of(path)
                if stem in under_way:
                    found[path] = "its file is about to be replaced as a whole"
                elif run.has_replaced(stem, batch):
                    found[path] = "its file was replaced as a whole since"
        return found


class _Run:
    """One run of a source, as far as its journal tells of replacements."""

    def __init__(self, sink: Storage, source_id: str, *, is_live: bool = False) -> None:
        self.is_live = is_live
        self._sink = sink
        self._id = source_id
        self._journal = Journal(sink, source_id)
        self._read: set[str] = set()
        # Stems of files with the batches whose rows, and letters, were replaced.
        self._replaced: dict[str, set[str]] = {}
        # Those of which an operator said that all rows go, with the last batch that took them out.
        self._ever: dict[str, str] = {}

    def state(self) -> SourceState | None:
        """The run's checkpoint."""
        return checkpoint.load(self._sink, checkpoint_path(self._id), state_from_json)

    def look(self, oldest: str) -> None:
        """Read what is new in the journal, of batches from the name ``oldest`` on."""
        fresh = [b for b in self._journal.batches() if b not in self._read and b > oldest]
        for document in self._journal.documents(fresh):
            self._read.add(document.batch)
            if document.group is None:
                continue
            replaced = document.group.replaced
            for file in document.files:
                if file.outcome == "ingested":
                    stem = stem_of(file.path)
                    self._replaced.setdefault(stem, set()).update(replaced.batches)
                    if replaced.ever:
                        self._ever[stem] = max(document.batch, self._ever.get(stem, ""))

    def has_replaced(self, stem: str, batch: str) -> bool:
        """Return whether the file's rows of a batch were replaced, and its letters."""
        return batch in self._replaced.get(stem, ()) or batch < self._ever.get(stem, "")

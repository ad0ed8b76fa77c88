"""One run of the cleaning of a source, by the owner of its checkpoint.

1. Lists that a death has cut off are worked off.
2. A list of files is written.
3. Its files are removed or tagged (`blizzard_py.cleaning.removal`), and its outcomes are written.
4. The caller saves the state that says so.

A death at any point repeats steps. A file of another version than the one that was ingested stays,
whoever removes it, and however late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.eligible import (
    CleaningChoice,
    HeldFolders,
    after_cleaning,
    choose,
    due_through,
    first_files,
    without_files,
)
from blizzard_py.cleaning.lists import CleaningList, CleaningLists, Outcome
from blizzard_py.cleaning.removal import refuse_same_place, remove_files
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import CleaningState

# Files of one list. A run holds up the source's polls: at 20 ms for each request these are 40 s if
# files are deleted, 80 s if they are tagged. A copy reads each file twice and itself once.
FILES_A_LIST = 1000
BYTES_A_LIST = 1 << 30
# Files that are chosen by one reading of the journal: about 40 MB. A reading costs a GET for each
# batch of ``after`` and more.
FILES_A_READING = 100_000


@dataclass(frozen=True, slots=True)
class CleaningPlaces:
    """The storages of a cleaning: the source, and the archive of its files if there is one.

    With a ``tag`` files get it, and are not removed.
    """

    source: Storage
    archive: Storage | None
    tag: str = ""


class Cleaner:
    """The cleaning of one source."""

    def __init__(
        self,
        lists: CleaningLists,
        journal: Journal,
        places: CleaningPlaces,
        after_secs: float,
    ) -> None:
        self._lists = lists
        self._journal = journal
        self._places = places
        self._after_secs = after_secs
        # The files of the batches behind `_begin`, as the journal says up to `_read`, without those
        # of folders in `_held`.
        self._choices: tuple[CleaningChoice, ...] = ()
        self._begin = ""
        self._read = ""
        self._held: Mapping[str, str] = {}

    def choose(
        self,
        state: CleaningState,
        now: float,
        barred: Collection[str],
        limit: float = FILES_A_LIST,
        bytes_limit: float = math.inf,
    ) -> CleaningChoice:
        """Return the files that a run would clean now. Raises `StateError`, `StorageError`.

        ``barred`` are files that a request, the queue or a batch in flight has; they are left for
        good.
        """
        through = due_through(state, now, self._after_secs)
        if through <= state.done:
            return CleaningChoice((), state.done)
        is_read = bool(self._choices) and self._begin <= state.done < self._choices[-1].done
        if not is_read or self._held != state.held:
            later = self._later(state.done)
            documents = self._journal.documents(later)
            self._choices = choose(documents, through, HeldFolders(state.held), FILES_A_READING)
            self._begin, self._read = state.done, max(later, default=state.done)
            self._held = state.held
        elif later := self._later(self._read):
            # A later outcome of a file counts.
            again = {f.path for each in self._journal.documents(later) for f in each.files}
            self._choices = without_files(self._choices, again)
            self._read = max(later)
        found = first_files(self._choices, state.done, through, limit, bytes_limit)
        return CleaningChoice(
            tuple(file for file in found.files if file.path not in barred), found.done
        )

    def _later(self, batch: str) -> list[str]:
        return [found for found in self._journal.batches_from(batch) if found > batch]

    def run(
        self,
        state: CleaningState,
        now: float,
        barred: Collection[str],
        new_id: str,
        check: Callable[[], None],
    ) -> tuple[CleaningState, Counter[Outcome]]:
        """Clean some files; return the state to save, and how many had which outcome.

        ``barred`` as for `choose`. ``check`` raises `FencedError` if another process is the owner,
        and something else if no more may be removed. Raises `StateError`, `StorageError`.
        """
        archive, tag = self._places.archive, self._places.tag
        uri = "" if archive is None else archive.uri
        counts: Counter[Outcome] = Counter()
        cleaned: set[str] = set()
        for cut_off in self._lists.unfinished():
            # Everything may have changed since: the table, the files' outcomes, the settings.
            found = self.choose(state, now, barred, math.inf).files
            is_same = (cut_off.archive, cut_off.tag) == (uri, tag)
            still = {file.path: file.version for file in found} if is_same else {}
            left = {file.path for file in cut_off.files if still.get(file.path) != file.version}
            outcomes = self._work_off(cut_off, left, check)
            counts.update(outcomes.values())
            cleaned.update(path for path, outcome in outcomes.items() if outcome == "cleaned")
        most = math.inf if archive is None else BYTES_A_LIST
        choice = self.choose(state, now, barred, bytes_limit=most)
        # A tagged file is still there, and would be tagged and counted again.
        files = tuple(file for file in choice.files if file.path not in cleaned)
        if files:
            made = CleaningList(new_id, now, uri, choice.done, files, tag)
            check()
            self._lists.begin(made)
            counts.update(self._work_off(made, barred, check).values())
        return after_cleaning(state, choice.done, counts["cleaned"]), counts

    def _work_off(
        self, made: CleaningList, barred: Collection[str], check: Callable[[], None]
    ) -> Mapping[str, Outcome]:
        source, archive = self._places.source, self._places.archive
        if archive is not None:
            refuse_same_place(source, archive, made.id)
        outcomes = remove_files(made, source, archive, barred, check)
        self._lists.end(made, outcomes)
        return outcomes


def leave_files(lists: CleaningLists, source: Storage) -> None:
    """End the lists that a death has cut off, and leave their files. Raises as `Cleaner.run`."""
    for cut_off in lists.unfinished():
        paths = {file.path for file in cut_off.files}
        lists.end(cut_off, remove_files(cut_off, source, None, paths, lambda: None))

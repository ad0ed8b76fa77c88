"""One run of the cleaning of a source, by the owner of its checkpoint.

1. Lists that a death has cut off are worked off.
2. A list of files is written.
3. Its files are removed (`blizzard_py.cleaning.removal`), and its outcomes are written.
4. The caller saves the state that says so.

A death at any point repeats steps. A file of another version than the one that was ingested stays,
whoever removes it, and however late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.eligible import (
    CleaningChoice,
    after_cleaning,
    choose,
    due_through,
    first_files,
    without_files,
)
from blizzard_py.cleaning.lists import CleaningList, CleaningLists, Outcome
from blizzard_py.cleaning.removal import remove_files
from blizzard_py.state.cleaning_state import CleaningState
from blizzard_py.state.journal import Journal

# Files of one list. A run holds up the source's polls: at 20 ms for each request these are 40 s if
# files are deleted. A copy reads each file twice and itself once.
FILES_A_LIST = 1000
BYTES_A_LIST = 1 << 30
# Files that are chosen by one reading of the journal: about 40 MB. A reading costs a GET for each
# batch of ``after`` and more.
FILES_A_READING = 100_000


@dataclass(frozen=True, slots=True)
class CleaningPlaces:
    """The storages of a cleaning: the source, and the archive of its files if there is one."""

    source: Storage
    archive: Storage | None


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
        # The files of the batches behind `_begin`, as the journal says up to `_read`.
        self._choices: tuple[CleaningChoice, ...] = ()
        self._begin = ""
        self._read = ""

    def choose(
        self,
        state: CleaningState,
        now: float,
        barred: Collection[str],
        lettered: Collection[str] = (),
        limit: int = FILES_A_LIST,
        bytes_limit: float = math.inf,
    ) -> CleaningChoice:
        """Return the files that a run would clean now. Raises `StateError`, `StorageError`.

        ``barred`` are files that a request, the queue or a batch in flight has; they are left for
        good. ``lettered`` as for `blizzard_py.cleaning.eligible.choose`.
        """
        through = due_through(state, now, self._after_secs)
        if through <= state.done:
            return CleaningChoice((), state.done)
        if not self._choices or not self._begin <= state.done < self._choices[-1].done:
            later = self._later(state.done)
            documents = self._journal.documents(later)
            self._choices = choose(documents, through, lettered, FILES_A_READING)
            self._begin, self._read = state.done, max(later, default=state.done)
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
        lettered: Collection[str] = (),
    ) -> tuple[CleaningState, Counter[Outcome]]:
        """Clean some files; return the state to save, and how many had which outcome.

        ``barred`` and ``lettered`` as for `choose`. ``check`` raises `FencedError` if another
        process is the owner. Raises `StateError`, `StorageError`.
        """
        counts: Counter[Outcome] = Counter()
        for cut_off in self._lists.unfinished():
            # What has become of the batch since, such as a RESTORE, counts.
            is_void = cut_off.through <= state.done
            left = {file.path for file in cut_off.files} if is_void else barred
            counts += self._work_off(cut_off, left, check)
        most = math.inf if self._places.archive is None else BYTES_A_LIST
        choice = self.choose(state, now, barred, lettered, bytes_limit=most)
        if choice.files:
            archive = self._places.archive
            uri = "" if archive is None else archive.uri
            made = CleaningList(new_id, now, uri, choice.done, choice.files)
            check()
            self._lists.begin(made)
            counts += self._work_off(made, barred, check)
        return after_cleaning(state, choice.done, counts["cleaned"]), counts

    def _work_off(
        self, made: CleaningList, barred: Collection[str], check: Callable[[], None]
    ) -> Counter[Outcome]:
        outcomes = remove_files(made, self._places.source, self._places.archive, barred, check)
        self._lists.end(made, outcomes)
        return Counter(outcomes.values())

"""One run of the cleaning of a source, by the owner of its checkpoint.

1. Lists that a death has cut off are worked off.
2. A list of files is written.
3. Its files are removed (`blizzard_py.cleaning.removal`), and its outcomes are written.
4. The caller saves the state that says so.

A death at any point repeats steps. A file of another version than the one that was ingested stays,
whoever removes it, and however late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.eligible import (
    Choice,
    CleaningState,
    after_cleaning,
    choose,
    settled_through,
)
from blizzard_py.cleaning.lists import CleaningList, CleaningLists, Outcome
from blizzard_py.cleaning.removal import remove_files
from blizzard_py.state.journal import Journal

# Files of one list. A run holds up the source's polls: at 20 ms for each request these are 40 s.
FILES_A_LIST = 1000


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

    def choose(self, state: CleaningState, now: float, barred: Collection[str]) -> Choice:
        """Return the files that a run would clean now. Raises `StateError`, `StorageError`."""
        through = settled_through(state, now, self._after_secs)
        if through <= state.done:
            return Choice((), state.done)
        later = [batch for batch in self._journal.batches_from(state.done) if batch > state.done]
        return choose(self._journal.documents(later), through, barred, FILES_A_LIST)

    def run(
        self,
        state: CleaningState,
        now: float,
        barred: Collection[str],
        new_id: str,
        check: Callable[[], None],
    ) -> tuple[CleaningState, Counter[Outcome]]:
        """Clean some files; return the state to save, and how many had which outcome.

        ``barred`` as for `choose`. ``check`` raises `FencedError` if another process is the owner.
        Raises `StateError`, `StorageError`.
        """
        counts: Counter[Outcome] = Counter()
        for cut_off in self._lists.unfinished():
            # What has become of the batch since, such as a RESTORE, counts.
            is_void = cut_off.through <= state.done
            left = {file.path for file in cut_off.files} if is_void else barred
            counts += self._work_off(cut_off, left, check)
        choice = self.choose(state, now, barred)
        if choice.files:
            archive = self._places.archive
            uri = "" if archive is None else archive.uri
            made = CleaningList(new_id, now, uri, choice.done, choice.files)
            check()
            self._lists.begin(made)
            counts += self._work_off(made, barred, check)
        return after_cleaning(state, choice.done), counts

    def _work_off(
        self, made: CleaningList, barred: Collection[str], check: Callable[[], None]
    ) -> Counter[Outcome]:
        outcomes = remove_files(made, self._places.source, self._places.archive, barred, check)
        self._lists.end(made, outcomes)
        return Counter(outcomes.values())

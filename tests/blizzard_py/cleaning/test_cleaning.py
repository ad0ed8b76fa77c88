"""Cleaning of source files: decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from blizzard_core.storage.protocol import Entry
from blizzard_py.cleaning.cleaner import Cleaner, CleaningPlaces
from blizzard_py.cleaning.eligible import (
    CleanableFile,
    CleaningChoice,
    HeldFolders,
    LogCheck,
    after_absence,
    after_cleaning,
    after_log,
    due_through,
    first_files,
    is_commit_check_due,
    with_commit_check,
)
from blizzard_py.cleaning.lists import CleaningLists
from blizzard_py.job import FinishedFile, Outcome
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import CleaningState, CommitCheck
from tests.support.memory_store import Died, MemoryStorage

DAY = 86_400.0
AFTER = 7 * DAY
RESTORED = LogCheck(5, "", None)


def _nothing() -> None:
    pass


@dataclass
class World:
    """A source with its journal, and the process that cleans it."""

    has_archive: bool = True
    source: MemoryStorage = field(default_factory=lambda: MemoryStorage("mem://raw"))
    archive: MemoryStorage = field(default_factory=lambda: MemoryStorage("mem://archive"))
    sink: MemoryStorage = field(default_factory=lambda: MemoryStorage("mem://table"))
    state: CleaningState = field(default_factory=CleaningState)
    now: float = 1_700_000_000.0
    batches: int = 0
    lists: int = 0

    def __post_init__(self) -> None:
        self.journal = Journal(self.sink, "p_s")

    @property
    def last_batch(self) -> str:
        return _batch_id(self.batches)

    def write(self, path: str) -> None:
        self.source.put_atomic(path, b"1")

    def ingest(self, path: str, outcome: Outcome = "ingested") -> None:
        entry = self.source.stat(path)
        assert entry is not None
        self.batches += 1
        self.journal.write(
            Batch(
                self.last_batch,
                1,
                "publishing",
                self.now,
                (entry,),
                self.now,
                results=BatchResults(
                    finished=(FinishedFile(path, outcome),), committed_ts=self.now
                ),
            )
        )

    def see(self) -> None:
        self.state = with_commit_check(self.state, CommitCheck(self.last_batch, self.now))

    def clean(self) -> dict[str, int]:
        self.lists += 1
        archive = self.archive if self.has_archive else None
        cleaner = Cleaner(
            CleaningLists(self.sink, "p_s"),
            self.journal,
            CleaningPlaces(self.source, archive),
            AFTER,
        )
        name = f"{self.lists:08d}"
        self.state, counts = cleaner.run(self.state, self.now, frozenset(), name, _nothing)
        return {str(outcome): count for outcome, count in counts.items()}


def _batch_id(number: int) -> str:
    return f"01923c4f-0000-7000-8000-{number:012d}"


class TestDecisions:
    @pytest.mark.parametrize("outcome", ["quarantined", "reported", "retry"])
    def test_a_file_with_another_last_outcome_stays(self, outcome: Outcome) -> None:
        world = World()
        world.write("a")
        world.ingest("a")
        world.see()
        world.ingest("a", outcome)
        world.now += AFTER
        assert world.clean() == {}
        assert "a" in world.source.objects

    def test_a_file_of_an_earlier_release_stays(self) -> None:
        world = World()
        world.write("a")
        world.batches = 1
        world.journal.write(
            Batch(
                world.last_batch,
                1,
                "publishing",
                0.0,
                (Entry("a", 1, 0.0),),
                0.0,
                results=BatchResults(finished=(FinishedFile("a", "ingested"),)),
            )
        )
        world.see()
        world.now += AFTER
        assert world.clean() == {}

    def test_another_file_in_the_archive_is_left(self) -> None:
        world = World()
        world.write("a")
        world.ingest("a")
        world.see()
        world.archive.put_atomic("a", b"of another time")
        world.now += AFTER
        assert world.clean() == {"archive_differs": 1}
        assert "a" in world.source.objects
        assert world.archive.read("a") == b"of another time"

    def test_a_cut_off_list_is_void_after_a_restore(self) -> None:
        world = World(has_archive=False)
        world.write("a")
        world.ingest("a")
        world.see()
        world.now += AFTER

        def dies(operation: str, _path: str) -> None:
            if operation == "delete_if":
                raise Died

        world.source.before_mutation = dies
        with pytest.raises(Died):
            world.clean()
        world.source.before_mutation = lambda _op, _path: None
        world.state = after_log(world.state, RESTORED, world.last_batch, world.now)
        assert world.clean() == {"left": 1}
        assert "a" in world.source.objects

    def test_a_clock_set_back_makes_no_file_older(self) -> None:
        state = with_commit_check(CleaningState(), CommitCheck("b1", 10 * DAY))
        state = with_commit_check(state, CommitCheck("b2", 3 * DAY))
        assert due_through(state, 10 * DAY, AFTER) == ""
        assert due_through(state, 17 * DAY, AFTER) == "b2"

    def test_time_in_which_nobody_looked_counts_as_two_days(self) -> None:
        state = CleaningState((CommitCheck("b1", 0.0),), at=DAY)
        assert after_absence(state, 3 * DAY) == state
        later = after_absence(state, 365 * DAY)
        assert due_through(later, 365 * DAY, 3 * DAY + 1) == ""
        assert due_through(later, 365 * DAY, 3 * DAY) == "b1"

    def test_removed_rows_hold_batches_of_the_folder(self) -> None:
        held = HeldFolders({"d=1": "b2"})
        assert held.has("b2", {"d=1", "d=3"})
        assert not held.has("b3", {"d=1"})
        assert not held.has("b2", {"d=2"})
        assert held.has("b2", {"hour=2"})
        assert HeldFolders({"": "b2"}).has("b2", {"d=2"})
        assert not HeldFolders({}).has("b2", {""})

    def test_too_many_folders_hold_all_batches(self) -> None:
        lost = frozenset(f"d={number}" for number in range(1001))
        state = after_log(CleaningState(), LogCheck(1, "", lost), "b1", 0.0)
        assert (state.held, state.done) == ({}, "b1")

    def test_a_run_copies_a_bounded_number_of_bytes(self) -> None:
        choices = [CleaningChoice((CleanableFile(b, 600, "v", b),), b) for b in ("b1", "b2", "b3")]
        assert first_files(choices, "", "b3", 10, 1000).done == "b2"
        assert first_files(choices, "b1", "b2", 10).done == "b2"
        assert first_files(choices, "", "b3", 1).done == "b1"

    def test_one_check_a_day_is_due_for_new_batches(self) -> None:
        state = with_commit_check(CleaningState(), CommitCheck("b1", 0.0))
        assert not is_commit_check_due(state, "b1", 5 * DAY)
        assert not is_commit_check_due(state, "b2", DAY - 1)
        assert is_commit_check_due(state, "b2", DAY)
        assert not is_commit_check_due(after_cleaning(state, "b1"), "b1", DAY)

"""Random histories of the cleaning, with the real batch protocol and the real cleaning.

``CLEANING_HISTORIES=1000 pytest`` with this file plays more of them.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from blizzard_core.log import silence
from tests.support.cleaning_history import CleaningHistory
from tests.support.memory_store import MemoryStorage

STEPS = 40
HISTORIES = int(os.environ.get("CLEANING_HISTORIES", "8"))


def play(seeds: range) -> tuple[Counter[str], dict[int, list[str]]]:
    """Return the counts of all histories, and what was wrong in which."""
    silence()
    counts: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    for seed in seeds:
        history = CleaningHistory(seed)
        history.play(STEPS)
        counts += history.counts
        if history.wrong:
            wrong[seed] = history.wrong
    return counts, wrong


@pytest.mark.promise("G-226")
def test_what_is_removed_is_in_the_table() -> None:
    counts, wrong = play(range(HISTORIES))
    assert not wrong
    seen = {"cleaned", "overwritten", "died", "fenced", "restored", "rolled back"}
    assert all(counts[what] for what in seen)


def test_removal_of_any_version_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_if(self: MemoryStorage, path: str, _version: str) -> bool:
        if path in self.objects:
            self.before_mutation("delete_if", path)
            self.objects.pop(path, None)
            self.after_mutation("delete_if", path)
        return True

    monkeypatch.setattr(MemoryStorage, "delete_if", delete_if)
    _, wrong = play(range(HISTORIES))
    assert wrong

"""Merges of a keyed table, found in its log. For people; reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blizzard_core.delta_json import commit_entries, read_commit, version_of
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """A commit of a keyed table: its version, the last change version in it, and its outcomes."""

    version: int
    changes: int
    outcomes: Mapping[str, int]


def find_merge(storage: Storage, change_version: int) -> KeyedMerge | None:
    """Return the first merge with the changes of a version; None if the log has none.

    Raises `StorageError` and `StateError`. The log is searched by halves.
    """
    try:
        known = [version_of(entry.path) for entry in commit_entries(storage)]
    except NotFound:
        return None
    found = None
    low, high = 0, len(known)
    while low < high:
        middle = at = (low + high) // 2
        merge = None
        while merge is None and at < high:  # compactions are no merges
            merge = _merge_at(storage, known[at])
            at += 1
        if merge is not None and merge.changes < change_version:
            low = at
        else:
            high, found = middle, merge or found
    return found


def _merge_at(storage: Storage, version: int) -> KeyedMerge | None:
    for action in read_commit(storage, version, ("commitInfo",)) or ():
        info: Any = action.get("commitInfo")
        document = info.get("penguin") if isinstance(info, dict) else None
        if isinstance(document, dict) and isinstance(document.get("merged"), int):
            outcomes = document.get("outcomes")
            counts = outcomes if isinstance(outcomes, dict) else {}
            return KeyedMerge(version, document["merged"] - 1, counts)
    return None

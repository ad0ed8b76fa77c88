"""Manifests of groups: the next one of each source, read by name.

A poll requests one object of each source and nothing else. A listing at the start and at each
sweep finds sources outside the configuration, and missing numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

from blizzard_core.errors import NotFound
from blizzard_core.handover.groups import GROUPS_FOLDER, group_path, seq_of
from blizzard_core.storage.protocol import Entry, Storage, listed_below

# Clients ask a second time for a whole object that is not there, and once for a range of it.
AT_ONCE = 1 << 20


class Manifests:
    """The manifests of one table, read at the same time in ``pool``."""

    def __init__(self, storage: Storage, pool: Executor) -> None:
        self._storage = storage
        self._pool = pool

    def read(self, wanted: Mapping[str, int]) -> dict[str, bytes]:
        """Read the manifests of these sources and numbers, as far as they exist."""
        numbers = list(wanted.items())
        answers = self._pool.map(self._read, numbers)
        return {
            source: data
            for (source, _seq), data in zip(numbers, answers, strict=True)
            if data is not None
        }

    def listed(self) -> dict[str, dict[int, Entry]]:
        """List all manifests, by source and number."""
        found: dict[str, dict[int, Entry]] = {}
        for entry in listed_below(self._storage, GROUPS_FOLDER):
            source = entry.path.removeprefix(f"{GROUPS_FOLDER}/").rpartition("/")[0]
            seq = seq_of(entry.path)
            if seq is not None and source and "/" not in source:
                found.setdefault(source, {})[seq] = entry
        return found

    def remove(self, entry: Entry) -> None:
        """Delete a manifest that nobody asks for any more."""
        self._storage.delete(entry.path)

    def _read(self, number: tuple[str, int]) -> bytes | None:
        path = group_path(*number)
        try:
            data = self._storage.read_range(path, 0, AT_ONCE)
            return data if len(data) < AT_ONCE else self._storage.read(path)
        except NotFound:
            return None

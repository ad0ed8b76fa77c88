"""The files of a directory, below folders that may name dates.

``table`` is a directory below the connection's URI. A pattern at its end
(``orders/{year}/{month}/{day}``) says that folders are named by the watermark's time, in UTC. Files
in folders whose time is completely below the window are skipped; the folder that the window begins
in is kept. A file outside date folders is always kept, wherever its name sorts, so all names are
listed. A folder that cannot be listed fails the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_py.connections.lakes.date_folders import folders
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import (
    FileName,
    StorageCache,
    place_of,
    translate_errors,
)
from blizzard_py.reading import Access


@dataclass(frozen=True, slots=True)
class Directory:
    """A location of files: a root, the folders' pattern (``""``: none), and file endings."""

    root: str
    pattern: str
    endings: tuple[str, ...]

    @staticmethod
    def of(access: Access, table: str, endings: tuple[str, ...]) -> Directory:
        """Return the directory that ``table`` names, its date folders split off."""
        levels = table.split("/")
        first = next((place for place, level in enumerate(levels) if "{" in level), len(levels))
        root, pattern = "/".join(levels[:first]), "/".join(levels[first:]).strip("/")
        if pattern:
            folders(pattern, [])  # raises for a pattern that makes no sense
        return Directory(place_of(access, root), pattern, endings)

    def files(self, stores: StorageCache, start: Any = None) -> list[PlannedFile]:
        """Return all files that may hold rows at or above ``start``, a time, in path order.

        Raises `SourceError` if the directory does not exist, and the store's own errors.
        """
        with translate_errors(self.root):
            return [
                PlannedFile(FileName(self.root, entry.path), entry.size, entry.modified)
                for entry in self._entries(stores.listed(self.root), start)
            ]

    def _entries(self, storage: Storage, start: Any) -> Iterator[Entry]:
        pruned = bool(self.pattern) and start is not None
        is_wanted: dict[str, bool] = {}
        for page in storage.list_range("", None):
            for entry in page.entries:
                folder = entry.path.rpartition("/")[0]
                if not entry.path.lower().endswith(self.endings) or is_hidden(entry.path):
                    continue
                if pruned and folder not in is_wanted:
                    is_wanted[folder] = bool(folders(self.pattern, [folder], start))
                if not pruned or is_wanted[folder]:
                    yield entry

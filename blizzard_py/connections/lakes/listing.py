"""The files of a directory, below folders that may name dates.

``table`` is a directory below the connection's URI. A pattern at its end
(``orders/{year}/{month}/{day}``) says that folders are named by the watermark's own time, in UTC:
those whose time is wholly below the window are left out, by name, and the one that the window
begins in is kept. A folder that cannot be listed fails the plan.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_py.columns import folders
from blizzard_py.connections.lakes.places import FileName, Stores, place_of, told
from blizzard_py.connections.lakes.planned import PlannedFile
from blizzard_py.reading import Access

_PLACE = re.compile(r"\{(\w*)\}")
_FORMATS = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M"}


@dataclass(frozen=True, slots=True)
class Directory:
    """Where files are looked for: a root, the folders' pattern (``""``: none), their endings."""

    root: str
    pattern: str
    endings: tuple[str, ...]

    @staticmethod
    def of(access: Access, table: str, endings: tuple[str, ...]) -> Directory:
        """The directory that ``table`` names, its date folders split off."""
        levels = table.split("/")
        first = next((place for place, level in enumerate(levels) if "{" in level), len(levels))
        root, pattern = "/".join(levels[:first]), "/".join(levels[first:]).strip("/")
        if pattern:
            folders(pattern, [])  # raises for a pattern that makes no sense
        return Directory(place_of(access, root), pattern, endings)

    def files(self, stores: Stores, start: Any = None) -> list[PlannedFile]:
        """All files that may hold rows at or above ``start``, a time, in the order of their paths.

        Raises `SourceError` if the directory is not there, and the store's own errors.
        """
        with told(self.root):
            return [
                PlannedFile(FileName(self.root, entry.path), entry.size, entry.modified)
                for entry in self._entries(stores.listed(self.root), start)
            ]

    def _entries(self, storage: Storage, start: Any) -> Iterator[Entry]:
        pruned = bool(self.pattern) and start is not None
        kept: dict[str, bool] = {}
        for page in storage.list_range(first_folder(self.pattern, start) if pruned else "", None):
            for entry in page.entries:
                folder = entry.path.rpartition("/")[0]
                if not entry.path.lower().endswith(self.endings) or is_hidden(entry.path):
                    continue
                if pruned and folder not in kept:
                    kept[folder] = bool(folders(self.pattern, [folder], start))
                if not pruned or kept[folder]:
                    yield entry


def first_folder(pattern: str, start: Any) -> str:
    """The least name that a folder with ``start`` can have; ``""`` where names do not sort.

    A listing that begins there meets all folders of later times, with zeros before their numbers
    or without: one digit sorts behind two that begin with a zero.
    """
    if not isinstance(start, dt.date):
        return ""
    moment = start
    if isinstance(moment, dt.datetime):
        moment = moment.astimezone(dt.UTC) if moment.tzinfo else moment
    else:
        moment = dt.datetime(moment.year, moment.month, moment.day, tzinfo=dt.UTC)
    if _PLACE.findall(pattern) != list(_FORMATS)[: len(_PLACE.findall(pattern))]:
        return ""
    return _PLACE.sub(lambda place: f"{moment:{_FORMATS[place[1]]}}", pattern)

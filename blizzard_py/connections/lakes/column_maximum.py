"""The exact highest value of a column in many Parquet files, with as few reads as possible.

Statistics in logs and manifests are rounded: Delta cuts times to milliseconds, and texts are cut
everywhere. So they only choose which files to read. The result for a file is kept as long as the
file exists: a poll without news opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from blizzard_core.threads import ThreadPool
from blizzard_py.connections.lakes.column_ranges import highest, later
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import StorageCache
from blizzard_py.connections.lakes.window_rows import names_in_file
from blizzard_py.formats.columnar.file import opened
from blizzard_py.formats.columnar.rows import StoredFile
from blizzard_py.slices.column_order import ColumnRange, Key

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file, and what is known about its columns without opening it."""

    file: PlannedFile
    ranges: Mapping[str, ColumnRange]


@dataclass(slots=True)
class ColumnMaximum:
    """The highest values of one column in files; results are cached."""

    stores: StorageCache
    column: str
    ids: Mapping[str, int] = field(default_factory=dict)
    _answers: dict[tuple[str, str, int, float], Key | None] = field(default_factory=dict)

    def of(self, files: Sequence[KnownFile]) -> Key | None:
        """Return the highest key of the column in all files, None if there is none."""
        self._forget(known.file for known in files)
        best: Key | None = None
        blind: list[PlannedFile] = []
        rounded: list[tuple[Key, PlannedFile]] = []
        for known in files:
            about = known.ranges.get(self.column, ColumnRange())
            if self.column in known.file.values:  # a partition's value is exact
                best = later(best, about.high)
            elif about.values and about.high is None:
                blind.append(known.file)
            elif about.values and about.high is not None:
                rounded.append((about.high, known.file))
        with ThreadPool(_AT_ONCE) as pool:
            for found in pool.map(self._maximum_of, blind):
                best = later(best, found)
        for high, file in sorted(rounded, key=lambda each: each[0], reverse=True):
            if best is not None and later(best, high) == best:
                break
            best = later(best, self._maximum_of(file))
        return best

    def _maximum_of(self, file: PlannedFile) -> Key | None:
        known = _identity(file)
        if known not in self._answers:
            storage = self.stores.at(file.name.root)
            with opened(StoredFile.of(storage, file.name.path, file.size)) as parquet:
                where = f"{storage.uri}/{file.name.path}"
                own = names_in_file(parquet, [self.column], self.ids, where)
                found = highest(parquet, own[self.column]) if own else None
            self._answers[known] = found
        return self._answers[known]

    def _forget(self, files: Iterable[PlannedFile]) -> None:
        there = set(map(_identity, files))
        for removed in [known for known in self._answers if known not in there]:
            del self._answers[removed]


def _identity(file: PlannedFile) -> tuple[str, str, int, float]:
    return file.name.root, file.name.path, file.size, file.modified

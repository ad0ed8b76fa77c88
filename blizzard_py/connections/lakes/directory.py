"""Directories of files as a source: the planning side, for any file format.

A `Form` is a file format: it reads the values of the watermark columns, once for each file. So a
poll reads only new files, and a window only files that can have its rows. A file that is replaced
after planning fails its task.

``table`` is a directory below the connection's URI. A pattern at its end
(``orders/{year}/{month}/{day}``) says that folders are named by the watermark's time, in UTC. Files
in folders whose time is completely below the window are skipped; the folder that the window begins
in is kept. A file outside date folders is always kept, wherever its name sorts, so all names are
listed. A folder that cannot be listed fails the plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_core.threads import ThreadPool
from blizzard_py.connections.lakes.bounds import (
    clock_bound,
    selected_columns,
    utc_now,
)
from blizzard_py.connections.lakes.column_ranges import united
from blizzard_py.connections.lakes.date_folders import folder_period, folder_time, folders
from blizzard_py.connections.lakes.fields import check_there, columns_of, instants_in, undeclared
from blizzard_py.connections.lakes.file_facts import (
    FileFacts,
    files_with_nulls,
    null_remarks,
    united_schema,
    unreadable_values,
)
from blizzard_py.connections.lakes.file_plan import FilePlan, PlannedFile, tasks_of, unit_plans
from blizzard_py.connections.lakes.locations import (
    FileName,
    StorageCache,
    place_of,
    translate_errors,
)
from blizzard_py.connections.lakes.planning import LakeConnection, Now
from blizzard_py.connections.lakes.window import RowWindow, ends_in, may_meet
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import ReadBound, ReadSelection, SourceColumn, WindowSplit
from blizzard_py.connections.unit_comparisons import check_instants
from blizzard_py.reading import Access, BoundKind, ReadTask, Window
from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, Key

_AT_ONCE = 8
# The number of files that `validate` reads.
_SAMPLE_FILES = 12
# The most skipped files whose names are kept.
_REMEMBERED = 10_000


class Form(Protocol):
    """A file format."""

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of file names, in lower case."""

    @property
    def bound(self) -> BoundKind:
        """The default read bound."""

    @property
    def counts_nulls(self) -> bool:
        """True if ranges say exactly whether there are nulls."""

    @property
    def has_schema(self) -> bool:
        """True if a column that no file has is an error."""

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        """Read the facts of a file for these watermark columns. Raises `SourceError`."""


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


class DirectoryConnection(LakeConnection):
    """The files of one directory; see the module's docstring and `Connection`."""

    def __init__(
        self,
        access: Access,
        selection: ReadSelection,
        form: Form,
        now: Now = utc_now,
    ) -> None:
        super().__init__(access, selection, now)
        self._form = form
        self._directory = Directory.of(access, selection.table, form.endings)
        self._facts: dict[tuple[str, int, float], FileFacts] = {}
        self._schemas: dict[pa.Schema, pa.Schema] = {}
        self._again: frozenset[str] = frozenset()

    @property
    def default_bound(self) -> BoundKind | None:
        """The format's default; none without columns."""
        return self._form.bound if self._selection.columns else None

    def columns(self) -> Sequence[SourceColumn]:
        """Return the columns of the newest files."""
        files = sorted(self._directory.files(self._stores), key=lambda file: file.modified)[-5:]
        facts = [self._look(file, ()) for file in reversed(files)]
        return columns_of(united_schema(facts))

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the highest values in all files; with date folders, in the newest ones."""
        files = self._directory.files(self._stores)
        self._forget(files)
        names = self._selection.columns
        if kind == "clock":
            facts = self._known(files)
            found_at = clock_bound(
                self._orders(facts), self._now(), settle_secs, self._selection.walls
            )
            unread, named = self._skipped(files, facts)
            return replace(
                found_at,
                warnings=(*found_at.warnings, *unread),
                skipped=unread,
                skipped_files=named,
            )
        found: list[FileFacts] = []
        groups = self._newest_first(files)
        for group in groups:
            found += self._known(group)
            if any(facts.ranges[name].values for facts in found for name in names):
                break  # older folders hold lower values
        orders = self._orders(found)
        seen = [file for group in groups for file in group][: len(found)]
        highs = {name: united([facts.ranges[name] for facts in found]).high for name in orders}
        value = {name: orders[name].value(key) for name, key in highs.items() if key is not None}
        odd = self._outside_folder(seen, found)
        known = {file.name.path for file in seen}
        again = [file for file in files if file.name.path in self._again - known]
        skipped, named = self._skipped([*again, *seen], [*self._known(again), *found])
        self._again = frozenset(named)
        warnings = (*skipped, *([odd] if odd else []))
        return ReadBound(kind, value, warnings=warnings, skipped=skipped, skipped_files=named)

    def look_again(self, files: Iterable[str]) -> None:
        """Read these files at each `bound`, even in older folders."""
        self._again |= frozenset(files)

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return tasks for the files that can have rows of the window."""
        names = self._selection.columns
        start = window.low.get(names[0]) if self._follows_folders() else None
        files = self._directory.files(self._stores, start)
        facts = self._known(files)
        orders = self._orders(facts)
        if self._form.has_schema and facts:
            check_there(
                self._directory.root, selected_columns(self._selection), united_schema(facts).names
            )
        rows = RowWindow.of(window, names, self._selection.nulls) if names else None
        # Without look-back: invalid rows are read once, even if valid rows are read again.
        news = (
            None
            if rows is None
            else RowWindow.of(replace(window, low=window.after), names, self._selection.nulls)
        )
        chosen = [
            replace(file, has_bad=news is None or ends_in(news, orders, known.ranges))
            for file, known in zip(files, facts, strict=True)
            if rows is None or may_meet(rows, orders, known.ranges)
        ]
        columns = undeclared(self._selection, united_schema(facts).names)
        return tasks_of(
            FilePlan(chosen, columns, rows, self._selection.filter),
            split,
            self._directory.root,
        )

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return a task over all files for each unit; a filter selects its rows.

        Invalid rows belong to every unit.
        """
        files = self._directory.files(self._stores)
        schema = united_schema(self._known(files)) if files else pa.schema([])
        if self._form.has_schema and files:
            check_there(self._directory.root, selected_columns(self._selection), schema.names)
        if files:
            # A value without a type may be in any zone.
            typed = schema if self._form.has_schema else pa.schema([])
            check_instants((self._template.filter,), units, instants_in(typed))
        columns = undeclared(self._selection, schema.names)
        plan = FilePlan(files, columns, None, self._template.filter)
        return unit_plans(plan, units, self._directory.root)

    def warnings(self) -> Sequence[str]:
        """Check in a few files that rows have the times that their folders name.

        Raises `SourceError` if they do not: rows would be missed.
        """
        if self._follows_folders():
            files = self._directory.files(self._stores)
            sample = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES] + files[-1:]
            odd = self._outside_folder(sample, self._known(sample))
            if odd:
                raise SourceError(odd)
        return ()

    def _skipped(
        self, files: Sequence[PlannedFile], facts: Sequence[FileFacts]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return remarks on rows that no window reads, or none after the first, and their files."""
        names = self._selection.columns
        has_nulls = self._selection.nulls == "first"
        empty, some = files_with_nulls(files, facts, names) if has_nulls else ([], [])
        if not self._form.counts_nulls:
            some = []
        without = null_remarks(empty, some, ", ".join(names))
        return (*unreadable_values(facts, names), *without), tuple([*empty, *some][:_REMEMBERED])

    def _follows_folders(self) -> bool:
        """Return whether date folders and watermark have the same time: one time or date column."""
        types = {each.name: each.type for each in self._selection.fields}
        found = [types.get(name) for name in self._selection.columns]
        return bool(self._directory.pattern) and found in (["timestamp"], ["date"])

    def _outside_folder(self, files: Sequence[PlannedFile], facts: Sequence[FileFacts]) -> str:
        """Return the first file with rows of another time than its folder; ``""`` if none has."""
        if not self._follows_folders():
            return ""
        (name,), pattern = self._selection.columns, self._directory.pattern
        for file, known in zip(files, facts, strict=True):
            period = folder_period(pattern, file.name.path.rpartition("/")[0])
            order, about = known.orders.get(name), known.ranges.get(name, ColumnRange())
            if period is not None and order is not None and _is_outside(period, order, about):
                return (
                    f"{self._directory.root}/{file.name.path}: {name} reaches from"
                    f" {_format_key(order, about.low)} to {_format_key(order, about.high)}, and the"
                    " file's folder names another time (in UTC). Rows that come late into old"
                    f" folders would be missed: remove {pattern} from `table`, so that all"
                    " files are read, or name folders by the UTC time of this column"
                )
        return ""

    def _newest_first(self, files: Sequence[PlannedFile]) -> list[list[PlannedFile]]:
        """Return files by their folder's time, newest first; files without a time come first."""
        pattern = self._directory.pattern
        if not self._follows_folders():
            return [list(files)]
        groups: dict[float, list[PlannedFile]] = {}
        for file in files:
            moment = folder_time(pattern, file.name.path.rpartition("/")[0])
            groups.setdefault(moment.timestamp() if moment else float("inf"), []).append(file)
        untimed = groups.pop(float("inf"), [])
        timed = [groups[moment] for moment in sorted(groups, reverse=True)]
        return [untimed + timed[0], *timed[1:]] if timed else [untimed]

    def _known(self, files: Sequence[PlannedFile]) -> list[FileFacts]:
        names = self._selection.columns
        if not names:
            # The newest file's schema is enough to name the columns.
            newest = max(files, key=lambda file: file.modified, default=None)
            schema = [self._look(newest, ())] if newest else []
            return [schema[0]] * len(files)
        with ThreadPool(_AT_ONCE) as pool:
            return list(pool.map(lambda file: self._look(file, names), files))

    def _look(self, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        known = _identity(file)
        if known in self._facts:
            return self._facts[known]
        storage = self._stores.at(file.name.root)
        with translate_errors(f"{storage.uri}/{file.name.path}"):
            facts = self._form.facts(storage, file, columns)
        # Thousands of files may share one schema; it is kept once.
        facts = replace(facts, schema=self._schemas.setdefault(facts.schema, facts.schema))
        if columns == self._selection.columns:
            self._facts[known] = facts
        return facts

    def _orders(self, facts: Sequence[FileFacts]) -> dict[str, ColumnOrder]:
        """Return how columns are compared.

        Raises `SourceError` if files disagree, or none has the column.
        """
        found: dict[str, ColumnOrder] = {}
        for each in facts:
            for name, order in each.orders.items():
                before = found.setdefault(name, order)
                if before.order != order.order:
                    raise SourceError(
                        f"{self._directory.root}: column {name} is {before.type} in some files and"
                        f" {order.type} in others, which cannot be compared; rewrite those files"
                    )
        missing = [name for name in self._selection.columns if name not in found]
        if missing and facts and self._form.has_schema:
            check_there(self._directory.root, missing, united_schema(facts).names)
        return found

    def _forget(self, files: Sequence[PlannedFile]) -> None:
        there = set(map(_identity, files))
        for removed in [known for known in self._facts if known not in there]:
            del self._facts[removed]


def _identity(file: PlannedFile) -> tuple[str, int, float]:
    return file.name.path, file.size, file.modified


def _is_outside(
    period: tuple[dt.datetime, dt.datetime | None], order: ColumnOrder, about: ColumnRange
) -> bool:
    begin, end = period
    low: Any = begin
    high: Any = None if end is None else end - dt.timedelta(microseconds=1)
    if order.order == "date":
        low, high = begin.date(), None if high is None else high.date()
    elif order.order != "time":
        return False
    if about.low is not None and about.low < order.key(low):  # type: ignore[operator]  # keys of one column have one type
        return True
    return high is not None and about.high is not None and about.high > order.key(high)  # type: ignore[operator]  # see above


def _format_key(order: ColumnOrder, key: Key | None) -> str:
    return "?" if key is None else str(order.value(key))

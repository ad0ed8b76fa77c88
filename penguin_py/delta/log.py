"""Reads of a Delta log (`blizzard_core.delta_json`), and removal of leftovers of killed writers.

`LogReader` is the part of `penguin_py.delta.table.DeltaLog` that only reads:

* `known_paths`: every path in the log, **adds and removes**. A removed path must never be added
  again, since its rows would come back, and delta-rs does not list removes. They are in the newest
  checkpoint and in the commits after it.
* `own_commit`: our commitInfo of the version that carries our ``txn``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blizzard_core.delta_json import (
    LOG,
    TRANSACTION,
    Columns,
    Tail,
    anchored,
    columns_in,
    columns_up_to,
    commit_path,
    newest_actions,
    read_commit,
    relative,
    stamp_of,
    tail_of,
    transactions_in,
)
from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Storage
from penguin_py.model import LoggedPath, OwnCommit

# Our commitInfo key, holding commit id, progress and output ids.
OUR_KEY = "penguin"
# Every Penguin's commit has a ``txn`` of this application, whatever the Penguin's name. No name
# has a slash, so none equals it.
COMMON_APP_ID = "penguin/any"
# How many commits output ids are gathered from where nothing says that more could have
# some: an instance folds those of 100 versions away, and then something does.
COMMITS_SEARCHED = 1000
# How many commits are read concurrently in a backward search for one of ours.
SEARCHED_AT_ONCE = (1, 15, 48)
_INFO = "commitInfo"
_ADD = ("add.path", "add.modificationTime", "add.dataChange")
_REMOVE = ("remove.path", "remove.deletionTimestamp")
_PATHS = (*_ADD, *_REMOVE)
# In milliseconds: the numbers of the log have 64 bits.
_LATEST = 2**63

T = TypeVar("T")

# delta-rs stages `N.json` as `N.json#M` on local disks, other writers beside it.
_LEFTOVER = re.compile(r"\d{20}\.(?:json|checkpoint\.parquet)(?:#\d+|\..*\.tmp)|_commit_.*\.tmp")


@dataclass
class News:
    """News from commits: paths added or removed, output ids, the newest ``txn`` by application.

    ``document`` is the commitInfo of the newest commit of any Penguin among them.
    """

    paths: list[str] = field(default_factory=list)
    output_ids: list[str] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    document: Mapping[str, object] | None = None


class LogReader:
    """Reads one table's log; ``pool`` is where requests run at the same time."""

    def __init__(self, storage: Storage, pool: Executor) -> None:
        self._storage = storage
        self.pool = pool

    def exists(self) -> bool:
        """Return whether the table's directory has a log. One LIST.

        Raises `NotFound` if the directory or bucket itself is missing, and the other
        storage errors: better words than delta-rs has for them.
        """
        return any(page.entries for page in self._storage.list_range(f"{LOG}/", f"{LOG}0"))

    def has_commit(self, version: int) -> bool:
        """Return whether the log has the entry of this version as such. One GET of one byte."""
        return stamp_of(self._storage, version, 1) is not None

    def stamp(self, version: int) -> bytes | None:
        """Return a fingerprint of a version's commit; None if it is gone.

        A table may be deleted and recreated under a running process. One GET.
        """
        return stamp_of(self._storage, version)

    def anchor(self, version: int) -> str:
        """Return a commit's `stamp` as a short hash (`anchored`)."""
        return anchored(self.stamp(version))

    def features(self) -> list[str]:
        """Return the table features of the log's newest protocol; a last resort.

        For a log that delta-rs does not open, to tell by name why.
        """
        try:
            found = newest_actions(self._storage, ("protocol",), SEARCHED_AT_ONCE[1])
        except StateError:
            return []
        protocol = found.get("protocol", {})
        lists = (protocol.get(kind) for kind in ("readerFeatures", "writerFeatures"))
        return [str(name) for names in lists if isinstance(names, list) for name in names]

    def known_paths(
        self, version: int, transactions: dict[str, int] | None = None
    ) -> Iterator[LoggedPath]:
        """Yield every path that the log up to ``version`` adds or removes.

        Times are 0 if the log has none. Files outside the table's directory are left out.
        ``transactions`` is filled with the newest ``txn`` of each application. Raises `StateError`
        if the log is incomplete.
        """
        seen: dict[str, int] = {} if transactions is None else transactions
        wanted = (*_PATHS, *TRANSACTION)
        tail = tail_of(self._storage, version)
        for columns in columns_up_to(self._storage, version, wanted, self.pool, tail):
            seen |= transactions_in(columns)
            yield from _known(columns, self._storage.uri)

    def last_own_commit(
        self, app_id: str, txn: int, version: int, hint: int | None = None
    ) -> OwnCommit | None:
        """Find our commit with ``txn`` at or before ``version``; None if its JSON was cleaned up.

        ``hint`` is its expected version: then it costs one GET, however many foreign commits
        followed.
        """
        if hint is not None and 0 <= hint <= version:
            columns = self._commit_columns(hint)
            found = None if columns is None else _own(columns, hint, app_id, txn)
            if found is not None:
                return found
        for number, columns in self.newest_first(version, self._commit_columns):
            if columns is None:
                return None
            found = _own(columns, number, app_id, txn)
            if found is not None:
                return found
        return None

    def newest_first(
        self, version: int, read: Callable[[int], T], least: int = 0
    ) -> Iterator[tuple[int, T]]:
        """Yield ``read``'s result for each version down to ``least``, in growing batches."""
        sizes = iter(SEARCHED_AT_ONCE)
        size = 1
        while version >= least:
            size = next(sizes, size)
            numbers = range(version, max(least - 1, version - size), -1)
            yield from zip(numbers, self.pool.map(read, numbers), strict=True)
            version -= size

    def _commit_columns(self, version: int) -> Columns | None:
        """Return a commit's commitInfo and transactions; None if it is gone."""
        actions = read_commit(self._storage, version, (_INFO, "txn"))
        where = f"{self._storage.uri}/{commit_path(version)}"
        return None if actions is None else columns_in(actions, (_INFO, *TRANSACTION), where)

    def commit_info(self, version: int) -> Mapping[str, object]:
        """Read a commit's commitInfo; empty if it is gone. Raises `StateError`."""
        # Without parsing the adds, of which there may be 100,000.
        actions = read_commit(self._storage, version, (_INFO,)) or ()
        return next((info for each in actions if isinstance(info := each.get(_INFO), dict)), {})

    def penguin_news(self, after: int, version: int) -> News:
        """Collect the output ids and the newest document in commits ``after < v <= version``.

        Commits that the log no longer has are left out. The mirror knows only one instance's.
        """
        found = News()
        for info in self.pool.map(self.commit_info, range(after + 1, version + 1)):
            _take_document(found, info)
        return found

    def news(self, after: int, version: int) -> News:
        """Collect the news of versions ``after < v <= version``. Raises `StateError`."""
        found = News()
        wanted = (*_PATHS, *TRANSACTION, _INFO)
        tail = Tail(after, (), ())
        for columns in columns_up_to(self._storage, version, wanted, self.pool, tail):
            found.paths += [entry.path for entry in _known(columns, self._storage.uri)]
            for info in columns[_INFO]:
                _take_document(found, info)
            found.transactions |= transactions_in(columns)
        return found

    def paths_of(self, output_ids: Collection[str], version: int) -> list[str]:
        """Return the paths added by the commits that brought these output ids.

        Among the newest `COMMITS_SEARCHED` and as far as the log goes.
        """
        missing = set(output_ids)
        found: list[str] = []
        least = max(0, version + 1 - COMMITS_SEARCHED)
        for number, info in self.newest_first(version, self.commit_info, least):
            brought = ids_in(info)
            if missing.intersection(brought):
                missing.difference_update(brought)
                actions = read_commit(self._storage, number, ("add",)) or []
                columns = columns_in(actions, _PATHS, f"{self._storage.uri}/{commit_path(number)}")
                paths = _known(columns, self._storage.uri)
                found += [known.path for known in paths if known.origin == "data"]
            if not missing:
                break
        return found


def _known(columns: Columns, root: str) -> Iterator[LoggedPath]:
    """Yield the paths of the columns `_PATHS` that lie in the table's directory ``root``."""
    for path, millis, change in zip(*(columns[name] for name in _ADD), strict=True):
        if (plain := relative(path, root)) is not None:
            yield LoggedPath(plain, 0, _seconds(millis), "rewrite" if change is False else "data")
    for path, millis in zip(*(columns[name] for name in _REMOVE), strict=True):
        if (plain := relative(path, root)) is not None:
            yield LoggedPath(plain, 0, _seconds(millis), "removal")


def _seconds(millis: Any) -> float:
    """Return a time of the log in seconds; 0 if it is missing or out of range."""
    return millis / 1000 if isinstance(millis, int) and abs(millis) < _LATEST else 0.0


def _own(columns: Columns, number: int, app_id: str, txn: int) -> OwnCommit | None:
    if transactions_in(columns).get(app_id) != txn:
        return None
    return OwnCommit(number, next(filter(None, map(_own_document, columns[_INFO])), {}))


def _take_document(found: News, info: Mapping[str, object]) -> None:
    if document := _own_document(info):
        found.output_ids += ids_in(info)
        found.document = document


def ids_in(info: Mapping[str, object]) -> list[str]:
    """Return the output ids in a Penguin's commitInfo; none for other writers."""
    ids = _own_document(info).get("output_ids")
    return [name for name in ids if isinstance(name, str)] if isinstance(ids, list) else []


def _own_document(info: Mapping[str, object]) -> Mapping[str, object]:
    own = info.get(OUR_KEY)
    return own if isinstance(own, Mapping) else {}


def sweep_leftovers(storage: Storage, older_than: float) -> int:
    """Delete leftovers of killed writers: staged commits and temporary files.

    Only names that are neither commit nor checkpoint, last written before ``older_than`` (epoch
    seconds), so no writer still uses them. Returns their number.
    """
    doomed = [
        entry.path
        for page in storage.list_range(f"{LOG}/", f"{LOG}0")
        for entry in page.entries
        if _LEFTOVER.fullmatch(entry.path.removeprefix(f"{LOG}/")) and entry.modified < older_than
    ]
    for path in doomed:
        storage.delete(path)
    return len(doomed)

"""Commits of a table that added or removed files, from its Delta log. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from blizzard_core.delta_json import actions_of, columns_in, commit_entries, relative, version_of
from blizzard_core.errors import Unavailable
from blizzard_core.storage.protocol import Entry, Storage, read_each
from blizzard_core.text import shortened

# How many commits of the Delta log are read for one reason at most.
LOG_FILES = 1000
# A commit follows its files; by how much the clocks of the two may differ.
LOG_SLACK_SECS = 300.0
# Of an operation's name, which any writer may choose.
_OPERATION_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Departure:
    """The latest commit that took rows of a file out of the table or into other files.

    ``moved``: it only rewrites rows, as OPTIMIZE does. ``changed``: it adds files that may hold
    some of the rows. ``removed``: it adds none that could.
    """

    version: int
    operation: str
    kind: Literal["moved", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class Fate:
    """The version that added a file last, and what has happened to its rows since."""

    version: int
    departure: Departure | None = None


def delta_fates(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, Fate], bool]:
    """Return what the log says of the wanted paths, and whether the log is complete.

    ``since`` is when writing of the files began. Earlier commits cannot hold them, so reading
    starts there. False means that the log was cleaned up or is longer than the limit: a file that
    was not found may be committed, and another may be removed. This is for people; to decide by
    the answer use `committed_versions`.
    """
    recent, whole = _recent(list(commit_entries(sink)), since)
    found: dict[str, Fate] = {}
    holders: dict[str, frozenset[str]] = {}
    for where, raw in read_each(sink, recent, concurrency):
        _follow(_changes(raw, where, sink.uri), version_of(where), wanted, holders, found)
    return found, whole


@dataclass(frozen=True, slots=True)
class _Changes:
    """The paths that a commit adds and removes; ``rewrites`` if it changes no row.

    ``is_penguins``: a Penguin made it. What such a commit removes was ingested again.
    """

    added: frozenset[str]
    removed: frozenset[str]
    operation: str
    rewrites: bool
    is_penguins: bool


def _follow(
    commit: _Changes,
    version: int,
    wanted: Collection[str],
    holders: dict[str, frozenset[str]],
    found: dict[str, Fate],
) -> None:
    """Bring the fates of the wanted files up to this commit.

    ``holders`` are the table's files that hold rows of wanted ones, each with these.
    """
    # A path that is removed and added at once only gets another deletion vector.
    gone = holders.keys() & (commit.removed - commit.added)
    leaving = frozenset[str]().union(*{holders.pop(holder) for holder in gone})
    back = {path for path in commit.added if path in wanted and path not in holders}
    # RESTORE adds files of earlier versions, which hold nothing of those that it removes.
    successors = set() if commit.operation == "RESTORE" else commit.added - back
    kind: Literal["moved", "changed", "removed"] = (
        "removed" if not successors else "moved" if commit.rewrites else "changed"
    )
    left = leaving - back
    for path in left:
        departure = Departure(version, commit.operation, kind)
        found[path] = replace(found[path], departure=departure)
    for successor in successors if left else ():
        # One set for all: a commit may have a thousand files of each.
        known = holders.get(successor)
        holders[successor] = left if known is None else known | left
    for path in back:
        found[path], holders[path] = Fate(version), frozenset({path})


def _changes(raw: bytes, where: str, root: str) -> _Changes:
    columns = columns_in(
        actions_of(raw, where, ("add", "remove", "commitInfo")),
        (
            "add.path",
            "remove.path",
            "remove.dataChange",
            "commitInfo.operation",
            "commitInfo.penguin",
        ),
        where,
    )
    added, removed, changing, operations, penguins = columns.values()
    operation = next((each for each in operations if isinstance(each, str)), "an operation")
    return _Changes(
        frozenset(path for each in added if (path := relative(each, root)) is not None),
        frozenset(path for each in removed if (path := relative(each, root)) is not None),
        shortened(operation, _OPERATION_LENGTH),
        bool(changing) and all(each is False for each in changing),
        any(isinstance(each, dict) for each in penguins),
    )


def committed_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """Return the versions that added the wanted paths first, and whether the log is complete.

    As much of the log is read as for `delta_fates`, and always its newest commits: they seem older
    than they are if the store's clock was set back in between.
    """
    there, whole = _by_any_clock(sink, since)
    return _versions(sink, wanted, there, concurrency), whole


def removed(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[set[str], bool]:
    """Return the removed paths among ``wanted``, and whether the log is complete.

    As much of the log is read as for `committed_versions`.
    """
    there, whole = _by_any_clock(sink, since)
    found: set[str] = set()
    for where, raw in read_each(sink, there, concurrency):
        found.update(path for path in paths_in(raw, where, sink.uri, "remove") if path in wanted)
    return found, whole


def lost_folders(
    sink: Storage, commits: Sequence[Entry], concurrency: int
) -> frozenset[str] | None:
    """Return the folders of files of which other writers' commits removed or changed rows.

    None: a RESTORE is among them, so any row may be gone. The name of an operation is no proof,
    because a writer may choose or leave it out: what counts are the files that a commit removes. It
    keeps their rows only if it says so (``dataChange``) and adds files. Raises `StateError`,
    `StorageError`.
    """
    found: set[str] = set()
    read = 0
    for where, raw in read_each(sink, [entry.path for entry in commits], concurrency):
        read += 1
        changes = _changes(raw, where, sink.uri)
        if changes.operation == "RESTORE":
            return None
        if not (changes.is_penguins or (changes.rewrites and changes.added)):
            found.update(path.rpartition("/")[0] for path in changes.removed)
    if read < len(commits):
        raise Unavailable(f"{sink.uri}: commits were removed while they were read; read them again")
    return frozenset(found)


def paths_in(raw: bytes, where: str, root: str, kind: Literal["add", "remove"]) -> Iterator[str]:
    """Return the paths below ``root`` that a commit adds or removes.

    No other action is looked at, so none can be unreadable. Raises `StateError` naming ``where``.
    """
    [paths] = columns_in(actions_of(raw, where, (kind,)), (f"{kind}.path",), where).values()
    return (path for each in paths if (path := relative(each, root)) is not None)


def _versions(
    sink: Storage, wanted: Collection[str], there: Iterable[str], concurrency: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, raw in read_each(sink, there, concurrency):
        for path in paths_in(raw, where, sink.uri, "add"):
            if path in wanted:
                found.setdefault(path, version_of(where))
        if len(found) == len(wanted):
            break
    return found


def _by_any_clock(sink: Storage, since: float) -> tuple[list[str], bool]:
    """Return the commits of `_recent` and the newest ones."""
    there = list(commit_entries(sink))
    recent, whole = _recent(there, since)
    return list(dict.fromkeys([*recent, *(entry.path for entry in there[-LOG_FILES:])])), whole


def _recent(there: Sequence[Entry], since: float) -> tuple[list[str], bool]:
    """Return the commits since then, and whether none of them is missing."""
    since -= LOG_SLACK_SECS
    recent = [entry.path for entry in there if entry.modified >= since]
    reaches_back = not there or not version_of(there[0].path) or there[0].modified < since
    return recent[:LOG_FILES], reaches_back and len(recent) <= LOG_FILES

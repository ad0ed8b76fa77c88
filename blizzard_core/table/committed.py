"""Commits of a table that added or removed files, from its Delta log. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from blizzard_core.delta_json import actions_of, columns_in, commit_entries, relative, version_of
from blizzard_core.storage.protocol import Entry, Storage, read_each

# How many commits of the Delta log are read for one reason at most.
LOG_FILES = 1000
# A commit follows its files; by how much the clocks of the two may differ.
LOG_SLACK_SECS = 300.0


def delta_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """Return the versions that added the wanted paths, and whether the log is complete.

    ``since`` is when writing of the files began. Earlier commits cannot hold them, so reading
    starts there. False means that the log was cleaned up or is longer than the limit, so a file
    that was not found may still be committed. To decide by the answer use `committed_versions`.
    """
    recent, whole = _recent(list(commit_entries(sink)), since)
    return _versions(sink, wanted, recent, concurrency), whole


def committed_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """Search as `delta_versions` does, and always read the newest commits as well.

    They seem older than they are if the store's clock was set back in between.
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
        found.update(path for path in _paths(raw, where, sink.uri, "remove") if path in wanted)
    return found, whole


def added(raw: bytes, where: str, root: str) -> Iterator[str]:
    """Return the paths below ``root`` that a commit adds. Raises `StateError` naming ``where``."""
    return _paths(raw, where, root, "add")


def _versions(
    sink: Storage, wanted: Collection[str], there: Iterable[str], concurrency: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, raw in read_each(sink, there, concurrency):
        for path in added(raw, where, sink.uri):
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


def _paths(raw: bytes, where: str, root: str, kind: Literal["add", "remove"]) -> Iterator[str]:
    [paths] = columns_in(actions_of(raw, where, (kind,)), (f"{kind}.path",), where).values()
    return (path for each in paths if (path := relative(each, root)) is not None)

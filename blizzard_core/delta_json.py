"""Where a table's Delta log lies, how it names files, which version added one. Reads only.

Read as plain JSON (https://github.com/delta-io/delta/blob/master/PROTOCOL.md), since
Blizzard does not depend on Delta.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Literal
from urllib.parse import unquote

from blizzard_core.checkpoint.decode import decoded
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import NotFound
from blizzard_core.storage.opening import normalize_uri
from blizzard_core.storage.protocol import Entry, Storage

# How many commits of the Delta log are read for one reason at most.
LOG_FILES = 1000
# A commit follows its files; by how much the clocks of the two may differ.
LOG_SLACK_SECS = 300.0

LOG = "_delta_log"
COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")


@dataclass(frozen=True, slots=True)
class _File:
    path: str


@dataclass(frozen=True, slots=True)
class _Action:
    add: _File | None = None
    remove: _File | None = None


def commit_path(version: int) -> str:
    """The path of a version's commit file."""
    return f"{LOG}/{version:020d}.json"


def relative(path: str, root: str) -> str | None:
    """A path of the log as a listing of ``root`` names it; None if it lies elsewhere.

    The log percent-encodes paths, and may hold absolute ones: of files that other
    tables own (a shallow clone), or of the table's own.
    """
    plain = unquote(path) if "%" in path else path
    if _ABSOLUTE.match(plain) is None:
        return plain
    scheme, _, rest = plain.partition(":/")
    if rest and not rest.startswith("/"):  # Hadoop's spelling, `file:/tmp/x`
        plain = f"{scheme}:///{rest}"
    place = normalize_uri(plain)
    return place[len(root) + 1 :] if place.startswith(f"{root}/") else None


def delta_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """Paths of the table with the versions that added them, and whether that is all there is.

    ``since`` is when the files began to be written: commits before it cannot
    hold them, so they are read from there on and the first hit is near. False
    means that the log was cleaned up or is longer than what is read here, so a
    file that was not found may be committed all the same. For who decides by the answer
    there is `committed_versions`.
    """
    recent, whole = _recent(_commits(sink), since)
    return _versions(sink, wanted, recent, concurrency), whole


def committed_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """As `delta_versions`, but not by ``since`` alone: the newest commits are always read.

    They seem older than they are where the store's clock was put back in between.
    """
    there, whole = _by_any_clock(sink, since)
    return _versions(sink, wanted, there, concurrency), whole


def removed(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[set[str], bool]:
    """Those of the paths that the table let go, and whether that is all there is to know.

    It is read as much as for `committed_versions`, whose two answers these are.
    """
    there, whole = _by_any_clock(sink, since)
    found: set[str] = set()
    for where, raw in read_each(sink, iter(there), concurrency):
        found.update(path for path in _paths(raw, where, sink.uri, "remove") if path in wanted)
    return found, whole


def _versions(
    sink: Storage, wanted: Collection[str], there: Iterable[str], concurrency: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, raw in read_each(sink, iter(there), concurrency):
        version = int(where.rpartition("/")[2].removesuffix(".json"))
        for path in added(raw, where, sink.uri):
            if path in wanted:
                found.setdefault(path, version)
        if len(found) == len(wanted):
            break
    return found


def _by_any_clock(sink: Storage, since: float) -> tuple[list[str], bool]:
    """`_recent`, and the newest commits."""
    there = _commits(sink)
    recent, whole = _recent(there, since)
    newest = (entry.path for _, entry in there[-LOG_FILES:])
    return list(dict.fromkeys([*recent, *newest])), whole


def _recent(there: Sequence[tuple[int, Entry]], since: float) -> tuple[list[str], bool]:
    """The commits that may tell of files written since, and whether none of these is missing."""
    since -= LOG_SLACK_SECS
    recent = [entry.path for _, entry in there if entry.modified >= since]
    reaches_back = not there or there[0][0] == 0 or there[0][1].modified < since
    return recent[:LOG_FILES], reaches_back and len(recent) <= LOG_FILES


def commits(sink: Storage) -> list[str]:
    """The paths of the log's commits, the oldest first."""
    return [entry.path for _, entry in _commits(sink)]


def _commits(sink: Storage) -> list[tuple[int, Entry]]:
    return sorted(
        (int(named[1]), entry)
        for entry in listed(sink, f"{LOG}/", f"{LOG}0")
        if (named := COMMIT.fullmatch(entry.path))
    )


def added(raw: bytes, where: str, root: str) -> Iterator[str]:
    """The paths below ``root`` that a commit adds. Raises `StateError` naming ``where``."""
    return _paths(raw, where, root, "add")


def _paths(raw: bytes, where: str, root: str, kind: Literal["add", "remove"]) -> Iterator[str]:
    marker = f'"{kind}"'.encode()
    for line in raw.split(b"\n"):
        if marker in line:
            found = decoded(_Action, parsed(line, where), where, open_=True)
            action = found.add if kind == "add" else found.remove
            path = None if action is None else relative(action.path, root)
            if path is not None:
                yield path


def listed(storage: Storage, after: str, until: str | None) -> Iterator[Entry]:
    """What lies in a range; nothing where nothing was written to yet."""
    try:
        for page in storage.list_range(after, until):
            yield from page.entries
    except NotFound:
        return  # a local directory that nothing was written to yet


def read_each(
    storage: Storage, paths: Iterator[str], concurrency: int
) -> Iterator[tuple[str, bytes]]:
    """URI and content of each object in order; those removed meanwhile are left out."""

    def read(path: str) -> tuple[str, bytes] | None:
        try:
            return f"{storage.uri}/{path}", storage.read(path)
        except NotFound:
            return None

    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        while chunk := list(islice(paths, concurrency)):
            for found in pool.map(read, chunk):
                if found is not None:
                    yield found

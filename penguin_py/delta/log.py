"""The Delta log's own files, read through the storage: what delta-rs has no call for.

* `known_paths`: every path the log knows, **adds and removes**. A path that was
  removed must never be added again, since its rows would come back, and
  delta-rs does not list removes. They stand in the newest checkpoint and in the
  commits after it.
* `last_own_commit`: our commitInfo of the version that carries our ``txn``.

Formats: https://github.com/delta-io/delta/blob/master/PROTOCOL.md. Anything in
the log that is not understood is a `StateError`: a path overlooked here could
double rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.delta_checkpoint import newest_checkpoint
from blizzard_core.delta_json import COMMIT, LOG, commit_path
from blizzard_core.errors import NotFound, StateError
from blizzard_core.json_text import json_value
from blizzard_core.storage.protocol import Storage
from penguin_py.delta.checkpoint_files import (
    TIMES,
    checkpoint_paths,
    known_at,
    told_by,
)
from penguin_py.model import Known, OwnCommit

# commitInfo key of ours, holding commit id, progress and output ids.
OUR_KEY = "penguin"
# What every Penguin's commit has a ``txn`` of, whatever the Penguin is called. No name has a
# slash, so none is this one.
COMMON_APP_ID = "penguin/any"
# How many commits output ids are gathered from where nothing says that more could have
# some: an instance folds those of 100 versions away, and then something does.
COMMITS_SEARCHED = 1000
# How many commits are read at the same time when one of ours is looked for backwards.
SEARCHED_AT_ONCE = (1, 15, 48)
# What tells one commit from another of the same version: its beginning has a time and,
# in most, an id.
STAMP_BYTES = 4096
# Of an anchor: two commits that somebody made of one version agree once in 10¹⁴ times.
ANCHOR_BYTES = 6

# delta-rs stages `N.json` as `N.json#M` on local disks, other writers beside it.
_LEFTOVER = re.compile(r"\d{20}\.(?:json|checkpoint\.parquet)(?:#\d+|\..*\.tmp)|_commit_.*\.tmp")


@dataclass
class News:
    """What commits tell: paths added or removed, output ids, the newest ``txn`` by application.

    ``document`` is what the newest commit of any Penguin says in its commitInfo, if one is among
    them.
    """

    paths: list[str] = field(default_factory=list)
    output_ids: list[str] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    document: Mapping[str, object] | None = None


def exists(storage: Storage) -> bool:
    """Whether the table's directory has a log. One LIST.

    Raises `NotFound` if the directory or bucket itself is missing, and the other
    storage errors: better words than delta-rs has for them.
    """
    return any(page.entries for page in storage.list_range(f"{LOG}/", f"{LOG}0"))


def has_commit(storage: Storage, version: int) -> bool:
    """Whether the log goes as far as ``version``. One GET of one byte."""
    try:
        storage.read_range(commit_path(version), 0, 1)
    except NotFound:
        return False
    return True


def stamp(storage: Storage, version: int) -> bytes | None:
    """What tells this version's commit from another one of the same number; None if it is gone.

    A table may be deleted and made anew under a running process. One GET.
    """
    try:
        return storage.read_range(commit_path(version), 0, STAMP_BYTES)
    except NotFound:
        return None


def anchor(stamped: bytes | None) -> str:
    """A commit's `stamp` in twelve digits, to be kept beside what is known of the log up to it.

    Empty where there is none.
    """
    return "" if stamped is None else hashlib.blake2b(stamped, digest_size=ANCHOR_BYTES).hexdigest()


def features(storage: Storage) -> list[str]:
    """The table features of the newest protocol that a commit of the log has; a last resort.

    For a log that delta-rs does not open, to tell by name why.
    """
    names = [
        entry.path
        for page in storage.list_range(f"{LOG}/", f"{LOG}/:")
        for entry in page.entries
        if COMMIT.fullmatch(entry.path)
    ]
    for path in reversed(names[-COMMITS_SEARCHED:]):
        for action in read_commit(storage, int(path[-25:-5])) or ():
            protocol = action.get("protocol")
            if isinstance(protocol, Mapping):
                kinds = ("readerFeatures", "writerFeatures")
                lists = (protocol.get(kind) for kind in kinds)
                return [str(name) for names in lists if isinstance(names, list) for name in names]
    return []


def known_paths(
    storage: Storage, version: int, pool: Executor, transactions: dict[str, int] | None = None
) -> Iterator[Known]:
    """Every path that the log up to ``version`` adds or removes.

    Times are 0 where the log does not say. Files outside the table's directory
    are left out. ``transactions`` is filled on the way with the newest ``txn`` of
    each application. Raises `StateError` if the log is not whole.
    """
    after = -1
    seen: dict[str, int] = {} if transactions is None else transactions
    found = newest_checkpoint(storage, version)
    if found is not None:
        after, parts = found
        for part in parts:
            yield from checkpoint_paths(storage, part, seen)
    for actions in _commits(storage, after, version, pool):
        seen.update(_transactions(actions))
        yield from _commit_paths(actions, storage.uri)


def last_own_commit(
    storage: Storage, app_id: str, txn: int, version: int, pool: Executor, hint: int | None = None
) -> OwnCommit | None:
    """Our commit with ``txn`` at or before ``version``; None once its JSON was cleaned up.

    ``hint`` is where it is thought to be: then it costs one GET, however many
    commits of others came after it.
    """
    if hint is not None and 0 <= hint <= version:
        found = _own(read_commit(storage, hint), hint, app_id, txn)
        if found is not None:
            return found
    sizes = iter(SEARCHED_AT_ONCE)
    size = 1
    while version >= 0:
        size = next(sizes, size)
        numbers = range(version, max(-1, version - size), -1)
        for number, actions in zip(
            numbers, pool.map(lambda v: read_commit(storage, v), numbers), strict=True
        ):
            if actions is None:
                return None
            found = _own(actions, number, app_id, txn)
            if found is not None:
                return found
        version -= size
    return None


def _own(
    actions: list[dict[str, Any]] | None, number: int, app_id: str, txn: int
) -> OwnCommit | None:
    if actions is None or _transactions(actions).get(app_id) != txn:
        return None
    document = _our_document(actions)
    # A second instance repeats the txn of the live one; the commit is still its own.
    return OwnCommit(number, document) if document.get("app_id", app_id) == app_id else None


def sweep_leftovers(storage: Storage, older_than: float) -> int:
    """Delete what killed writers left in the log: staged commits and temporary files.

    Only names that are neither commit nor checkpoint, and only if they were last
    written before ``older_than`` (epoch seconds), so that nobody still writes
    them. Returns how many.
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


def penguin_news(storage: Storage, after: int, version: int, pool: Executor) -> News:
    """What all Penguins say in the commits ``after < v <= version``; no paths, no transactions.

    As far as the log goes. The mirror has that of one instance only, and may be lost.
    """
    found = News()
    wanted = range(after + 1, version + 1)
    for document in pool.map(lambda number: _document_of(storage, number), wanted):
        if document:
            found.output_ids += _ids_in(document)
            found.document = document
    return found


def paths_of(storage: Storage, wanted: Collection[str], version: int, pool: Executor) -> list[str]:
    """What the commits add that brought these output ids, and more of the same commits.

    Among the newest `COMMITS_SEARCHED` and as far as the log goes.
    """
    missing = set(wanted)
    found: list[str] = []
    first = max(0, version + 1 - COMMITS_SEARCHED)
    for start in range(version, first - 1, -SEARCHED_AT_ONCE[-1]):
        numbers = range(start, max(first - 1, start - SEARCHED_AT_ONCE[-1]), -1)
        documents = pool.map(lambda number: _document_of(storage, number), numbers)
        for number, document in zip(numbers, documents, strict=True):
            brought = _ids_in(document)
            if missing.intersection(brought):
                missing.difference_update(brought)
                actions = read_commit(storage, number) or []
                paths = _commit_paths(actions, storage.uri)
                found += [known.path for known in paths if known.told_by == "data"]
        if not missing:
            break
    return found


def commit_info(storage: Storage, version: int) -> Mapping[str, object]:
    """Read what a commit says of itself; empty for one that is gone. Raises `StateError`.

    Without parsing the adds, of which there may be 100,000: writers begin the line so.
    """
    path = commit_path(version)
    try:
        lines = storage.read(path).splitlines()
    except NotFound:
        return {}
    told = (line for line in lines if line.startswith(b'{"commitInfo"'))
    for action in _actions(told, f"{storage.uri}/{path}"):
        if isinstance(info := action.get("commitInfo"), Mapping):
            return info
    return {}


def _document_of(storage: Storage, version: int) -> Mapping[str, object]:
    """Read our part of a commitInfo; empty for a commit of others, and for one that is gone."""
    return _ours(commit_info(storage, version))


def news(storage: Storage, after: int, version: int, pool: Executor) -> News:
    """What versions ``after < v <= version`` tell. Raises `StateError`."""
    found = News()
    for actions in _commits(storage, after, version, pool):
        found.paths += [entry.path for entry in _commit_paths(actions, storage.uri)]
        document = _our_document(actions)
        if document:
            found.output_ids += _ids_in(document)
            found.document = document
        found.transactions.update(_transactions(actions))
    return found


def _transactions(actions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    found = {}
    for action in actions:
        txn = action.get("txn")
        if isinstance(txn, Mapping) and isinstance(txn.get("version"), int):
            found[str(txn.get("appId"))] = int(txn["version"])
    return found


def _commits(
    storage: Storage, after: int, version: int, pool: Executor
) -> Iterator[list[dict[str, Any]]]:
    wanted = range(after + 1, version + 1)
    for number, actions in zip(
        wanted, pool.map(lambda v: read_commit(storage, v), wanted), strict=True
    ):
        if actions is None:
            raise StateError(
                f"{storage.uri}/{commit_path(number)}: is missing, and no checkpoint that can be"
                " read here covers it; which files the table had is not certain. Restore the"
                " entry, or a whole checkpoint of a later version, from a backup"
            )
        yield actions


def ids_in(info: Mapping[str, object]) -> list[str]:
    """The output ids that a commit of any Penguin tells of; none for other writers."""
    return _ids_in(_ours(info))


def _ids_in(document: Mapping[str, object]) -> list[str]:
    ids = document.get("output_ids")
    return [name for name in ids if isinstance(name, str)] if isinstance(ids, list) else []


def read_commit(storage: Storage, version: int) -> list[dict[str, Any]] | None:
    """The actions of a version, None if there is no such file. Raises `StateError`."""
    path = commit_path(version)
    try:
        raw = storage.read(path)
    except NotFound:
        return None
    return _actions(raw.splitlines(), f"{storage.uri}/{path}")


def _actions(lines: Iterable[bytes], where: str) -> list[dict[str, Any]]:
    try:
        actions = [json_value(line) for line in lines if line.strip()]
    except ValueError as error:
        raise StateError(f"{where}: is not a readable commit ({error})") from error
    if not all(isinstance(action, dict) for action in actions):
        raise StateError(f"{where}: holds a line that is not an action")
    return actions


def _our_document(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, object]:
    for action in actions:
        info = action.get("commitInfo")
        if isinstance(info, Mapping) and (ours := _ours(info)):
            return ours
    return {}


def _ours(info: Mapping[str, object]) -> Mapping[str, object]:
    ours = info.get(OUR_KEY)
    return ours if isinstance(ours, Mapping) else {}


def _commit_paths(actions: Iterable[Mapping[str, Any]], root: str) -> Iterator[Known]:
    for action in actions:
        for kind, key in TIMES:
            body = action.get(kind)
            if isinstance(body, Mapping) and isinstance(body.get("path"), str):
                told = told_by(kind, body.get("dataChange"))
                yield from known_at(body["path"], body.get(key), told, root)

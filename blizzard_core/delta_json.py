"""Reader of Delta logs: their commits, their checkpoints and the content of both.

A commit is JSON, one action per line. A checkpoint is Parquet, in one file or several. A
checkpoint of the second form is a Parquet or JSON file that names *sidecars* with the file
actions. Results are columns such as ``add.path``: only these are read from a checkpoint, and only
lines of the wanted kinds are parsed in a commit.

The module only reads. It does not use deltalake, which has no call for this and is no dependency
of Blizzard. Content that is not understood raises `StateError`: an overlooked path could
duplicate rows.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.storage.opening import normalize_uri
from blizzard_core.storage.protocol import Entry, Storage, listed, read_each
from blizzard_core.text import JSON_REFUSALS, json_object, written_value
from blizzard_core.threads import ThreadPool

LOG = "_delta_log"
COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
# Above every version that a log can have.
NEWEST = 10**20 - 1

Action: TypeAlias = Mapping[str, Any]
# Values by column name. Columns of one kind have the same length.
Columns: TypeAlias = Mapping[str, list[Any]]

# How much of a commit identifies it: the beginning has a time and, in most, an id.
STAMP_BYTES = 4096
# The length of an anchor. Two different commits of one version have the same one in 10¹⁴ cases.
ANCHOR_BYTES = 6

_CHECKPOINT = re.compile(
    rf"{LOG}/(?P<version>\d{{20}})\.checkpoint"
    r"(?P<form>|\.\d{10}\.(?P<parts>\d{10})|\.[0-9a-fA-F-]{36})\.(?P<type>parquet|json)"
)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")
_END = f"{LOG}/:"  # ":" follows "9"
# Parquet begins and ends with it; between the two is at least a footer and its length.
_MAGIC = b"PAR1"
_SHORTEST = 12
_SIDECAR = "sidecar.path"
# Columns whose type is checked and whose values are never missing.
_CERTAIN: Mapping[str, type] = {
    "add.path": str,
    "remove.path": str,
    "txn.appId": str,
    "txn.version": int,
    _SIDECAR: str,
}
# At either end of a commit, in which an action begins, or ends with its line.
_EDGE_BYTES = 64
_COMMIT_REMEDY = (
    "If it is the log's newest commit, delete it: Penguin commits its own files again, and other"
    " writers have to; else restore it, or a whole checkpoint of a later version, from a backup"
)
_REMEDY = (
    "If the commits before it, or an older checkpoint, are still there, delete it; else restore it"
    " from a backup"
)


@dataclass(frozen=True, slots=True)
class Tail:
    """A log's end: a checkpoint's ``version`` and files (-1 and none), and the commits behind."""

    version: int
    checkpoint: tuple[Entry, ...]
    commits: tuple[Entry, ...]


def commit_path(version: int) -> str:
    """Return the path of a version's commit file."""
    return f"{LOG}/{version:020d}.json"


def version_of(path: str) -> int:
    """Return the version of a commit's path or URI."""
    return int(path.rpartition("/")[2].removesuffix(".json"))


def stamp_of(storage: Storage, version: int, size: int = STAMP_BYTES) -> bytes | None:
    """Return the beginning of a version's commit, its fingerprint; None if it is gone. One GET."""
    try:
        return storage.read_range(commit_path(version), 0, size)
    except NotFound:
        return None


def anchored(stamp: bytes | None) -> str:
    """Return a commit's stamp as twelve digits, to identify its log; empty where there is none."""
    return "" if stamp is None else hashlib.blake2b(stamp, digest_size=ANCHOR_BYTES).hexdigest()


def relative(path: str, root: str) -> str | None:
    """Return a logged path relative to ``root``, as listings name it; None if it lies elsewhere.

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


class _Statistics(msgspec.Struct):
    """Statistics of a file; only the number of rows is decoded."""

    numRecords: int | None = None  # noqa: N815  # the format's own name


_STATISTICS = msgspec.json.Decoder(_Statistics)


def logged_rows(stats: str | None) -> int | None:
    """Return the number of rows in a file's ``stats``, which are optional; None if unknown."""
    try:
        return None if stats is None else _STATISTICS.decode(stats).numRecords
    except (*JSON_REFUSALS, TypeError):
        return None


def commit_entries(storage: Storage, first: int = 0) -> Iterator[Entry]:
    """Return the commits from version ``first`` on, in order; none where there is no log."""
    entries = listed(storage, f"{LOG}/{first:020d}", _END)
    return (entry for entry in entries if COMMIT.fullmatch(entry.path))


def commits(storage: Storage) -> list[str]:
    """Return the paths of the log's commits, the oldest first."""
    return [entry.path for entry in commit_entries(storage)]


def hinted(storage: Storage) -> int | None:
    """Return the version in ``_last_checkpoint``, which is only a hint; None if there is none."""
    try:
        document = json_object(storage.read(f"{LOG}/_last_checkpoint")) or {}
    except NotFound:
        return None
    version = document.get("version")
    return version if isinstance(version, int) and 0 <= version <= NEWEST else None


def tail_of(storage: Storage, version: int = NEWEST) -> Tail:
    """Find the newest complete checkpoint up to ``version``. A GET and a LIST if the hint holds.

    ``_last_checkpoint`` may name a checkpoint that is not readable here; then an older one is used.
    An empty or truncated file of a writer that died is skipped with a warning. Raises `NotFound` if
    the directory does not exist.
    """
    hint = hinted(storage)
    if hint is not None and hint <= version:
        found = _tail(storage, f"{LOG}/{hint:020d}", version)
        if found.checkpoint:
            return found
    return _tail(storage, f"{LOG}/", version)


def _tail(storage: Storage, start: str, version: int) -> Tail:
    checkpoints: dict[tuple[int, str], list[Entry]] = {}
    behind: list[Entry] = []
    for page in storage.list_range(start, _END):
        for entry in page.entries:
            if COMMIT.fullmatch(entry.path):
                behind.append(entry)
            elif (match := _CHECKPOINT.fullmatch(entry.path)) and int(match["version"]) <= version:
                form = match["parts"] or match["form"]
                checkpoints.setdefault((int(match["version"]), form), []).append(entry)
    for (number, form), parts in sorted(checkpoints.items(), reverse=True):
        is_complete = len(parts) == (int(form) if form.isdigit() else 1)
        if is_complete and all(_is_complete(storage, part) for part in parts):
            later = tuple(entry for entry in behind if version_of(entry.path) > number)
            return Tail(number, tuple(parts), later)
    return Tail(-1, (), tuple(behind))


def _is_complete(storage: Storage, part: Entry) -> bool:
    """Return whether a checkpoint's file has Parquet's magic at both ends; JSON is not checked."""
    if part.path.endswith(".json") and part.size:
        return True
    ends = (0, len(_MAGIC)), (part.size - len(_MAGIC), part.size)
    try:
        if part.size >= _SHORTEST and all(
            storage.read_range(part.path, *at) == _MAGIC for at in ends
        ):
            return True
    except NotFound as error:  # a caller would take NotFound for an empty log
        raise _cleaned_up(f"{storage.uri}/{part.path}") from error
    get_logger().warning(
        "log_checkpoint_ignored",
        path=f"{storage.uri}/{part.path}",
        bytes=part.size,
        error="is empty or cut off; an older checkpoint or the commits count",
        remedy="delete the file",
    )
    return False


def _cleaned_up(where: str) -> Unavailable:
    return Unavailable(f"{where}: was cleaned up while the log was read")


def actions_of(raw: bytes, where: str, kinds: Collection[str] = ()) -> list[Action]:
    """Parse a commit's actions, or at least those of ``kinds``. Raises `StateError`."""
    # A power failure may leave zeros or a truncated file. Every reader takes an empty file for an
    # empty commit: Penguin commits the files in its memory again.
    ends = raw[:_EDGE_BYTES].lstrip()[:1] + raw[-_EDGE_BYTES:].rstrip()[-1:]
    if raw and ends != b"{}":
        raise StateError(f"{where}: is of zeros or cut off. {_remedy(where)}")
    markers = [f'"{kind}"'.encode() for kind in kinds]
    lines = raw.split(b"\n")
    if markers:
        # Most kinds are absent, which a search of the whole text shows quickly.
        there = [marker for marker in markers if marker in raw]
        lines = [line for line in lines if any(map(line.__contains__, there))] if there else []
    found: list[Action] = []
    for line in filter(bytes.strip, lines):
        try:
            action = written_value(line)
        except ValueError as error:
            raise StateError(f"{where}: is not readable ({error}). {_remedy(where)}") from error
        if not isinstance(action, dict):
            raise StateError(f"{where}: holds a line that is not an action. {_remedy(where)}")
        found.append(action)
    return found


def _remedy(where: str) -> str:
    """Return the remedy for a file of the log that is not understood."""
    return _REMEDY if ".checkpoint." in where.rpartition("/")[2] else _COMMIT_REMEDY


def read_commit(storage: Storage, version: int, kinds: Collection[str] = ()) -> list[Action] | None:
    """Read a version as `actions_of` does; None if there is no such commit."""
    path = commit_path(version)
    try:
        raw = storage.read(path)
    except NotFound:
        return None
    return actions_of(raw, f"{storage.uri}/{path}", kinds)


def columns_in(actions: Iterable[Action], wanted: Iterable[str], where: str) -> Columns:
    """Return the ``wanted`` columns of actions: ``add.path``, or ``protocol`` for the whole action.

    Raises `StateError` naming ``where`` for what cannot be of that kind.
    """
    found: dict[str, list[Any]] = {name: [] for name in wanted}
    fields: dict[str, list[tuple[str, str]]] = {}
    for name in found:
        kind, _, key = name.partition(".")
        fields.setdefault(kind, []).append((key, name))
    for action in actions:
        for kind, body in action.items():
            if kind not in fields or body is None:
                continue
            if not isinstance(body, dict):
                raise StateError(f"{where}: {kind} of an action has no fields. {_remedy(where)}")
            for key, name in fields[kind]:
                value = body.get(key) if key else body
                if name in _CERTAIN and type(value) is not _CERTAIN[name]:
                    raise StateError(f"{where}: an action has no sound {name}. {_remedy(where)}")
                found[name].append(value)
    return found


def checkpoint_columns(storage: Storage, tail: Tail, wanted: Sequence[str]) -> Iterator[Columns]:
    """Yield the ``wanted`` columns of a checkpoint, piece by piece, as `columns_in` does.

    A GET a file where it is asked for files, which are most of it; else ranges of it. Raises
    `StateError`, and `Unavailable` if it was cleaned up meanwhile.
    """
    of_files = any(name.startswith(("add", "remove")) for name in wanted)
    columns = [*wanted, _SIDECAR] if of_files else list(wanted)
    sidecars: dict[str, None] = {}
    for part in tail.checkpoint:
        for found in _pieces(storage, part.path, None if of_files else part.size, columns):
            sidecars |= dict.fromkeys(found.get(_SIDECAR, ()))
            yield found
    for name in sidecars:
        path = f"{LOG}/_sidecars/{unquote(name).rpartition('/')[2]}"
        yield from _pieces(storage, path, None, columns)


def _pieces(
    storage: Storage, path: str, size: int | None, wanted: Sequence[str]
) -> Iterator[Columns]:
    """Yield the columns of one file; with a known ``size`` only the needed ranges are read."""
    where = f"{storage.uri}/{path}"
    try:
        if path.endswith(".json"):
            yield columns_in(actions_of(storage.read(path), where), wanted, where)
            return
        # Most logs are read to their end without a checkpoint, and reading JSON needs no Arrow.
        from blizzard_core.delta_checkpoint import column_batches  # noqa: PLC0415  # see above

        yield from column_batches(storage, path, size, wanted, _CERTAIN)
    except NotFound as error:
        raise _cleaned_up(where) from error
    except (OSError, ValueError) as error:
        raise StateError(f"{where}: is not a readable checkpoint ({error}). {_REMEDY}") from error


def columns_up_to(
    storage: Storage,
    version: int,
    wanted: Sequence[str],
    pool: Executor,
    tail: Tail,
    kinds: Collection[str] = (),
) -> Iterator[Columns]:
    """Yield the ``wanted`` columns of the tail's checkpoint and of each commit up to ``version``.

    In commits all lines are parsed, or those of ``kinds``. No commit may be missing. Raises as
    `checkpoint_columns`.
    """
    there = {version_of(entry.path) for entry in tail.commits}
    yield from checkpoint_columns(storage, tail, wanted)
    versions = range(tail.version + 1, version + 1)
    read = partial(read_commit, storage, kinds=kinds)
    for number, actions in zip(versions, pool.map(read, versions), strict=True):
        where = f"{storage.uri}/{commit_path(number)}"
        if actions is None and number in there:
            raise _cleaned_up(where)
        if actions is None:
            raise StateError(
                f"{where}: is missing, and no checkpoint that can be read here covers it; what"
                " the table had is not certain. Restore the entry, or a whole checkpoint of"
                " a later version, from a backup"
            )
        yield columns_in(actions, wanted, where)


def newest_actions(storage: Storage, kinds: Collection[str], concurrency: int) -> dict[str, Action]:
    """Return the newest action of each kind, such as ``protocol`` or ``metaData``.

    Commits are read backwards to the checkpoint; of the checkpoint only these kinds are read.
    delta-rs would also read the list of files: 950 MB for a million. Raises as `tail_of`.
    """
    tail = tail_of(storage)
    found: dict[str, Action] = {}
    for where, raw in read_each(storage, (e.path for e in reversed(tail.commits)), concurrency):
        for kind, bodies in columns_in(actions_of(raw, where, kinds), kinds, where).items():
            if bodies:
                found.setdefault(kind, bodies[-1])
        if len(found) == len(kinds):
            return found
    for columns in checkpoint_columns(storage, tail, list(kinds)):
        for kind, bodies in columns.items():
            if bodies:
                found.setdefault(kind, bodies[-1])
    return found


TRANSACTION = ("txn.appId", "txn.version")


def transactions_in(columns: Columns) -> dict[str, int]:
    """Return the newest ``txn`` of each application in the columns `TRANSACTION`."""
    return dict(zip(*(columns[name] for name in TRANSACTION), strict=True))


def newest_transactions(storage: Storage, concurrency: int) -> dict[str, int]:
    """Return the version of each application's newest ``txn``; empty where there is no log.

    Each checkpoint repeats them, so they survive log clean-up. They prove how far a source's work
    is in the table. Costs a GET, a LIST, a few ranges of a checkpoint, and a GET for each later
    commit. Raises `StateError`, also for a log that lacks a commit, and `StorageError`.
    """
    found: dict[str, int] = {}
    try:
        tail = tail_of(storage)
    except NotFound:  # a local directory that nothing was written to yet
        return found
    last = max([tail.version, *(version_of(entry.path) for entry in tail.commits)])
    with ThreadPool(concurrency) as pool:
        for columns in columns_up_to(storage, last, TRANSACTION, pool, tail, ("txn",)):
            found |= transactions_in(columns)
    return found

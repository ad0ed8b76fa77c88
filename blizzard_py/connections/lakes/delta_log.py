"""The versions of a window in Delta's log: files, changes, and unreadable features. Pure.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md. delta-rs has no call for it: it
returns the files of one version, but not which commits only moved rows (``dataChange: false``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from blizzard_core.delta_json import Action, actions_of
from blizzard_core.errors import SourceError, StateError
from blizzard_py.slices.column_order import order_of

CHANGE = "_change_type"
VERSION = "_commit_version"
TIME = "_commit_timestamp"
CHANGE_COLUMNS = (CHANGE, VERSION, TIME)

_CDF = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True)
class FileAction:
    """An add, a remove or a change file, as in the log; ``path`` is decoded."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    data_change: bool
    vector: bool


@dataclass(slots=True)
class DeltaCommit:
    """One version."""

    version: int
    timestamp: float = 0.0
    properties: Mapping[str, str] | None = None
    adds: list[FileAction] = field(default_factory=list)
    removes: list[FileAction] = field(default_factory=list)
    changes: list[FileAction] = field(default_factory=list)


def parsed(raw: bytes, version: int, where: str) -> DeltaCommit:
    """Return one log entry. Raises `SourceError` if it is cut or invalid: rows could be missed."""
    commit = DeltaCommit(version)
    try:
        actions = actions_of(raw, where)
        for action in actions:
            _take(commit, action)
    except (StateError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise SourceError(
            f"{where}: this entry of the table's log is cut or damaged ({type(error).__name__});"
            " restore it, nothing after it can be trusted"
        ) from error
    if not actions:
        raise SourceError(f"{where}: this entry of the table's log is empty; restore it")
    return commit


def _take(commit: DeltaCommit, action: Action) -> None:
    if info := action.get("commitInfo"):
        stamp = info.get("inCommitTimestamp") or info.get("timestamp") or 0
        commit.timestamp = int(stamp) / 1000
    if metadata := action.get("metaData"):
        commit.properties = dict(metadata.get("configuration") or {})
    for kind, files in (("add", commit.adds), ("remove", commit.removes), ("cdc", commit.changes)):
        if file := action.get(kind):
            files.append(_file(file))


def _file(action: Action) -> FileAction:
    return FileAction(
        # The log has URIs; a path on a disk has no percent signs of its own.
        unquote(action["path"]),
        int(action.get("size") or 0),
        dict(action.get("partitionValues") or {}),
        bool(action.get("dataChange", True)),
        action.get("deletionVector") is not None,
    )


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file with new rows, and one of Delta's change types for them.

    ``kind`` is ``""`` if the file itself has the column.
    """

    file: FileAction
    kind: str
    version: int
    timestamp: float


def check_readable(properties: Mapping[str, str], what: str) -> None:
    """Raise `SourceError` for table features that change how files must be read."""
    mode = properties.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise SourceError(
            f"{what}: has column mapping (mode {mode}), so its files have other column names; it is"
            " not read. Copy the table to one without delta.columnMapping.mode"
        )


def refuse_vector(what: str, version: int, is_past: bool = False) -> SourceError:
    """Return the error for rows that were deleted by deletion vectors.

    ``is_past``: the commit is in the past, so a purge does not change it.
    """
    leave_out = (
        f"; to skip this version: `blizzard checkpoint set --column version={version}`"
        if is_past
        else ""
    )
    return SourceError(
        f"{what}: version {version} has deletion vectors, which are not read: deleted rows would"
        " reappear. Set delta.enableDeletionVectors to false and run REORG TABLE … APPLY (PURGE)"
        f"{leave_out}"
    )


def appended(commits: Iterable[DeltaCommit], what: str) -> list[FileChange]:
    """Return the files with the rows that these commits added, the oldest first.

    Compactions add nothing. Raises `SourceError` if rows were deleted or changed: files alone do
    not show that.
    """
    found: dict[str, FileChange] = {}
    for commit in commits:
        _check(commit, what)
        if any(action.data_change for action in commit.removes):
            raise SourceError(
                f"{what}: version {commit.version} deletes or changes rows, and a window reads"
                " appended ones only. Set delta.enableChangeDataFeed on the table and declare the"
                f" field {CHANGE} (string) to read such changes as rows of their own; to skip"
                f" this version: `blizzard checkpoint set --column version={commit.version}`"
            )
        for add in commit.adds:
            if add.data_change:
                # A file named twice (statistics computed afterwards) has its rows once.
                found.setdefault(
                    add.path, FileChange(add, "insert", commit.version, commit.timestamp)
                )
    return list(found.values())


def changed(commits: Iterable[DeltaCommit], enabled: bool, what: str) -> list[FileChange]:
    """Return the change feed of these commits: every row that was added, deleted or changed.

    A commit with change files has all its changes in them; one without adds or removes whole files.
    ``enabled`` is whether the feed was on before the first commit.
    """
    found: list[FileChange] = []
    for commit in commits:
        _check(commit, what)
        if commit.properties is not None:
            enabled = is_fed(commit.properties)
        if commit.changes:
            found += [
                FileChange(file, "", commit.version, commit.timestamp) for file in commit.changes
            ]
            continue
        removes = [action for action in commit.removes if action.data_change]
        if removes and not enabled:
            raise SourceError(
                f"{what}: version {commit.version} deletes or changes rows while {_CDF} was not"
                " set, so it has no change feed; set the property, and set the watermark"
                f" past it: `blizzard checkpoint set --column version={commit.version}`"
            )
        for kind, actions in (("delete", removes), ("insert", commit.adds)):
            found += [
                FileChange(file, kind, commit.version, commit.timestamp)
                for file in actions
                if file.data_change
            ]
    return found


def _check(commit: DeltaCommit, what: str) -> None:
    if commit.properties is not None:
        check_readable(commit.properties, what)
    # A purge removes files with vectors and changes no row.
    if any(each.vector and each.data_change for each in (*commit.adds, *commit.removes)):
        raise refuse_vector(what, commit.version, is_past=True)


def is_fed(properties: Mapping[str, str]) -> bool:
    """Return whether the table's change feed is on."""
    return properties.get(_CDF, "").lower() == "true"


def partition_values(
    texts: Mapping[str, str | None], types: Mapping[str, pa.DataType], what: str
) -> dict[str, Any]:
    """Return partition columns as Python values, from the log's text; the empty text is null."""
    missing = [name for name in types if name not in texts]
    if missing:
        raise SourceError(
            f"{what}: its log lacks the value of {', '.join(missing)} for a file; some"
            " writers omit it for removed files; read the table without the change feed"
        )
    return {
        name: _partition_value(texts[name], kind, f"{what}: partition column {name}")
        for name, kind in types.items()
    }


def _partition_value(text: str | None, kind: pa.DataType, what: str) -> Any:
    if not text:
        return None
    kinds = pa.types
    parsers: tuple[tuple[bool, Callable[[str], Any]], ...] = (
        (kinds.is_timestamp(kind), partial(_moment, zone=bool(getattr(kind, "tz", None)))),
        (kinds.is_date(kind), dt.date.fromisoformat),
        (kinds.is_boolean(kind), {"true": True, "false": False}.__getitem__),
        (kinds.is_integer(kind), int),
        (kinds.is_floating(kind), float),
        (kinds.is_decimal(kind), Decimal),
        (order_of(kind) == "text", str),
    )
    parse = next((parse for holds, parse in parsers if holds), None)
    if parse is None:
        raise SourceError(f"{what} is {kind}, which is not read; partition by another column")
    try:
        return parse(text)
    except (ValueError, ArithmeticError, KeyError) as error:
        raise SourceError(f"{what} has a value that is not a {kind}; repair the log") from error


def _moment(text: str, *, zone: bool) -> dt.datetime:
    """Return a time in Delta's form (``2024-01-28 10:00:00``) or ISO 8601; the default is UTC."""
    moment = dt.datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return moment.astimezone(dt.UTC).replace(tzinfo=dt.UTC if zone else None)

"""What the journal, the dead letters and the Delta log still tell of a file. Reads only.

The log is read as plain JSON (https://github.com/delta-io/delta/blob/master/PROTOCOL.md),
since Blizzard does not depend on Delta. What is there and cannot be understood
is a `StateError`; what has been cleaned up meanwhile is no error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import unquote

from blizzard_py.core.checkpoint import Fields, parsed
from blizzard_py.core.errors import NotFound, StateError
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage, join
from blizzard_py.journal import JOURNAL_FOLDER, first_name

# How many commits of the Delta log are read at most.
LOG_FILES = 1000
# A commit follows its files; by how much the clocks of the two may differ.
LOG_SLACK_SECS = 300.0

_LOG = "_delta_log"
_COMMIT = re.compile(rf"{_LOG}/(\d{{20}})\.json")
_LATE = re.compile(r"late-(\d+)\.ndjson")


@dataclass(frozen=True, slots=True)
class Journaled:
    """A batch of the journal and what it says of one file. ``outputs``: final path and rows."""

    source_id: str
    batch: str
    attempt: int
    started_ts: float
    finished_ts: float
    outcome: str
    rows: int
    bad_rows: int
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter and the object it is in; without ``error`` if it is no longer there."""

    object: str
    stage: str | None
    error: str | None
    timestamp: str | None
    retry_count: int | None


def journal_start(sink: Storage, source_id: str) -> float | None:
    """When the oldest batch of the journal began (epoch seconds), None without a journal."""
    folder = join(JOURNAL_FOLDER, source_id)
    for entry in _listed(sink, f"{folder}/", f"{folder}0"):
        if entry.path.endswith(".json"):
            return _begun(entry.path)
    return None


def _begun(path: str) -> float:
    try:
        return (uuid.UUID(path.rpartition("/")[2].removesuffix(".json")).int >> 80) / 1000
    except ValueError as error:
        raise StateError(f"{path}: is not named as a journal entry") from error


def journaled(
    sink: Storage, source_id: str, path: str, since: float, until: float | None, concurrency: int
) -> Journaled | None:
    """What the first batch begun in ``since ≤ t < until`` that settled the file says of it.

    Batches in which it was left for another try do not count. Costs a read per
    batch up to the hit, ``concurrency`` at a time.
    """
    folder = join(JOURNAL_FOLDER, source_id)
    end = f"{folder}0" if until is None else join(folder, first_name(until))
    start = join(folder, first_name(since)) if since > 0 else f"{folder}/"
    names = (e.path for e in _listed(sink, start, end) if e.path.endswith(".json"))
    for where, raw in _read_each(sink, names, concurrency):
        read = Fields(parsed(raw, where), where)
        for file in read("files", list):
            if not isinstance(file, dict) or file.get("path") != path:
                continue
            found = Fields(file, where)
            outcome = found("outcome", str)
            if outcome == "retry":
                break
            return Journaled(
                source_id,
                read("batch", str),
                read("attempt", int),
                read("started_ts", float),
                read("finished_ts", float),
                outcome,
                found("rows", int),
                found.get("bad_rows", int) or 0,
                tuple(_output(output, where) for output in read("outputs", list)),
            )
    return None


def _output(document: Any, where: str) -> tuple[str, int]:
    read = Fields(document, where)
    return read("final", str), read("rows", int)


def letter(dlq: Storage, source_id: str, batch: str, uri: str) -> Letter:
    """The dead letter that a batch wrote for a file."""
    path = join(source_id, f"{batch}.ndjson")
    found = _letter_in(dlq, path, uri)
    return found or Letter(f"{dlq.uri}/{path}", None, None, None, None)


def late_letter(dlq: Storage, source_id: str, uri: str, since: float) -> Letter | None:
    """The dead letter that a late sweep at ``since`` or later wrote for a file."""
    for entry in _listed(dlq, f"{source_id}/late-", f"{source_id}/late."):
        named = _LATE.fullmatch(entry.path.rpartition("/")[2])
        if named and int(named[1]) >= int(since):
            found = _letter_in(dlq, entry.path, uri)
            if found is not None:
                return found
    return None


def _letter_in(dlq: Storage, path: str, uri: str) -> Letter | None:
    where = f"{dlq.uri}/{path}"
    try:
        raw = dlq.read(path)
    except NotFound:
        return None
    for line in raw.split(b"\n"):
        if line:
            read = Fields(parsed(line, where), where)
            if read("path", str) == uri:
                return Letter(
                    where,
                    read("stage", str),
                    read("error", str),
                    read("timestamp", str),
                    read("retry_count", int),
                )
    return None


def delta_versions(
    sink: Storage, wanted: Collection[str], since: float, concurrency: int
) -> tuple[dict[str, int], bool]:
    """Paths of the table with the versions that added them, and whether that is all there is.

    ``since`` is when the files began to be written: commits before it cannot
    hold them, so they are read from there on and the first hit is near. False
    means that the log was cleaned up or is longer than what is read here, so a
    file that was not found may be committed all the same.
    """
    commits = sorted(
        (int(named[1]), entry)
        for entry in _listed(sink, f"{_LOG}/", f"{_LOG}0")
        if (named := _COMMIT.fullmatch(entry.path))
    )
    since -= LOG_SLACK_SECS
    recent = [entry.path for _, entry in commits if entry.modified >= since]
    reaches_back = not commits or commits[0][0] == 0 or commits[0][1].modified < since
    found: dict[str, int] = {}
    names = iter(recent[:LOG_FILES])
    for where, raw in _read_each(sink, names, concurrency):
        version = int(where.rpartition("/")[2].removesuffix(".json"))
        for path in _added(raw, where):
            if path in wanted:
                found.setdefault(path, version)
        if len(found) == len(wanted):
            break
    return found, reaches_back and len(recent) <= LOG_FILES


def _added(raw: bytes, where: str) -> Iterator[str]:
    for line in raw.split(b"\n"):
        if b'"add"' in line:
            add = Fields(parsed(line, where), where).get("add", dict)
            if add is not None:
                yield unquote(Fields(add, where)("path", str))


def _listed(storage: Storage, after: str, until: str) -> Iterator[Entry]:
    try:
        for page in storage.list_range(after, until):
            yield from page.entries
    except NotFound:
        return  # a local directory that nothing was written to yet


def _read_each(
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

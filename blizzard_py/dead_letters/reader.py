"""The dead-letter queue, read and counted. A batch and the ingest job write it.

Below ``{dlq}/{pipeline}_{source}/`` there are two kinds of objects, each NDJSON
with one letter a line:

* ``{batch}.ndjson``: whole files that a batch gave up; ``kept`` means that rows which they had
  before are in the table still;
* ``{batch}.records.ndjson``: single lines of files that were ingested otherwise.
  Such a letter has, besides ``path``, ``error``, ``stage`` and ``timestamp``:
  ``line`` (from 1), ``offset`` and ``length`` in bytes of the decompressed
  file, and the line itself as ``raw``, or as ``raw_base64`` where it is not
  UTF-8. ``truncated`` means that only its beginning is there, ``more`` how many lines of the file
  follow that have no letter.

What a replay has dealt with lies below ``replayed/`` there. Everything in a letter
is foreign text. Reading holds one letter at a time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.limits import LETTER_BYTES
from blizzard_core.storage.protocol import Entry, Storage, join, listed
from blizzard_core.text import json_value
from blizzard_py.state.source_state import REPLAYED_FOLDER

Kind = Literal["files", "records"]


_BLOCK_BYTES = 256 << 10
_RECORDS = ".records.ndjson"
# Beyond that it is said that there are more: each object is read, and costs a request.
OBJECTS_COUNTED = 10_000
BYTES_COUNTED = 64 << 20


class UnreadableDeadLetter(BlizzardError):
    """A line of a dead-letter object that is not a letter."""


@dataclass(frozen=True, slots=True)
class DeadLetterObject:
    """One object of the queue. ``path`` is relative to the queue, ``id`` names it in commands."""

    path: str
    id: str
    kind: Kind
    size: int
    modified: float
    replayed: bool

    @property
    def batch(self) -> str:
        """The batch that wrote it."""
        return self.id.removesuffix(".records")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter. ``line`` (from 1) and what follows are set for a record only.

    ``kept`` and ``retry_count`` are set for files. ``uri`` is the source file's, ``raw`` the line
    without its end, its first bytes only if ``truncated``, and ``length`` the bytes of the whole
    line. ``header`` is the file's, where a record cannot be read without it; ``member`` is the name
    within an archive.
    """

    uri: str
    error: str
    stage: str
    timestamp: str
    line: int = 0
    length: int = 0
    raw: bytes = field(default=b"", repr=False)
    truncated: bool = False
    more: int = 0
    kept: bool = False
    retry_count: int | None = None
    header: bytes = b""
    member: str = ""

    def to_json(self, found: DeadLetterObject) -> dict[str, Any]:
        """Return what ``blizzard dlq list --json`` prints."""
        return {
            "id": found.id,
            "kind": found.kind,
            "replayed": found.replayed,
            "path": self.uri,
            "line": self.line or None,
            **({"member": self.member} if self.member else {}),
            "stage": self.stage,
            "error": self.error,
            "timestamp": self.timestamp,
        }


def objects(dlq: Storage, source_id: str, *, replayed: bool = False) -> Iterator[DeadLetterObject]:
    """Yield the objects of one source; replayed ones only if asked for.

    A page in memory at a time. Raises `StorageError`; a queue that nothing was
    written to yet is empty.
    """
    root, away = f"{source_id}/", f"{source_id}/{REPLAYED_FOLDER}/"
    # "0" follows "/". What is put away may be much more than what is open.
    ranges = [(root, away), (f"{away[:-1]}0", f"{source_id}0")]
    for after, until in [(root, f"{source_id}0")] if replayed else ranges:
        for entry in listed(dlq, after, until):
            found = _object(entry, root)
            if found is not None:
                yield found


def _object(entry: Entry, root: str) -> DeadLetterObject | None:
    folder, _, name = entry.path.removeprefix(root).rpartition("/")
    if folder not in {"", REPLAYED_FOLDER} or not name.endswith(".ndjson"):
        return None
    kind: Kind = "records" if name.endswith(_RECORDS) else "files"
    stem = name.removesuffix(".ndjson")
    return DeadLetterObject(entry.path, stem, kind, entry.size, entry.modified, bool(folder))


def object_of(source_id: str, letter_id: str) -> DeadLetterObject:
    """Return the open object with an id, as far as the id tells of it."""
    kind: Kind = "records" if letter_id.endswith(".records") else "files"
    return DeadLetterObject(put_away(source_id, letter_id)[0], letter_id, kind, 0, 0.0, False)


def put_away(source_id: str, letter_id: str) -> tuple[str, str]:
    """Return where an object is and where a replay moves it to."""
    name = f"{letter_id}.ndjson"
    return join(source_id, name), join(source_id, REPLAYED_FOLDER, name)


def read(dlq: Storage, found: DeadLetterObject) -> Iterator[DeadLetter]:
    """Yield the letters of an object. Raises `UnreadableDeadLetter`, `StorageError`."""
    where = f"{dlq.uri}/{found.path}"
    with closing(dlq.open_input(found.path)) as stream:
        for number, line in enumerate(letter_lines(stream), 1):
            if len(line) > LETTER_BYTES and not line.endswith(b"\n"):
                raise UnreadableDeadLetter(f"{where}: line {number} is too long to be a letter")
            if line.strip():
                try:
                    yield _letter(json_value(line), found.kind)
                except (ValueError, KeyError, TypeError, binascii.Error) as error:
                    raise UnreadableDeadLetter(
                        f"{where}: line {number} is not a dead letter ({error!r}); mend the line,"
                        " or move the object out of the queue"
                    ) from error


def _letter(document: dict[str, Any], kind: Kind) -> DeadLetter:
    texts = (_text(document, key) for key in ("path", "error", "stage", "timestamp"))
    uri, error, stage, timestamp = texts
    uri.encode("utf-8", "surrogateescape")  # other halves of pairs are in no path
    if kind != "records":
        kept, count = document.get("kept") is True, document.get("retry_count")
        known = count if isinstance(count, int) else None  # a replay needs none
        return DeadLetter(uri, error, stage, timestamp, kept=kept, retry_count=known)
    encoded = document.get("raw_base64")
    raw = (
        _text(document, "raw").encode()
        if encoded is None
        else base64.b64decode(encoded, validate=True)
    )
    return DeadLetter(
        uri,
        error,
        stage,
        timestamp,
        line=int(document["line"]),
        length=int(document["length"]),
        raw=raw,
        truncated=bool(document.get("truncated", False)),
        more=int(document.get("more", 0)),
        header=_text({"header": "", **document}, "header").encode("utf-8", "surrogateescape"),
        member=_text({"member": "", **document}, "member"),
    )


def _text(document: dict[str, Any], key: str) -> str:
    found = document[key]
    if not isinstance(found, str):
        raise TypeError(f"{key} must be text")
    return found


def letter_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their ends; a line that is too long for a letter comes in pieces."""
    held = b""
    while block := stream.read(_BLOCK_BYTES):
        *whole, held = (held + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(held) > LETTER_BYTES:
            yield held
            held = b""
    if held:
        yield held


@dataclass(frozen=True, slots=True)
class Counted:
    """Letters in so many objects; not ``complete`` where there is more than was looked at.

    ``letters`` are lines: a whole file, or a single record of one.
    """

    objects: int = 0
    letters: int = 0
    records: int = 0
    bytes: int = 0
    newest_ts: float | None = None
    complete: bool = True


def counted(dlq: Storage, found: Iterable[DeadLetterObject]) -> Counted:
    """Count the letters of these objects. Raises `StorageError`."""
    objects = letters = records = size = 0
    newest: float | None = None
    for each in found:
        if objects == OBJECTS_COUNTED or size + each.size > BYTES_COUNTED:
            return Counted(objects, letters, records, size, newest, complete=False)
        lines = lines_of(dlq, each)
        objects, letters, size = objects + 1, letters + lines, size + each.size
        records += lines if each.kind == "records" else 0
        newest = each.modified if newest is None else max(newest, each.modified)
    return Counted(objects, letters, records, size, newest)


def lines_of(dlq: Storage, found: DeadLetterObject) -> int:
    """Count the letters of one object; a block of it is in memory at a time."""
    lines, blank = 0, True
    try:
        with closing(dlq.open_input(found.path)) as stream:
            for piece in letter_lines(stream):
                blank = blank and not piece.strip()
                if piece.endswith(b"\n"):
                    lines, blank = lines + (not blank), True
    except NotFound:  # put away meanwhile
        return 0
    return lines + (not blank)

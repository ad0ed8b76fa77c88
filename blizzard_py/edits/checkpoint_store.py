"""A source's checkpoint in storage: read it, replace it by hand, list its backups.

Needs neither the source nor its connection.

A manual change keeps a backup as ``…_checkpoint.json.epoch-{n}.bak``, and a note beside it as
``….bak.note.json``::

    {"by": "ann@ops-3", "at": 1706450400.0, "why": "the vendor sent a day again", "number": 3}

Then one conditional write replaces exactly the version that was shown, in the next epoch. If a
daemon saved meanwhile, the change is refused and the daemon goes on; otherwise the daemon is
fenced: its next save is refused.

Backups are ordered by a counter in their notes. The store's clock may be set back, and epochs start
again after a checkpoint was lost.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import load, parsed
from blizzard_core.checkpoint.fenced_writer import FencedFile, writer_of
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.errors import (
    BlizzardError,
    Conflict,
    FencedError,
    NotFound,
    StateError,
    Unavailable,
)
from blizzard_core.storage.protocol import Entry, Storage, listed
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.checkpoint_file import with_journal_names
from blizzard_py.state.source_state import SourceState, checkpoint_path

NOW = "now"
_NOTE = ".note.json"
# The number of stored copies of earlier checkpoints.
COPIES_KEPT = 50


class EditRefused(BlizzardError):
    """The checkpoint is not changed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Note:
    """The person who replaced the checkpoint, the time (epoch seconds) and the reason.

    ``number`` counts the backups; 0 without a count.
    """

    by: str
    at: float
    why: str = ""
    number: int = 0


def current_user() -> str:
    """Return the user and the machine, as far as they have names."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container's user may have none
        return socket.gethostname()


def write_note(sink: Storage, backup: str, note: Note) -> None:
    """Keep it; durable on return. Raises `StorageError`."""
    data = json.dumps(asdict(note), ensure_ascii=False).encode("utf-8", "backslashreplace")
    sink.put_atomic(f"{backup}{_NOTE}", data)


def note_of(sink: Storage, backup: str) -> Note | None:
    """Return the note of a copy; None without one. Raises `StateError`."""
    return load(sink, f"{backup}{_NOTE}", partial(decode_document, Note))


def drop(sink: Storage, backup: str) -> None:
    """Remove a copy, and its note after it."""
    sink.delete(backup)
    sink.delete(f"{backup}{_NOTE}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it is in storage; without a file everything but ``state`` is None.

    One that is no JSON has no ``document``; its ``state`` is unknown, too.
    """

    state: SourceState
    raw: bytes | None = None
    version: str | None = None
    writer: Writer | None = None
    document: Any = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy with its note, None if there is none; ``error`` is why it cannot be read."""

    entry: Entry
    note: Note | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A checkpoint by its ``name``: it was the source's until ``until`` (None: it is).

    With an ``error`` it cannot be restored, and its state is unknown.
    """

    name: str
    path: str
    until: float | None
    writer: Writer | None = None
    state: SourceState = field(default_factory=SourceState)
    note: Note | None = None
    error: str = ""


class CheckpointStore:
    """The checkpoint of one source."""

    def __init__(self, sink: Storage, source_id: str) -> None:
        self._sink = sink
        self._id = source_id
        self.path = checkpoint_path(source_id)
        self.where = f"{sink.uri}/{self.path}"

    def load(self) -> Stored:
        """Return the checkpoint with the names in grace. Raises `StateError`, `StorageError`."""
        seen = self.read()
        if seen.raw is not None and seen.document is None:
            parsed(seen.raw, self.where)  # says what is wrong with it
        return replace(seen, state=with_journal_names(self._sink, self._id, seen.state))

    def read(self) -> Stored:
        """Return the checkpoint as it was saved, damaged or not.

        Raises `StateError` for one that this release does not know, `StorageError`.
        """
        try:
            raw, version = self._sink.read_versioned(self.path)
        except NotFound:
            return Stored(SourceState())
        try:
            document = parsed(raw, self.where)
        except StateError:
            return Stored(SourceState(), raw, version)
        state, writer = state_from_json(document, self.where), writer_of(document, self.where)
        return Stored(state, raw, version, writer, document)

    def now(self) -> float:
        """Return the store's time in epoch seconds, of an object that is put for it and removed."""
        path = f"{self.path}.now"
        self._sink.put_atomic(path, b"")
        found = self._sink.stat(path)
        self._sink.delete(path)
        if found is None:
            raise Unavailable(
                f"{self._sink.uri}/{path}: vanished right after its write; run the command again"
            )
        return found.modified

    def swap(self, seen: Stored, after: SourceState, epoch: int, note: Note) -> str | None:
        """Replace the ``seen`` checkpoint by a state; return the path of the backup, if any.

        ``epoch`` is the new checkpoint's, the note's time that of the change. Raises `EditRefused`
        if the checkpoint is not the seen one: then nothing is changed and no daemon is fenced;
        `StorageError`.
        """
        copy, is_new = None, False
        if seen.raw is not None:
            copy, is_new = self._keep(seen.raw, epoch - 1, note)
        try:
            # What was changed by hand is not counted, so no partition may stay complete.
            # Files that come again must not be cleaned for their earlier batches.
            changed = replace(after, complete=None, cleaning=None)
            document = state_to_json(changed, note.at)
            FencedFile(self._sink, self.path).replace(document, seen.version, epoch)
        except FencedError as error:
            if copy is not None and is_new:
                drop(self._sink, copy)
            raise EditRefused(
                f"{self.where}: has changed since it was shown: a daemon is at work; look again, or"
                " stop the daemon first"
            ) from error
        return copy

    def copies(self) -> list[Copy]:
        """Return the copies, oldest first. Raises `StorageError`."""
        stem = f"{self.path}.epoch-"
        entries = listed(self._sink, stem, f"{stem}\U0010ffff")
        backups = (entry for entry in entries if entry.path.endswith(".bak"))
        return sorted(map(self._with_note, backups), key=_order)

    def _with_note(self, entry: Entry) -> Copy:
        try:
            return Copy(entry, note_of(self._sink, entry.path))
        except StateError as error:
            return Copy(entry, None, str(error))

    def _keep(self, raw: bytes, epoch: int, note: Note) -> tuple[str, bool]:
        """Copy a checkpoint; the copy's path, and whether there was none like it.

        One per epoch, never overwritten. The note gets the next number. The oldest copies go, and
        never this one.
        """
        known = self.copies()
        number = 1 + max((each.note.number for each in known if each.note is not None), default=0)
        copy = self._put(raw, epoch)
        write_note(self._sink, copy, replace(note, number=number))
        older = [each.entry.path for each in known if each.entry.path != copy]
        for old in older[: max(0, len(older) + 1 - COPIES_KEPT)]:
            drop(self._sink, old)
        return copy, len(older) == len(known)

    def _put(self, raw: bytes, epoch: int) -> str:
        copy = f"{self.path}.epoch-{epoch}.bak"
        number = 1
        while True:
            try:
                self._sink.put_if(copy, raw, None)
            except Conflict:
                if self._sink.read(copy) == raw:
                    return copy
                number += 1
                copy = f"{self.path}.epoch-{epoch}-{number}.bak"
            else:
                return copy

    def versions(self) -> Iterator[Version]:
        """Yield the newest first, beginning with the checkpoint as it is. Raises `StorageError`.

        A damaged version is yielded with its error; the others are not affected.
        """
        yield self._version(NOW, self.path, None)
        for each in reversed(self.copies()):
            path, until = each.entry.path, each.entry.modified
            name = path.removeprefix(f"{self.path}.").removesuffix(".bak")
            found = self._version(name, path, until)
            # Without the note it is unknown what was published by then.
            yield replace(found, note=each.note, error=found.error or each.error)

    def _version(self, name: str, path: str, until: float | None) -> Version:
        where = f"{self._sink.uri}/{path}"
        try:
            if until is None:
                seen = self.load()
                return Version(name, path, None, seen.writer, seen.state)
            document = parsed(self._sink.read(path), where)
            return Version(
                name, path, until, writer_of(document, where), state_from_json(document, where)
            )
        except StateError as error:
            return Version(name, path, until, error=str(error))
        except NotFound:
            return Version(name, path, until, error=f"{where}: was removed meanwhile")

    def version(self, name: str) -> Version:
        """Return that version. Raises `EditRefused` if there is none, or it cannot be read."""
        known = []
        for found in self.versions():
            known.append(found.name)
            if found.name != name:
                continue
            if found.error:
                raise EditRefused(f"{name} cannot be read: {found.error}")
            return found
        raise EditRefused(f"there is no version {name!r}; there are: {', '.join(known)}")


def _order(found: Copy) -> tuple[int, float, str]:
    number = 0 if found.note is None else found.note.number
    return number, found.entry.modified, found.entry.path

"""One writer per state file: fencing by epoch and conditional writes.

Each start of a daemon takes the file over: it raises ``writer.epoch`` and writes its own id. From
then on every save replaces exactly the version that this writer saved last, in one conditional
request. A daemon that was replaced (paused, cut off, started twice) is refused at its next save,
before it can move a watermark. It stops with `FencedError` and changes nothing.

A take-over always writes, also when this process takes its own file again after an error. So a
timed-out write of its own that is still on its way is refused when it arrives. State of an older
epoch was written by a process that cannot save any more.

Fencing keeps rows right whatever starts. It does not keep a healthy daemon running, so a start may
first look at the writer (`blizzard_core.checkpoint.writer_identity`) and leave the file to it.

A refused save proves nothing: if the answer to a successful write is lost, its repetition is
refused too. So the file is read back, and the write counts as successful if its content is there.
If the file still has our id and epoch, nobody took it over, and the save is repeated.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import encode, parsed
from blizzard_core.checkpoint.writer_identity import (
    TakeoverPolicy,
    Writer,
    allow_takeover,
    this_process,
)
from blizzard_core.errors import Conflict, FencedError, NotFound, Unavailable
from blizzard_core.storage.protocol import Storage
from blizzard_core.text import json_value

T = TypeVar("T")

# Daemons that start at the same moment take the file from each other this often at most.
_TAKE_TRIES = 5
# A save that is refused over our own state is made again this often at most.
_SAVE_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Written:
    """The writer block that every state document has, whatever its format."""

    writer: Writer | None = None


class FencedFile:
    """A state file with this process as its only writer, or the knowledge that it is not."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        admission: TakeoverPolicy = allow_takeover,
        id_prefix: str = "",
    ) -> None:
        """Set the file and the policy that is asked before a take-over from another process.

        The writer's id begins with ``id_prefix``, by which others know whose writer it is.
        """
        self._storage = storage
        self._admission = admission
        self._path = path
        self._where = f"{storage.uri}/{path}"
        self._id = id_prefix + uuid.uuid4().hex[len(id_prefix) :]
        self._epoch: int | None = None
        self._version: str | None = None
        self._is_successor = False

    @property
    def is_successor(self) -> bool:
        """Return whether the first `take` followed a process that did not `release` the file."""
        return self._is_successor

    @property
    def epoch(self) -> int:
        """The epoch in which this process writes; 0 before `take`."""
        return self._epoch or 0

    def take(
        self,
        parse: Callable[[Any, str], T],
        fresh: Callable[[], Mapping[str, Any]],
        least: int = 0,
    ) -> T | None:
        """Take the file over and return its state; None if there was no file.

        If there is no file, ``fresh`` returns the first document or raises. It is called late,
        because the file may disappear at any moment. Every call raises the epoch; later calls
        (after an error) first check that the file is still ours. The epoch is above ``least``, an
        epoch taken before, even if an older file came back. Raises `FencedError`, `StateError`,
        `StorageError`.
        """
        seen: set[str | None] = set()
        for _ in range(_TAKE_TRIES):
            try:
                raw, version = self._storage.read_versioned(self._path)
            except NotFound:
                raw, version = None, None
            document = None if raw is None else parsed(raw, self._where)
            found = None if document is None else writer_of(document, self._where)
            # The current writer is checked first: it may be a newer release with its own format.
            # A later epoch under our id is our own write whose answer was lost.
            if self._epoch is not None and (found is None or found.id != self._id):
                raise self._fenced(found)
            if self._epoch is None and found is not None:
                self._admit(found)
                self._is_successor = not found.released
            state = None if document is None else parse(document, self._where)
            epoch = max(least, 0 if found is None else found.epoch) + 1
            self._version = version  # not earlier: a writer refused above must not write here again
            try:
                self._put({**(fresh() if document is None else document)}, epoch)
            except Conflict:
                seen.add(version)
                continue
            self._epoch = epoch
            return state
        if len(seen) == 1:
            raise self._refused()
        raise FencedError(f"{self._where}: others take it over again and again; this one stops")

    def replace(self, document: Mapping[str, Any], version: str | None, epoch: int) -> None:
        """Replace exactly the ``version`` that was read; None: create the file.

        For tools that rebuild an unreadable state, and for a single manual change. It is written in
        ``epoch`` and released: the tool writes nothing more. Raises `FencedError` if the file
        changed.
        """
        self._version = version
        try:
            self._put(document, epoch, released=True)
        except Conflict:
            raise self._fenced(self._stored()) from None

    def now(self) -> float:
        """Return the store's time of the last save (epoch seconds). Call it right after `take`.

        Raises `FencedError` if the file is gone, `StorageError`.
        """
        found = self._storage.stat(self._path)
        if found is None:
            raise self._fenced(None)
        return found.modified

    def check(self) -> None:
        """Raise `FencedError` if another writer took the file over since `take`; `StorageError`.

        A replaced daemon calls it when objects are missing, since its successor may have removed
        them.
        """
        if self._epoch is None:
            return
        found = self._stored()
        if found is None or found.id != self._id:
            raise self._fenced(found)

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the state, whole and durable. Raises `FencedError` if it is not ours any more."""
        if self._epoch is None:
            raise FencedError(f"{self._where}: was not taken before it was saved")
        try:
            self._put(document, self._epoch)
        except Conflict:
            raise self._fenced(self._stored()) from None

    def release(self) -> None:
        """Mark in the file that this process writes no more; keep the rest of its content.

        So the next process need not guess whether a remote process still runs. Does nothing if
        another writer took the file over. Raises `StorageError`.
        """
        if self._epoch is None:
            return
        try:
            raw, version = self._storage.read_versioned(self._path)
            document = json_value(raw)
        except (NotFound, ValueError):
            return
        found = writer_of(document, self._where)
        if found is None or (found.id, found.epoch) != (self._id, self._epoch):
            return
        self._version = version
        with contextlib.suppress(Conflict):  # a writer that came first needs no release of ours
            self._put(document, self._epoch, released=True)
        self._epoch = None

    def _put(self, document: Mapping[str, Any], epoch: int, *, released: bool = False) -> None:
        """Write the document with this writer in it; a refusal caused by our own write is ignored.

        Raises `Conflict` if another wrote, `Unavailable` if the store refuses without that.
        """
        data = encode({**document, "writer": self._writer(epoch, released=released)})
        for _ in range(_SAVE_TRIES):
            try:
                self._version = self._storage.put_if(self._path, data, self._version)
            except Conflict:
                try:
                    raw, version = self._storage.read_versioned(self._path)
                except NotFound:
                    raw, version = b"", ""
                if raw != data and not self._wrote(raw, epoch):
                    raise
                self._version = version
                if raw == data:
                    return
            else:
                return
        raise self._refused()

    def _refused(self) -> Unavailable:
        return Unavailable(
            f"{self._where}: the store refuses to replace it again and again, though nobody else"
            " has written it; it is tried again, see whether the server honours If-Match"
        )

    def _wrote(self, raw: bytes, epoch: int) -> bool:
        """Return whether these bytes are a save of this process, in this epoch."""
        try:
            found = writer_of(json_value(raw), self._where)
        except ValueError:
            return False
        return found is not None and (found.id, found.epoch) == (self._id, epoch)

    def _writer(self, epoch: int, *, released: bool) -> dict[str, Any]:
        found = asdict(Writer(self._id, epoch, this_process(), released))
        return found if released else {k: v for k, v in found.items() if k != "released"}

    def _admit(self, found: Writer) -> None:
        try:
            self._admission(found)
        except FencedError as error:
            raise FencedError(f"{self._where}: {error}") from None

    def _stored(self) -> Writer | None:
        try:
            return writer_of(json_value(self._storage.read(self._path)), self._where)
        except (NotFound, ValueError):
            return None

    def _fenced(self, found: Writer | None) -> FencedError:
        own_writer = f"(ours: {self._id}, epoch {self._epoch})"
        if found is None:
            return FencedError(
                f"{self._where}: was removed or overwritten by something else than a daemon, while"
                f" this daemon ran {own_writer}. It stops; the next start looks for earlier work"
            )
        return FencedError(
            f"{self._where}: has been taken over by {found} {own_writer}. Only one daemon may run"
            " this pipeline; this one stops"
        )


def writer_of(document: Any, where: str) -> Writer | None:
    """Return the writer named in a state document; None if it was never fenced."""
    return decode_document(_Written, document, where, open_=True).writer

"""Mailbox of a source: requests from commands to the owner, through storage alone.

::

    _blizzard/requests/{source id}/bell                      hint that something is new
    _blizzard/requests/{source id}/7f3a9c2e.1.json           created once, by a command
    _blizzard/requests/{source id}/7f3a9c2e.1.cancel.json    created once, by a command
    _blizzard/requests/{source id}/7f3a9c2e.1.ended.json     by the owner, after its save

A command may die, or lose an answer, at any step: given again it finds its own request by the
digest in the name. The bell only saves listings. An owner that misses it finds the request when
it next lists the mailbox.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from blizzard_core.errors import Conflict, NotFound, StorageError
from blizzard_core.limits import REQUEST_BYTES, REQUEST_CHARACTERS
from blizzard_core.storage.protocol import Entry, Storage, listed
from blizzard_core.text import shortened
from blizzard_py.requests.codec import RequestInvalid, encode_document
from blizzard_py.requests.document import (
    Cancel,
    End,
    Request,
    digest,
    inputs,
    record_of,
    request_of,
)
from blizzard_py.requests.progress import RequestState, is_over
from blizzard_py.requests.report import (
    ReportLine,
    batch_of,
    current_names,
    lines_of,
    lines_to_bytes,
)

T = TypeVar("T")

REQUESTS_FOLDER = "_blizzard/requests"

REQUEST, CANCEL, ENDED = ".json", ".cancel.json", ".ended.json"

# With its endings it stays a name that every store takes.
_ID = re.compile(r"[0-9a-f]{8}\.[1-9][0-9]{0,17}")
_NAME = re.compile(rf"(?P<id>{_ID.pattern})(?P<rest>[./].+)", re.DOTALL)

# Objects by the id of their request and the rest of their name.
Found = dict[str, dict[str, Entry]]

# A bell holds a UUID. One that somebody made by hand counts by its beginning.
_BELL_BYTES = 64
# Numbers that other commands may take while one looks for its own.
_NUMBERS_TRIED = 20
_NONE: Mapping[str, RequestState] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Contents:
    """Ids in the mailbox, by digest and number.

    ``open`` have no end record, ``ended`` have one, ``cancelled`` are the open ones with a
    cancellation.
    """

    open: tuple[str, ...]
    cancelled: frozenset[str]
    ended: tuple[str, ...]


def check_id(request_id: str) -> str:
    """Return an id that is one: no path can be made of it. Raises `RequestInvalid`."""
    if _ID.fullmatch(request_id) is None:
        raise RequestInvalid(f"{request_id!r} is no id of a request; list the requests")
    return request_id


def number_of(request_id: str) -> int:
    """Return the count at the end of an id."""
    return int(request_id.partition(".")[2])


def group_objects(entries: Iterable[Entry], folder: str) -> Found:
    """Return the objects of each request, ordered by digest and number, without foreign ones."""
    found: Found = {}
    for entry in entries:
        match = _NAME.fullmatch(entry.path.removeprefix(f"{folder}/"))
        if match is not None:
            found.setdefault(match["id"], {})[match["rest"]] = entry
    return {each: found[each] for each in sorted(found, key=_order)}


def contents_of(found: Found) -> Contents:
    """Return which requests are open, cancelled and ended."""
    ended = tuple(each for each, entries in found.items() if ENDED in entries)
    is_open = tuple(
        e for e, entries in found.items() if REQUEST in entries and ENDED not in entries
    )
    return Contents(is_open, frozenset(e for e in is_open if CANCEL in found[e]), ended)


def last_number(found: Found) -> int:
    """Return the highest number in use, 0 if there is none.

    A cancellation uses its number even without a request: it must never meet a new one.
    """
    used = {REQUEST, CANCEL, ENDED}
    return max(
        (number_of(each) for each, entries in found.items() if used & set(entries)), default=0
    )


def _order(request_id: str) -> tuple[str, int]:
    return request_id.partition(".")[0], number_of(request_id)


class Mailbox:
    """The mailbox of one source. Every method may raise `StorageError`."""

    def __init__(self, sink: Storage, source_id: str) -> None:
        self._sink = sink
        self._folder = f"{REQUESTS_FOLDER}/{source_id}"

    def submit(
        self,
        request: Request,
        known: Mapping[str, RequestState] = _NONE,
        *,
        once_more: bool = True,
    ) -> tuple[str, bool]:
        """Put a request and ring; return its id and whether it is new.

        An equal one is followed while it is open and not cancelled. Without ``once_more`` one that
        was cancelled or has ended is followed as well. ``known`` are those that the checkpoint
        mentions: an id is never given again, even if the mailbox was emptied or is another one
        since, or what was done would count for what is new. Raises `RequestInvalid` if the owner
        would refuse the document.
        """
        raw = encode_document(request)
        request_of(raw, f"{request.kind} for {self._folder}", "correct the command")
        stem = digest(request)
        found = self._found(f"{stem}.")
        contents = contents_of(found)
        over = {each for each, state in known.items() if is_over(state.state)}
        same = [e for e in contents.open if e not in contents.cancelled and e not in over]
        if not once_more:
            others = reversed((*contents.ended, *contents.open))
            same += [each for each in others if each not in same]
        for each in same:
            if self._is_equal(each, request):
                return self._followed(each)
        used = (number_of(each) for each in known if each.startswith(f"{stem}."))
        first = max(last_number(found), *used, 0) + 1
        for number in range(first, first + _NUMBERS_TRIED):
            request_id = f"{stem}.{number}"
            try:
                self._sink.put_if(self._path(request_id, REQUEST), raw, None)
            except Conflict:
                # Another command's, or this one's whose answer was lost.
                if self._is_equal(request_id, request):
                    return self._followed(request_id)
            else:
                self.ring()
                return request_id, True
        raise Conflict(
            f"{self._sink.uri}/{self._folder}: other commands took every number that was tried, the"
            f" last {request_id}; give the command again"
        )

    def _followed(self, request_id: str) -> tuple[str, bool]:
        # Whoever put it may have died before ringing.
        self.ring()
        return request_id, False

    def _is_equal(self, request_id: str, request: Request) -> bool:
        try:
            return inputs(self.read(request_id)) == inputs(request)
        except (RequestInvalid, NotFound):
            return False

    def ring(self) -> None:
        """Tell the owner that something is new."""
        self._sink.put_atomic(f"{self._folder}/bell", str(uuid.uuid4()).encode())

    def bell(self) -> str:
        """Return a text that changes with each ring, empty before the first."""
        try:
            return self._read(f"{self._folder}/bell", _BELL_BYTES).decode("utf-8", "replace")
        except NotFound:
            return ""

    def contents(self) -> Contents:
        """Return the ids in the mailbox, from one listing; foreign objects are left out."""
        return contents_of(self._found(""))

    def read(self, request_id: str) -> Request:
        """Return a request. Raises `RequestInvalid`, `NotFound`."""
        return request_of(*self._document(request_id, REQUEST))

    def readable(self, request_id: str) -> Request | None:
        """Return a request, None where it cannot be understood or is gone."""
        try:
            return self.read(request_id)
        except (RequestInvalid, NotFound):
            return None

    def cancel(self, request_id: str, by: str, at: str, why: str) -> None:
        """Ask the owner to cancel a request, readable or not; the first cancellation stays.

        Raises `RequestInvalid` for what is no id, `NotFound` if there is no such request.
        """
        path = self._path(request_id, REQUEST)
        if self._sink.stat(path) is None:
            raise NotFound(f"{self._sink.uri}/{path}: there is no such request; list the requests")
        limit = REQUEST_CHARACTERS
        cancel = Cancel(by=shortened(by, limit), at=at, why=shortened(why, limit))
        with suppress(Conflict):
            self._sink.put_if(self._path(request_id, CANCEL), encode_document(cancel), None)
        self.ring()

    def is_cancelled(self, request_id: str) -> bool:
        """Return whether a request has a cancellation, readable or not."""
        return self._sink.stat(self._path(request_id, CANCEL)) is not None

    def cancellation(self, request_id: str) -> Cancel | None:
        """Return the cancellation of a request, None without one. Raises `RequestInvalid`."""
        return self._record(Cancel, request_id, CANCEL)

    def end(self, request_id: str, record: End) -> None:
        """Put the end record.

        Only after the save that ended the request: an owner that was replaced must not end what
        its successor runs.
        """
        self._sink.put_atomic(self._path(request_id, ENDED), encode_document(record))

    def end_record(self, request_id: str) -> End | None:
        """Return the end record, None of a request without one. Raises `RequestInvalid`."""
        return self._record(End, request_id, ENDED)

    def put_report(self, request_id: str, name: str, lines: Iterable[ReportLine]) -> None:
        """Put a part of a request's report, under a name of `blizzard_py.requests.report`."""
        path = f"{self._folder}/{check_id(request_id)}/{name}"
        self._sink.put_atomic(path, lines_to_bytes(lines))

    def report(self, request_id: str) -> Iterator[ReportLine]:
        """Yield the lines of a request's report: what was selected first, outcomes behind.

        Raises `RequestInvalid`.
        """
        folder = f"{self._folder}/{check_id(request_id)}/"
        entries = listed(self._sink, folder, f"{folder}\U0010ffff")
        found = {entry.path.removeprefix(folder): entry for entry in entries}
        for name in current_names(found):
            yield from self.lines(found[name])

    def outcomes(self) -> Iterator[tuple[str, Entry]]:
        """Yield the batches that reported outcomes to a request, with the object of each."""
        for entries in self._found("").values():
            for rest, entry in entries.items():
                batch = batch_of(rest.removeprefix("/"))
                if batch is not None:
                    yield batch, entry

    def lines(self, entry: Entry) -> Iterator[ReportLine]:
        """Yield the lines of one object of a report. Raises `RequestInvalid`."""
        yield from lines_of(self._sink.read(entry.path), f"{self._sink.uri}/{entry.path}")

    def prune(self, before: float) -> list[str]:
        """Remove requests whose end record is older than a time of the store; return their ids.

        All objects of a request go, and the end record last: without it the request would count
        as open.
        """
        expired = []
        for request_id, entries in self._found("").items():
            record = entries.pop(ENDED, None)
            if record is not None and record.modified < before:
                for entry in (*entries.values(), record):
                    self._sink.delete(entry.path)
                expired.append(request_id)
        return expired

    def _found(self, stem: str) -> Found:
        start = f"{self._folder}/{stem}"
        return group_objects(listed(self._sink, start, f"{start}\U0010ffff"), self._folder)

    def _path(self, request_id: str, suffix: str) -> str:
        return f"{self._folder}/{check_id(request_id)}{suffix}"

    def _record(self, kind: type[T], request_id: str, suffix: str) -> T | None:
        try:
            return record_of(kind, *self._document(request_id, suffix))
        except NotFound:
            return None

    def _document(self, request_id: str, suffix: str) -> tuple[bytes, str]:
        path = self._path(request_id, suffix)
        return self._read(path, REQUEST_BYTES + 1), f"{self._sink.uri}/{path}"

    def _read(self, path: str, limit: int) -> bytes:
        """Return an object, but no more than a limit of bytes."""
        try:
            return self._sink.read_range(path, 0, limit)
        except NotFound:
            raise
        except StorageError:
            # Object stores have no range of an empty object.
            found = self._sink.stat(path)
            if found is None or found.size:
                raise
            return b""

"""Requests of operators, wired: how sources do them, and how a command has one done.

A command writes its request and rings. Where a daemon works on the source it is the daemon's to do,
and the command follows. Where nobody does, since the writer released the checkpoint or is a process
of this machine that is gone, the command does it itself, in one conditional write.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from blizzard_core.checkpoint.writer import Writer, is_running
from blizzard_core.errors import NotFound, StateError, StorageError
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_py.app.request_effects import effects_of, fingerprint_of
from blizzard_py.app.wiring import NoEngine, owner_parts, source_pipeline
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import CheckpointStore, EditRefused, Stored
from blizzard_py.edits.notes import Note, whoever
from blizzard_py.ingest.request_runner import decide_request, end_record
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.document import Kind, Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState, is_over
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.stale import require_current, world_of
from blizzard_py.state.checkpoint_file import read_state

# A daemon listens this often at least, in seconds (`blizzard_core.daemon.CALL_SECS`), and a command
# waits for two turns of it and some time before it leaves the request alone.
_PATIENCE_SECS = 150.0
_LOOK_SECS = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A command's waiting: ``sleep`` between looks, ``clock`` in epoch seconds, ``tell`` a line."""

    sleep: Callable[[float], None]
    clock: Callable[[], float]
    tell: Callable[[str], None]
    wait: bool = True
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The end of a request: ``state`` is that of `RequestState`, ``open`` where nobody took it."""

    id: str
    state: str
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


def _request(parts: Parts, kind: Kind, select: Mapping[str, Any], why: str, now: float) -> Request:
    """Return a request of whoever runs this process."""
    return Request(
        kind=kind,
        select=select,
        options={},
        config=fingerprint_of(parts),
        by=whoever(),
        at=dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec="seconds"),
        why=redacted(why),
        release=version("blizzard-penguin"),
    )


def submit_and_follow(
    config: Config,
    where: tuple[str, str],
    kind: Kind,
    select: Mapping[str, Any],
    why: str,
    waits: Waits,
) -> RequestResult:
    """Submit a request and see it done, by whoever owns the source; its end.

    Where nobody accepts it in time it stays, and its state is ``open``. Raises `EditRefused` where
    nothing was ingested yet, `StateError`, `StorageError`.
    """
    parts = owner_parts(config, where, NoEngine())
    store = CheckpointStore(parts.stores.sink, parts.id)
    seen = _load(parts, store)
    mailbox = Mailbox(parts.stores.sink, parts.id)
    request = _request(parts, kind, select, why, waits.clock())
    request_id, is_new = mailbox.submit(request, seen.state.requests)
    waits.tell(f"request {request_id} for {parts.name}{'' if is_new else ', made before'}")
    return _follow(parts, store, mailbox, request_id, waits)


def _load(parts: Parts, store: CheckpointStore) -> Stored:
    """Return the checkpoint. Raises `EditRefused` without one: it would be made from nothing."""
    seen = store.load()
    if seen.raw is None:
        raise EditRefused(f"{parts.name}: has no checkpoint; have it run once first")
    return seen


def _follow(
    parts: Parts, store: CheckpointStore, mailbox: Mailbox, request_id: str, waits: Waits
) -> RequestResult:
    began, told = waits.clock(), ""
    while True:
        # The checkpoint first: what lacks its end after that was not done before that, and a write
        # in the place of what was seen is refused if somebody does it since.
        seen = _load(parts, store)
        end = mailbox.ended(request_id)
        if end is not None:
            return RequestResult(request_id, end.state, end.reason, end.counts)
        known = seen.state.requests.get(request_id)
        if known is not None and is_over(known.state):
            return RequestResult(request_id, known.state, known.reason, known.counts)
        reason = "" if known is None else known.reason
        if waits.take_over or seen.writer is None or is_running(seen.writer) is False:
            reason = _do_here(parts, seen, mailbox, request_id, waits.clock())
            if not reason:
                continue
            if store.load().raw == seen.raw:  # there is nobody to wait for
                return RequestResult(request_id, "open" if known is None else known.state, reason)
        elif not told:
            told = _owner(seen.writer)
            waits.tell(f"{told} does it; following. Ctrl-C ends following, not the request.")
        if not waits.wait or waits.clock() - began > _PATIENCE_SECS:
            return RequestResult(request_id, "open" if known is None else known.state, reason)
        waits.sleep(_LOOK_SECS)


def _owner(writer: Writer) -> str:
    found = writer.process
    return "the daemon" if found is None else f"the daemon on {found.host} (pid {found.pid})"


def _do_here(parts: Parts, seen: Stored, mailbox: Mailbox, request_id: str, now: float) -> str:
    """Do the request as the source's owner, or cancel it; why it could not be, empty if it was.

    A daemon that started meanwhile refuses the write, and has the request to do then.
    """
    found = source_pipeline(parts)
    effects = effects_of(parts, found.source)
    after = seen.state
    try:
        require_current(seen.state, parts, world_of(parts, seen.state))
        is_cancelled = mailbox.is_cancelled(request_id)
        after = decide_request(
            mailbox, effects, seen.state, request_id, now, is_cancelled=is_cancelled
        )
        known = after.requests.get(request_id)
        if known is None:
            return "it was removed from the mailbox; give the command again"
        if after.requests == seen.state.requests:
            return known.reason  # it waits, as before
        request = _readable(mailbox, request_id)
        said = "" if request is None or not request.why else f", {request.why}"
        why = f"request {request_id}: {known.kind} {known.state}{said}"
        # As it is: `change` would take a source that has done nothing yet for one that starts over.
        checkpoint_edit.put(found, seen, after, Note(whoever(), now, why))
    except (EditRefused, StateError) as error:
        return str(error)
    finally:
        found.close()
    end = end_record(known)
    if end is None:
        return known.reason
    with suppress(StorageError):  # the checkpoint says it, and the next daemon records it
        mailbox.end(request_id, end)
    return ""


@dataclass(frozen=True, slots=True)
class ListedRequest:
    """A request of a source, as people see it; ``request`` is None where it cannot be read."""

    source: str
    id: str
    request: Request | None
    state: str
    reason: str
    counts: Mapping[str, int]


def find_requests(config: Config) -> Iterator[ListedRequest]:
    """Yield the requests of every source: those that are open, then those that ended.

    Raises `StateError`, `StorageError`.
    """
    for parts in _owners(config):
        yield from find_open_requests(parts)
        mailbox = Mailbox(parts.stores.sink, parts.id)
        for request_id in mailbox.contents().ended:
            request = _readable(mailbox, request_id)
            try:
                end = mailbox.ended(request_id)
            except RequestInvalid as error:
                yield ListedRequest(parts.name, request_id, request, "ended", str(error), {})
                continue
            if end is not None:
                yield ListedRequest(
                    parts.name, request_id, request, end.state, end.reason, end.counts
                )


def find_open_requests(parts: Parts) -> Iterator[ListedRequest]:
    """Yield the requests that a source, or who shares its checkpoint, has still to do.

    Raises `StateError`, `StorageError`.
    """
    mailbox = Mailbox(parts.stores.sink, parts.home_id)
    found = mailbox.contents()
    stored = read_state(parts.stores.sink, parts.home_id) if found.open else None
    known = {} if stored is None else stored.requests
    for request_id in found.open:
        state = known.get(request_id)
        reason = "" if state is None else state.reason
        if request_id in found.cancelled and (state is None or not is_over(state.state)):
            reason = "cancelled; the source's next poll records it"
        yield ListedRequest(
            parts.name,
            request_id,
            _readable(mailbox, request_id),
            "open" if state is None else state.state,
            reason,
            {} if state is None else state.counts,
        )


def cancel_request(config: Config, request_id: str, why: str, now: float) -> RequestResult:
    """Have a request not be done, if nobody has done it yet. Raises `EditRefused`, `StorageError`.

    Needs neither the source nor the configuration that the request was made for.
    """
    for parts in _owners(config):
        mailbox = Mailbox(parts.stores.sink, parts.id)
        contents = mailbox.contents()
        if request_id in contents.ended:
            end = mailbox.ended(request_id)
            raise _over(request_id, "gone" if end is None else end.state)
        if request_id in contents.open:
            at = dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec="seconds")
            mailbox.cancel(request_id, whoever(), at, redacted(why))
            # Read last, or what is done meanwhile would count as cancelled.
            known = _known(parts).get(request_id)
            if known is not None and is_over(known.state) and known.state != "cancelled":
                raise _over(request_id, known.state)
            return RequestResult(request_id, "cancelled")
    raise EditRefused(f"there is no request {request_id}; `blizzard requests list` names them")


def _over(request_id: str, state: str) -> EditRefused:
    return EditRefused(f"{request_id}: is over already: {state}")


def _known(parts: Parts) -> Mapping[str, RequestState]:
    """Return what the checkpoint says of requests: nothing where it is gone or damaged."""
    try:
        found = read_state(parts.stores.sink, parts.id)
    except StateError:
        return {}
    return {} if found is None else found.requests


def _owners(config: Config) -> Iterator[Parts]:
    """The parts of each checkpoint's owner, once."""
    seen = set()
    for pipeline, settings in config.pipelines.items():
        for source in settings.sources:
            parts = owner_parts(config, (pipeline, source), NoEngine())
            if parts.id not in seen:
                seen.add(parts.id)
                yield parts


def _readable(mailbox: Mailbox, request_id: str) -> Request | None:
    try:
        return mailbox.read(request_id)
    except (RequestInvalid, NotFound):
        return None

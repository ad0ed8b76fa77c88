"""Requests of operators, as people see them: listed, and cancelled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blizzard_core.errors import StateError
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_py.app.wiring import owner_context, owners
from blizzard_py.edits.checkpoint_store import EditRefused, current_user
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.document import Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestResult, RequestState, is_over
from blizzard_py.requests.report import ReportLine, latest_lines
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state


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
    """Yield the requests of every source: first open ones, then ended ones.

    Raises `StateError`, `StorageError`.
    """
    for parts in _owners(config):
        yield from find_open_requests(parts)
        mailbox = Mailbox(parts.stores.sink, parts.id)
        for request_id in mailbox.contents().ended:
            request = mailbox.readable(request_id)
            try:
                end = mailbox.end_record(request_id)
            except RequestInvalid as error:
                yield ListedRequest(parts.name, request_id, request, "ended", str(error), {})
                continue
            if end is not None:
                yield ListedRequest(
                    parts.name, request_id, request, end.state, end.reason, end.counts
                )


def read_report(config: Config, found: ListedRequest) -> list[ReportLine]:
    """Return the outcome of each file of a request. Raises `RequestInvalid`, `StorageError`."""
    for parts in _owners(config):
        if parts.name == found.source:
            return latest_lines(Mailbox(parts.stores.sink, parts.id).report(found.id))
    return []


def find_open_requests(parts: SourceContext) -> Iterator[ListedRequest]:
    """Yield the open requests of a source, or of the one that shares its checkpoint.

    Raises `StateError`, `StorageError`.
    """
    mailbox = Mailbox(parts.stores.sink, parts.home_id)
    found = mailbox.contents()
    stored = read_state(parts.stores.sink, parts.home_id) if found.open else None
    known = {} if stored is None else stored.work.requests
    for request_id in found.open:
        state = known.get(request_id)
        reason = "" if state is None else state.reason
        if request_id in found.cancelled and (state is None or not is_over(state.state)):
            reason = "cancelled; the source's next poll records it"
        yield ListedRequest(
            parts.name,
            request_id,
            mailbox.readable(request_id),
            "open" if state is None else state.state,
            reason,
            {} if state is None else state.counts,
        )


def cancel_request(config: Config, request_id: str, why: str, now: float) -> RequestResult:
    """Cancel a request unless it is done. Raises `EditRefused`, `StorageError`.

    Needs neither the source nor the configuration that the request was made for.
    """
    for parts in _owners(config):
        mailbox = Mailbox(parts.stores.sink, parts.id)
        contents = mailbox.contents()
        if request_id in contents.ended:
            end = mailbox.end_record(request_id)
            raise _over(request_id, "gone" if end is None else end.state)
        if request_id in contents.open:
            at = dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec="seconds")
            mailbox.cancel(request_id, current_user(), at, redacted(why))
            # Read last, or what is done meanwhile would count as cancelled.
            known = _known(parts).get(request_id)
            if known is not None and is_over(known.state) and known.state != "cancelled":
                raise _over(request_id, known.state)
            return RequestResult(request_id, "cancelled")
    raise EditRefused(f"there is no request {request_id}; `blizzard requests list` names them")


def _over(request_id: str, state: str) -> EditRefused:
    return EditRefused(f"{request_id}: is over already: {state}")


def _known(parts: SourceContext) -> Mapping[str, RequestState]:
    """Return what the checkpoint says of requests: nothing where it is gone or damaged."""
    try:
        found = read_state(parts.stores.sink, parts.id)
    except StateError:
        return {}
    return {} if found is None else found.work.requests


def _owners(config: Config) -> Iterator[SourceContext]:
    """Yield the parts of each checkpoint's owner, once."""
    return (owner_context(config, where) for where in owners(config))

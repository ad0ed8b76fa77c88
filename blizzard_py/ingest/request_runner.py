"""Operators' requests, executed by the owner of a source's checkpoint.

A request takes effect in the save that says that it did, so over any deaths it does so once. Its
end record is put after that save, from what it says; a request of which the checkpoint knows the
end is only recorded. Requests are taken between batches, before the source is looked at: so also
while its store or server is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from blizzard_core.errors import BlizzardError, NotFound, StorageError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.contents import Contents
from blizzard_py.requests.document import Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import (
    RequestState,
    State,
    first_running,
    is_over,
    with_page,
    with_state,
    without,
)
from blizzard_py.requests.records import End
from blizzard_py.requests.report import ReportLine, page_name
from blizzard_py.state.source_state import SourceState, queued, under_way
from blizzard_py.state.transitions import without_batch, without_request

# Looked for this often also where the bell was not heard, in seconds.
_LIST_SECS = 3600.0
# So many are read by one look: live work is not to wait for all that somebody may put there.
_AT_ONCE = 100
# No bell has this text: there is more to look for.
_MORE = "more"
# So many pages are read by one look, where nothing of them is to do.
_PAGES_AT_ONCE = 20
# So often a batch of a request is tried.
_ATTEMPTS = 3
_FAILING = (
    "its batch with {} ended three times without a result, by an error or the death of the process;"
    " the log says why. Mend that and give the command again: it leaves out what is in"
)
# A request and how it ended stay that long, in seconds of the store's clock.
_KEPT_SECS = 30 * 86_400.0


class RequestRefused(BlizzardError):
    """A request cannot be done by this source as it is; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The state with a request's effect, and what people are told of it, as counts.

    One that brings files is ``running`` from then on.
    """

    state: SourceState
    counts: Mapping[str, int]
    is_running: bool = False


@dataclass(frozen=True, slots=True)
class Selected:
    """A page of what a request selects: files to bring, and of all that were looked at a line.

    ``cursor`` is where the next page begins, and with ``is_last`` there is none. ``ahead`` are the
    files that this page and those before have taken before scans reach them, the last of each
    partition.
    """

    files: tuple[Entry, ...]
    lines: tuple[ReportLine, ...]
    cursor: str
    is_last: bool
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestEffects:
    """A source's way to do requests: their effects, and the fingerprint of what decides its rows.

    ``apply`` is pure but for what the source may be asked, and raises `RequestRefused`. So does
    ``select``, which reads the page of a selection that begins at a cursor, the first at ``""``;
    it writes nothing.
    """

    apply: Callable[[SourceState, Request, float], Applied]
    select: Callable[[SourceState, Request, str, float], Selected]
    config: str


def execute(
    effects: RequestEffects, state: SourceState, request_id: str, request: Request, now: float
) -> SourceState:
    """Return the state with a request done, or waiting for its configuration, or refused. Pure."""

    def noted(
        after: SourceState, end: State, reason: str, counts: Mapping[str, int] | None = None
    ) -> SourceState:
        known = with_state(state.requests, request_id, request.kind, end, reason, now, counts)
        return replace(after, requests=known)

    if request.config != effects.config:
        return noted(
            state,
            "waiting",
            "made with another configuration of this source; restart the daemon with it, or cancel"
            " the request",
        )
    try:
        done = effects.apply(state, request, now)
    except RequestRefused as error:
        return noted(state, "rejected", str(error))
    return noted(done.state, "running" if done.is_running else "done", "", done.counts)


def with_selected(state: SourceState, request_id: str, found: Selected, now: float) -> SourceState:
    """Return the state with a page of a request's files in the queue. Pure."""
    known = set(under_way(state))
    # Each once, also if the request names it twice.
    files = {entry.path: entry for entry in found.files if entry.path not in known}
    fresh = [queued(entry, request_id) for entry in files.values()]
    counts = Counter(line.state for line in found.lines)
    requests = with_page(
        state.requests, request_id, found.cursor, counts, now, is_read=found.is_last
    )
    ahead = found.ahead or state.ahead
    return replace(state, queue=(*state.queue, *fresh), requests=requests, ahead=ahead)


def failed(state: SourceState, request_id: str, reason: str, now: float) -> SourceState:
    """Return the state with a request given up; what it brought stays. Pure."""
    kind = state.requests[request_id].kind
    known = with_state(state.requests, request_id, kind, "failed", reason, now)
    return replace(without_request(state, request_id), requests=known)


def without_failing(state: SourceState, now: float) -> SourceState:
    """Return the state without a request whose batch has ended without a result too often. Pure.

    Whether its process died or its job failed: live work goes on.
    """
    for batch in state.in_flight:
        if batch.request and batch.phase == "running" and batch.attempt >= _ATTEMPTS:
            state = without_batch(state, batch)
            if batch.request in state.requests:
                state = failed(state, batch.request, _FAILING.format(batch.files[0].path), now)
    return state


def decide_request(
    mailbox: Mailbox,
    effects: RequestEffects,
    state: SourceState,
    request_id: str,
    now: float,
    *,
    is_cancelled: bool,
) -> SourceState:
    """Return the state with a request of the mailbox done, waiting, rejected or cancelled.

    One that is not there leaves it as it is. For whoever owns the source, a daemon or a command.
    Raises `StorageError`.
    """
    kind = ""

    def noted(end: State, reason: str) -> SourceState:
        known = with_state(state.requests, request_id, kind, end, reason, now)
        return replace(state, requests=known)

    try:
        request = mailbox.read(request_id)
        kind = request.kind
        if not is_cancelled:
            return execute(effects, state, request_id, request, now)
    except NotFound:
        return state
    except RequestInvalid as error:
        if not is_cancelled:
            return noted("rejected", str(error))
    cancelled = noted("cancelled", _why_cancelled(mailbox, request_id))
    return without_request(cancelled, request_id)


def _why_cancelled(mailbox: Mailbox, request_id: str) -> str:
    try:
        found = mailbox.cancellation(request_id)
    except RequestInvalid:
        return ""
    return "" if found is None else f"{found.why or 'no reason given'} ({found.by})"


def end_record(known: RequestState) -> End | None:
    """Return the record of a request that is over, None of another."""
    if known.state == "waiting" or known.state == "running":  # noqa: PLR1714  # it narrows the type
        return None
    return End(
        kind=known.kind,
        state=known.state,
        at=known.at,
        reason=known.reason,
        counts=dict(known.counts),
    )


class RequestRunner:
    """The requests of one source, as its owner sees them."""

    def __init__(
        self,
        mailbox: Mailbox,
        effects: RequestEffects,
        name: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """``clock`` tells epoch seconds, for people; ``monotonic`` when to look for requests."""
        self._mailbox = mailbox
        self._effects = effects
        self._clock = clock
        self._monotonic = monotonic
        self._heard: str | None = None
        self._listed = 0.0
        self._told = ""
        # What kept the last look from being whole.
        self.error: StorageError | None = None
        self._log = get_logger(source=name)

    def is_called(self) -> bool:
        """Return whether there may be something new since a look. Never raises: the next will."""
        try:
            return self._heard is not None and self._mailbox.bell() != self._heard
        except StorageError:
            return False

    def attend(
        self, state: SourceState, save: Callable[[SourceState], SourceState], epoch: int
    ) -> SourceState:
        """Do what was asked since, and go on with what runs; the state to go on with.

        No batch may be in flight. ``epoch`` is that of the checkpoint. A mailbox that cannot be
        read or written costs requests alone: they are looked for again by the next poll. Raises
        what ``save`` raises.
        """
        self.error = None
        state = self._look(state, save)
        for _ in range(_PAGES_AT_ONCE):
            running = first_running(state.requests)
            if not running or any(file.request == running for file in state.queue):
                break
            try:
                after = self._with_next_page(state, running, epoch)
            except StorageError as error:
                return self._go_on_without(state, error)
            state = save(after)
            try:
                self._record(state)
            except StorageError as error:
                return self._go_on_without(state, error)
        return state

    def _with_next_page(self, state: SourceState, request_id: str, epoch: int) -> SourceState:
        """The state with the next page of a request, whose report is written, or with its end."""
        known, now = state.requests[request_id], self._clock()
        if known.is_read:
            done = with_state(state.requests, request_id, known.kind, "done", "", now)
            self._log_state(request_id, done[request_id])
            return replace(state, requests=done)
        try:
            request = self._mailbox.read(request_id)
            found = self._effects.select(state, request, known.cursor, now)
        except (RequestRefused, RequestInvalid, NotFound) as error:
            after = failed(state, request_id, str(error), now)
            self._log_state(request_id, after.requests[request_id])
            return after
        self._mailbox.put_report(request_id, page_name(known.pages, epoch), found.lines)
        return with_selected(state, request_id, found, now)

    def _look(self, state: SourceState, save: Callable[[SourceState], SourceState]) -> SourceState:
        """What is new in the mailbox, done; and what has ended, recorded."""
        now, is_first = self._monotonic(), self._heard is None
        try:
            bell = self._mailbox.bell()
            if not is_first and bell == self._heard and now - self._listed < _LIST_SECS:
                return state
            contents = self._mailbox.contents()
        except StorageError as error:
            return self._go_on_without(state, error)
        after, failed = self._process_open(state, contents)
        state = after if after.requests == state.requests else save(after)
        try:
            self._record(state)
            if contents.ended and (is_first or now - self._listed >= _LIST_SECS):
                # Of each of them the mention went before, or it would stand for a new one.
                self._mailbox.prune(self._clock() - _KEPT_SECS)
        except StorageError as error:
            failed = error
        if failed is not None:
            return self._go_on_without(state, failed)
        # Only what was seen through is not looked for again.
        self._heard, self._listed, self._told = bell, now, ""
        if len(contents.open) > _AT_ONCE and any(e not in state.requests for e in contents.open):
            self._heard = _MORE
        return state

    def _process_open(
        self, state: SourceState, contents: Contents
    ) -> tuple[SourceState, StorageError | None]:
        """The state with all done that is open, and why one of them could not be read."""
        # What has its record needs no mention any more, nor what waits and was removed.
        gone = {each for each, known in state.requests.items() if known.state == "waiting"}
        gone = gone.difference(contents.open).union(contents.ended)
        state = replace(state, requests=without(state.requests, gone))
        failed = None
        # New ones first: those that wait are many only if somebody has made a mistake.
        for request_id in sorted(contents.open, key=state.requests.__contains__)[:_AT_ONCE]:
            is_cancelled = request_id in contents.cancelled
            try:
                state = self._process_one(state, request_id, is_cancelled=is_cancelled)
            except StorageError as error:
                failed = error
        return state, failed

    def _record(self, state: SourceState) -> None:
        for request_id, known in state.requests.items():
            end = end_record(known)
            if end is not None:
                self._mailbox.end(request_id, end)

    def _go_on_without(self, state: SourceState, error: StorageError) -> SourceState:
        """The state to go on with where the mailbox could not be seen through; say so once."""
        self.error = error
        if str(error) != self._told:
            self._told = str(error)
            self._log.warning("requests_unreadable", reason=self._told)
        return state

    def _process_one(
        self, state: SourceState, request_id: str, *, is_cancelled: bool
    ) -> SourceState:
        """The state with one request done, refused, cancelled, or waiting."""
        known = state.requests.get(request_id)
        if known is not None and (
            is_over(known.state) or (known.state == "running" and not is_cancelled)
        ):
            return state
        after = decide_request(
            self._mailbox,
            self._effects,
            state,
            request_id,
            self._clock(),
            is_cancelled=is_cancelled,
        )
        found = after.requests.get(request_id)
        if found is not None and found is not known:
            self._log_state(request_id, found)
        return after

    def _log_state(self, request_id: str, found: RequestState) -> None:
        log = self._log.bind(request=request_id, kind=found.kind)
        match found.state:
            case "done":
                log.info("request_done")
            case "cancelled":
                log.info("request_cancelled", reason=found.reason)
            case "rejected":
                log.warning("request_rejected", reason=found.reason)
            case "running":
                log.info("request_running")
            case "failed":
                log.error("request_failed", reason=found.reason)
            case "waiting":
                log.warning("request_waiting", reason=found.reason)

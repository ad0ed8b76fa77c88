"""Operators' requests, executed by the owner of a source's checkpoint.

A request takes effect in the save that says that it did, so over any deaths it does so once. Its
end record is put after that save, from what it says; a request of which the checkpoint knows the
end is only recorded. Requests are taken between batches, before the source is looked at: so also
while its store or server is down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from blizzard_core.errors import BlizzardError, NotFound, StorageError
from blizzard_core.log import get_logger
from blizzard_py.requests.document import Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState, State, is_over, with_state, without
from blizzard_py.requests.records import End
from blizzard_py.requests.stored import RequestInvalid
from blizzard_py.state.source_state import SourceState

# Looked for this often also where the bell was not heard, in seconds.
_LIST_SECS = 3600.0
# A request and how it ended stay that long, in seconds of the store's clock.
_KEPT_SECS = 30 * 86_400.0


class RequestRefused(BlizzardError):
    """A request cannot be done by this source as it is; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """The state with a request's effect, and what people are told of it, as counts."""

    state: SourceState
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Executor:
    """A source's way to do requests: their effects, and the fingerprint of what decides its rows.

    ``apply`` is pure but for what the source may be asked, and raises `RequestRefused`.
    """

    apply: Callable[[SourceState, Request, float], Done]
    config: str


def executed(
    executor: Executor, state: SourceState, request_id: str, request: Request, now: float
) -> SourceState:
    """Return the state with a request done, or waiting for its configuration, or refused. Pure."""

    def noted(
        after: SourceState, end: State, reason: str, counts: Mapping[str, int] | None = None
    ) -> SourceState:
        known = with_state(state.requests, request_id, request.kind, end, reason, now, counts)
        return replace(after, requests=known)

    if request.config and request.config != executor.config:
        return noted(
            state,
            "waiting",
            "made with another configuration of this source; restart the daemon with it, or cancel"
            " the request",
        )
    try:
        done = executor.apply(state, request, now)
    except RequestRefused as error:
        return noted(state, "rejected", str(error))
    return noted(done.state, "done", "", done.counts)


def end_of(known: RequestState) -> End | None:
    """Return the record of a request that is over, None of another."""
    if known.state == "waiting":
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
        executor: Executor,
        name: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """``clock`` tells epoch seconds, for people; ``monotonic`` when to look for requests."""
        self._mailbox = mailbox
        self._executor = executor
        self._clock = clock
        self._monotonic = monotonic
        self._heard: str | None = None
        self._listed = 0.0
        self._log = get_logger(source=name)

    def is_called(self) -> bool:
        """Return whether there may be something new. Never raises: the next cycle will."""
        try:
            return self._mailbox.bell() != self._heard
        except StorageError:
            return False

    def attend(self, state: SourceState, save: Callable[[SourceState], SourceState]) -> SourceState:
        """Do what was asked since; the state to go on with. No batch may be in flight.

        Raises `StorageError`, and what ``save`` raises.
        """
        bell, now = self._mailbox.bell(), self._monotonic()
        is_first = self._heard is None
        if not is_first and bell == self._heard and now - self._listed < _LIST_SECS:
            return state
        contents = self._mailbox.contents()
        before = state
        # What has its record needs no mention any more.
        state = replace(state, requests=without(state.requests, contents.ended))
        for request_id in contents.open:
            state = self._taken(state, request_id, cancelled=request_id in contents.cancelled)
        if state.requests != before.requests:
            state = save(state)
        for request_id, known in state.requests.items():
            end = end_of(known)
            if end is not None:
                self._mailbox.end(request_id, end)
        if is_first or now - self._listed >= _LIST_SECS:
            # Of each of them the mention went before, or it would stand for a new one of its name.
            self._mailbox.prune(self._clock() - _KEPT_SECS)
        # Only what was seen through is not looked for again.
        self._heard, self._listed = bell, now
        return state

    def _taken(self, state: SourceState, request_id: str, *, cancelled: bool) -> SourceState:
        """The state with one request done, refused, cancelled, or waiting."""
        known = state.requests.get(request_id)
        if known is not None and is_over(known.state):
            return state
        after = self._judged(state, request_id, cancelled=cancelled)
        found = after.requests.get(request_id)
        if found is not None and found is not known:
            self._tell(request_id, found)
        return after

    def _judged(self, state: SourceState, request_id: str, *, cancelled: bool) -> SourceState:
        now, kind = self._clock(), ""

        def noted(end: State, reason: str) -> SourceState:
            known = with_state(state.requests, request_id, kind, end, reason, now)
            return replace(state, requests=known)

        try:
            request = self._mailbox.read(request_id)
            kind = request.kind
            if not cancelled:
                return executed(self._executor, state, request_id, request, now)
        except NotFound:
            return state
        except RequestInvalid as error:
            if not cancelled:
                return noted("rejected", str(error))
        return noted("cancelled", self._why_cancelled(request_id))

    def _why_cancelled(self, request_id: str) -> str:
        try:
            found = self._mailbox.cancellation(request_id)
        except RequestInvalid:
            return ""
        return "" if found is None else f"{found.why or 'no reason given'} ({found.by})"

    def _tell(self, request_id: str, found: RequestState) -> None:
        log = self._log.bind(request=request_id, kind=found.kind)
        match found.state:
            case "done":
                log.info("request_done")
            case "cancelled":
                log.info("request_cancelled", reason=found.reason)
            case "rejected":
                log.warning("request_rejected", reason=found.reason)
            case "waiting":
                log.warning("request_waiting", reason=found.reason)

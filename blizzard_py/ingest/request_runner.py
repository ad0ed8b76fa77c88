"""Operators' requests, executed by the owner of a source's checkpoint.

A request takes effect in the save that says so, so it takes effect once over any deaths. Its end
record is written after that save, from its content. If the checkpoint already has the end of a
request, only the record is written.

Requests are processed between batches, before the source is polled, so they work while its store or
server is down. A request that ingests files goes a page at a time: the page's report is written,
one save queues its files, and batches ingest them. Then its letters are closed, and the next page
is read. One request ingests files at a time, the one that was accepted first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from blizzard_core.errors import (
    Cancelled,
    FencedError,
    NotFound,
    SourceError,
    StateError,
    StorageError,
)
from blizzard_core.log import get_logger
from blizzard_py.ingest.request_acceptance import (
    PageRequest,
    RequestEffects,
    RequestRefused,
    decide_request,
    end_record,
    ended,
    with_request,
    with_selected,
)
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.document import Request
from blizzard_py.requests.mailbox import Contents, Mailbox
from blizzard_py.requests.progress import (
    RequestState,
    State,
    first_running,
    is_over,
    with_letters_away,
    without,
)
from blizzard_py.requests.report import page_name
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import CheckpointServices
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import requests_of, without_request

# A range of values counts as read completely, but other settings may leave rows out.
_CHANGED = (
    "the configuration of this source changed while it ran; give the command again, which reads"
    " what is left with the new one"
)
# Requests are listed this often even without a bell, in seconds.
_LIST_SECS = 3600.0
# The most requests that one look reads, so that live work does not wait for a full mailbox.
_AT_ONCE = 100
# No bell has this text: more requests wait.
_MORE = "more"
# The most pages that one look reads if none of them has work.
_PAGES_AT_ONCE = 20
# A request and its end are stored this long, in seconds of the store's clock.
_KEPT_SECS = 30 * 86_400.0


class RequestRunner:
    """The requests of one source, as its owner sees them."""

    def __init__(
        self,
        parts: SourceContext,
        services: CheckpointServices,
        effects: Callable[[], RequestEffects],
    ) -> None:
        """Create the runner; ``effects`` are made with the first request, for they load much."""
        self._mailbox = Mailbox(parts.stores.sink, parts.id)
        self._make_effects = effects
        self._save = services.save
        self._epoch = services.epoch
        self._clock = services.clock
        self._monotonic = parts.monotonic
        self._heard: str | None = None
        self._listed = 0.0
        self._logged_error = ""
        # The error that cut the last look short.
        self.error: StorageError | None = None
        self._log = get_logger(source=parts.name)

    @cached_property
    def _effects(self) -> RequestEffects:
        return self._make_effects()

    @property
    def _has_effects(self) -> bool:
        return "_effects" in vars(self)

    def is_called(self) -> bool:
        """Return whether there may be new requests. Never raises: the next poll will."""
        try:
            return self._heard is not None and self._mailbox.bell() != self._heard
        except StorageError:
            return False

    def close(self) -> None:
        """Stop background reading."""
        if self._has_effects:
            self._effects.close()

    def attend(self, state: SourceState) -> SourceState:
        """Process new requests, continue the running one, and return the state.

        No batch may be in flight. An unreadable mailbox affects requests alone: the next poll reads
        it again. Raises what a save raises.
        """
        self.error = None
        state = self._look(state)
        for _ in range(_PAGES_AT_ONCE):
            running = first_running(state.work.requests)
            if running or self._has_effects:
                self._effects.keep_for(running)
            if not running or any(file.request == running for file in state.work.queue):
                break
            try:
                after = self._with_next_page_or_end(state, running)
            except StorageError as error:
                return self._go_on_without(state, error)
            if after is None:
                break  # the page is still read, and live work goes on
            state = self._save(after)
            try:
                self._record(state)
            except StorageError as error:
                return self._go_on_without(state, error)
        return state

    def _with_next_page_or_end(self, state: SourceState, request_id: str) -> SourceState | None:
        """Do `_with_next_page`; an error of the request alone ends the request.

        Otherwise it would fail in each cycle, and the source would do nothing else.
        """
        try:
            return self._with_next_page(state, request_id)
        except (StorageError, FencedError, Cancelled):
            raise  # an error of the store or the owner, not of the request
        except Exception as error:
            reason = self._reason_of(request_id, state.work.requests[request_id].kind, error)
            return self._ended(state, request_id, "failed", reason)

    def _reason_of(self, request_id: str, kind: str, error: Exception) -> str:
        """Return why a request ends by this error; log the trace of an unexpected one."""
        if isinstance(error, SourceError):
            return str(error)
        self._log.exception("request_crashed", request=request_id, kind=kind)
        return f"unexpected, the log has the trace: {type(error).__name__}: {error}"

    def _with_next_page(self, state: SourceState, request_id: str) -> SourceState | None:
        """Return the state with the next page of a request, or with its end.

        None while the page is still read.
        """
        known, now = state.work.requests[request_id], self._clock()
        if known.is_read and not known.letters:
            return self._ended(state, request_id, "done", "")
        try:
            request = self._mailbox.read(request_id)
        except (RequestInvalid, NotFound) as error:
            return self._ended(state, request_id, "failed", str(error))
        try:
            self._check_values(request)
            if known.letters:
                self._effects.put_away(request, known.letters)
                return state.with_work(requests=with_letters_away(state.work.requests, request_id))
            found = self._effects.select(state, request, PageRequest(request_id, known.cursor, now))
        except (RequestRefused, RequestInvalid, StateError) as error:
            # An invalid request or report ends this request only.
            end: State = "failed" if known.pages else "rejected"
            return self._ended(state, request_id, end, str(error))
        if found is None:
            return None
        self._mailbox.put_report(request_id, page_name(known.pages, self._epoch()), found.lines)
        return with_selected(state, request_id, found, now)

    def _check_values(self, request: Request) -> None:
        """Raise `RequestRefused` for a range of values, if the configuration changed since."""
        if request.select.get("values") and request.config != self._effects.config:
            raise RequestRefused(_CHANGED)

    def _ended(self, state: SourceState, request_id: str, end: State, reason: str) -> SourceState:
        """Return the state with a running request ended, and log it."""
        after = ended(state, request_id, end, reason, self._clock())
        self._log_state(request_id, after.work.requests[request_id])
        return after

    def _look(self, state: SourceState) -> SourceState:
        """Process new requests of the mailbox, and record those that have ended."""
        now, is_first = self._monotonic(), self._heard is None
        try:
            bell = self._mailbox.bell()
            if not is_first and bell == self._heard and now - self._listed < _LIST_SECS:
                return state
            contents = self._mailbox.contents()
        except StorageError as error:
            return self._go_on_without(state, error)
        after, failed = self._process_open(state, contents)
        state = after if after.work.requests == state.work.requests else self._save(after)
        try:
            self._record(state)
            if contents.ended and (is_first or now - self._listed >= _LIST_SECS):
                # Their entries in the checkpoint are gone, else they would count as new ones.
                self._mailbox.prune(self._clock() - _KEPT_SECS)
        except StorageError as error:
            failed = error
        if failed is not None:
            return self._go_on_without(state, failed)
        # Only a complete look is not repeated.
        self._heard, self._listed, self._logged_error = bell, now, ""
        if len(contents.open) > _AT_ONCE and any(
            e not in state.work.requests for e in contents.open
        ):
            self._heard = _MORE
        return state

    def _process_open(
        self, state: SourceState, contents: Contents
    ) -> tuple[SourceState, StorageError | None]:
        """Return the state with all open requests decided, and an error of an unreadable one."""
        # A request with an end record needs no entry, nor a waiting one that was removed. If it
        # still runs here, the checkpoint was restored from a copy.
        missing = {each for each, known in state.work.requests.items() if known.state == "waiting"}
        missing = missing.difference(contents.open).union(contents.ended)
        state = state.with_work(requests=without(state.work.requests, missing))
        for request_id in requests_of(state.work).difference(state.work.requests):
            state = without_request(state, request_id)
        failed = None
        # New ones first; only by mistake many requests wait.
        for request_id in sorted(contents.open, key=state.work.requests.__contains__)[:_AT_ONCE]:
            is_cancelled = request_id in contents.cancelled
            try:
                state = self._process_one(state, request_id, is_cancelled=is_cancelled)
            except StorageError as error:
                failed = error
        return state, failed

    def _record(self, state: SourceState) -> None:
        for request_id, known in state.work.requests.items():
            end = end_record(known)
            if end is not None:
                self._mailbox.end(request_id, end)

    def _go_on_without(self, state: SourceState, error: StorageError) -> SourceState:
        """Return the state to continue with if the mailbox is unreadable; log it once."""
        self.error = error
        if str(error) != self._logged_error:
            self._logged_error = str(error)
            self._log.warning("requests_unreadable", reason=self._logged_error)
        return state

    def _process_one(
        self, state: SourceState, request_id: str, *, is_cancelled: bool
    ) -> SourceState:
        """Return the state with one request done, refused, cancelled, or waiting."""
        known = state.work.requests.get(request_id)
        if known is not None and (
            is_over(known.state) or (known.state == "running" and not is_cancelled)
        ):
            return state
        try:
            after = decide_request(
                self._mailbox,
                self._effects,
                state,
                request_id,
                self._clock(),
                is_cancelled=is_cancelled,
            )
        except (StorageError, FencedError, Cancelled):
            raise  # an error of the store or the owner, not of the request
        except Exception as error:
            kind = "" if known is None else known.kind
            reason = self._reason_of(request_id, kind, error)
            after = with_request(state, request_id, kind, "rejected", reason, self._clock())
        found = after.work.requests.get(request_id)
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

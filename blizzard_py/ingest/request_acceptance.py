"""Steps of a request in the state of its source: started, files queued, ended. Pure.

Only a source's effects may connect. The owner saves the state after each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.storage.protocol import Entry
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.document import End, Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState, State, with_page, with_state
from blizzard_py.requests.report import ReportLine
from blizzard_py.state.batch import Batch
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.source_state import SourceState, ToReplace, queue_file, under_way
from blizzard_py.state.transitions import without_batch, without_request

# The most attempts of a batch of a request.
_ATTEMPTS = 3
_FAILING = (
    "its batch with {} ended three times without a result, by an error or the death of the process;"
    " the log says why. Mend that and give the command again: it leaves out what is in (with"
    " --again give what is left, by --from and --to)"
)


class RequestRefused(BlizzardError):
    """A request cannot be done by this source as it is; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The state with a request's effect, and counts for people.

    A request that ingests files is ``running`` from then on.
    """

    state: SourceState
    counts: Mapping[str, int]
    is_running: bool = False


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of a request's selection that begins at ``cursor``, the first at ``""``.

    ``now`` is the store's time.
    """

    request_id: str
    cursor: str
    now: float


@dataclass(frozen=True, slots=True)
class SelectedPage:
    """A page of what a request selects: files to bring, and of all that were looked at a line.

    ``cursor`` is where the next page begins, and with ``is_last`` there is none. Files that are
    ``replacing`` take the place of rows of before; ``ahead`` are those that this page and others
    before have taken before scans reach them; ``letters`` are put away once files are done.
    ``columns`` are what is known of a table or an API with the page in it.
    """

    files: tuple[Entry, ...]
    lines: tuple[ReportLine, ...]
    cursor: str
    is_last: bool
    ahead: tuple[str, ...] = ()
    replacing: Mapping[str, ToReplace] = field(default_factory=dict)
    letters: tuple[str, ...] = ()
    columns: ColumnState | None = None


@dataclass(frozen=True, slots=True)
class RequestEffects:
    """The effects of requests on a source.

    ``apply`` returns the new state. It may query the source and changes nothing. ``select`` reads a
    page of a request's selection; it returns None if it is still reading. Both raise
    `RequestRefused`. ``put_away`` closes a request's letters, also if called again. ``config`` is
    the fingerprint of the settings that decide the rows. ``keep_for`` drops pages read for other
    requests. ``close`` ends the reading.
    """

    apply: Callable[[SourceState, Request, float], Applied]
    select: Callable[[SourceState, Request, PageRequest], SelectedPage | None]
    put_away: Callable[[Request, tuple[str, ...]], None]
    config: str
    keep_for: Callable[[str], None]
    close: Callable[[], None]


def with_request(
    state: SourceState,
    request_id: str,
    kind: str,
    end: State,
    reason: str,
    now: float,
    counts: Mapping[str, int] | None = None,
) -> SourceState:
    """Return the state with a request as `with_state` does. Pure."""
    known = with_state(state.work.requests, request_id, kind, end, reason, now, counts)
    return state.with_work(requests=known)


def ended(state: SourceState, request_id: str, end: State, reason: str, now: float) -> SourceState:
    """Return the state with a running request ended and no work left; what is in stays. Pure."""
    kind = state.work.requests[request_id].kind
    return without_request(with_request(state, request_id, kind, end, reason, now), request_id)


def _execute(
    effects: RequestEffects, state: SourceState, request_id: str, request: Request, now: float
) -> SourceState:
    """Return the state with a request done, or waiting for its configuration, or refused. Pure."""
    kind = request.kind
    if request.config != effects.config:
        why = (
            "made with another configuration of this source; restart the daemon with it, or cancel"
            " the request"
        )
        return with_request(state, request_id, kind, "waiting", why, now)
    try:
        done = effects.apply(state, request, now)
    except RequestRefused as error:
        return with_request(state, request_id, kind, "rejected", str(error), now)
    end: State = "running" if done.is_running else "done"
    return with_request(done.state, request_id, kind, end, "", now, done.counts)


def with_selected(
    state: SourceState, request_id: str, found: SelectedPage, now: float
) -> SourceState:
    """Return the state with a page of a request's files in the queue. Pure."""
    known = set(under_way(state.work))
    # Each once, also if the request names it twice.
    files = {entry.path: entry for entry in found.files if entry.path not in known}
    fresh = [queue_file(entry, request_id) for entry in files.values()]
    counts = Counter(line.state for line in found.lines)
    requests = with_page(
        state.work.requests,
        request_id,
        found.cursor,
        counts,
        now,
        is_read=found.is_last,
        letters=found.letters,
    )
    return (
        state.with_position(ahead=found.ahead or state.position.ahead)
        .with_work(
            queue=(*state.work.queue, *fresh),
            requests=requests,
            replacing={**state.work.replacing, **found.replacing},
        )
        .with_kind(columns=found.columns or state.kind.columns)
    )


def fail_request(state: SourceState, batch: Batch, error: BlizzardError, now: float) -> SourceState:
    """Return the state without a batch that failed for good, and with its request ended.

    The error must not stop the source. Raises ``error`` for a live batch.
    """
    if batch.request not in state.work.requests:
        raise error
    return ended(without_batch(state, batch), batch.request, "failed", str(error), now)


def without_failing(state: SourceState, now: float) -> SourceState:
    """Return the state without a request whose batch has too often ended without a result. Pure.

    The process may have died or the job failed; live work goes on.
    """
    for batch in state.work.in_flight:
        if batch.request and batch.phase == "running" and batch.attempt >= _ATTEMPTS:
            state = without_batch(state, batch)
            if batch.request in state.work.requests:
                why = _FAILING.format(batch.files[0].path)
                state = ended(state, batch.request, "failed", why, now)
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

    A missing request changes nothing. Called by the owner of the source, a daemon or a command.
    Raises `StorageError`.
    """
    kind = ""
    try:
        request = mailbox.read(request_id)
        kind = request.kind
        if not is_cancelled:
            return _execute(effects, state, request_id, request, now)
    except NotFound:
        return state
    except RequestInvalid as error:
        if not is_cancelled:
            return with_request(state, request_id, kind, "rejected", str(error), now)
    why = _why_cancelled(mailbox, request_id)
    cancelled = with_request(state, request_id, kind, "cancelled", why, now)
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

"""Progress of a source's requests, as its checkpoint holds it. Pure.

A request is accepted by the save that first names it. From then on only the checkpoint has its
state; the request object never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

import msgspec

Ended = Literal["done", "rejected", "cancelled", "failed"]
State = Literal["waiting", "running", "done", "rejected", "cancelled", "failed"]

_ENDED = frozenset(get_args(Ended))


@dataclass(frozen=True, slots=True)
class RequestState:
    """Progress of one request: ``seq`` is its place in the order of acceptance.

    ``at`` is the epoch second of the last change, ``reason`` why it waits or how it ended. A
    ``running`` one ingests files: its selection was read up to ``cursor``, in ``pages`` pages, and
    completely with ``is_read``. ``letters`` are closed once those files are done.
    """

    seq: Annotated[int, msgspec.Meta(ge=1)]
    kind: str
    state: State
    reason: str = ""
    at: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    cursor: str = ""
    pages: int = 0
    is_read: bool = False
    letters: tuple[str, ...] = ()


def is_over(state: State) -> bool:
    """Return whether a request in this state has ended."""
    return state in _ENDED


def with_state(
    requests: Mapping[str, RequestState],
    request_id: str,
    kind: str,
    state: State,
    reason: str,
    at: float,
    counts: Mapping[str, int] | None = None,
) -> Mapping[str, RequestState]:
    """Return the requests with this one in a state; a new one comes last in the order.

    Returns ``requests`` itself if nothing changes, so the owner need not save: the request is
    over, or it is in this state already and only the time differs. Without ``counts`` those of
    before stay.
    """
    known = requests.get(request_id)
    if known is None:
        seq = 1 + max((each.seq for each in requests.values()), default=0)
        before = RequestState(seq, kind, state)
    elif is_over(known.state):
        return requests
    else:
        before = known
    new_counts = before.counts if counts is None else dict(counts)
    after = replace(before, kind=kind, state=state, reason=reason, at=at, counts=new_counts)
    if known is not None and after == replace(known, at=at):
        return requests
    return {**requests, request_id: after}


def with_page(
    requests: Mapping[str, RequestState],
    request_id: str,
    cursor: str,
    counts: Mapping[str, int],
    at: float,
    *,
    is_read: bool,
    letters: tuple[str, ...] = (),
) -> Mapping[str, RequestState]:
    """Return the requests once one more page of this one's selection was read, up to ``cursor``."""
    known = requests[request_id]
    after = replace(
        known,
        cursor=cursor,
        pages=known.pages + 1,
        is_read=is_read,
        letters=letters,
        counts=_added(known.counts, counts),
        at=at,
    )
    return {**requests, request_id: after}


def with_letters_away(
    requests: Mapping[str, RequestState], request_id: str
) -> Mapping[str, RequestState]:
    """Return the requests once this one's letters of before were put away."""
    return {**requests, request_id: replace(requests[request_id], letters=())}


def with_counts(
    requests: Mapping[str, RequestState], request_id: str, counts: Mapping[str, int]
) -> Mapping[str, RequestState]:
    """Return the requests with more counted of this one; as they are if it is not there."""
    known = requests.get(request_id)
    if known is None:
        return requests
    return {**requests, request_id: replace(known, counts=_added(known.counts, counts))}


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return dict(before) | {name: before.get(name, 0) + n for name, n in more.items() if n}


def without(
    requests: Mapping[str, RequestState], request_ids: Iterable[str]
) -> dict[str, RequestState]:
    """Return the requests that are not named."""
    removed = frozenset(request_ids)
    return {each: state for each, state in requests.items() if each not in removed}


def first_running(requests: Mapping[str, RequestState]) -> str:
    """Return the running request that was accepted first, empty if none runs."""
    return next((each for each, s in open_of(requests).items() if s.state == "running"), "")


def has_more(requests: Mapping[str, RequestState]) -> bool:
    """Return whether there is more of a running request's selection to read."""
    return any(each.state == "running" and not each.is_read for each in requests.values())


def open_of(requests: Mapping[str, RequestState]) -> dict[str, RequestState]:
    """Return the requests that are not over, in the order of acceptance."""
    known = sorted(requests.items(), key=lambda item: item[1].seq)
    return {each: state for each, state in known if not is_over(state.state)}


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The end of a request: ``state`` as in `RequestState`, ``open`` if it was not accepted.

    ``exit_code`` is that of the process that executed it here.
    """

    id: str
    state: str
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    exit_code: int = 0


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the counts of a request as people read them."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())

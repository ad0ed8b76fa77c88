"""Progress of a source's requests, as its checkpoint holds it. Pure.

A request is accepted by the save that first names it. From then on this alone says what became of
it: the request object never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

import msgspec

Ended = Literal["done", "rejected", "cancelled"]
State = Literal["waiting", "done", "rejected", "cancelled"]

_ENDED = frozenset(get_args(Ended))


@dataclass(frozen=True, slots=True)
class RequestState:
    """Progress of one request: ``seq`` is its place in the order of acceptance.

    ``at`` is the epoch second of the last change, ``reason`` why it waits or how it ended.
    """

    seq: Annotated[int, msgspec.Meta(ge=1)]
    kind: str
    state: State
    reason: str = ""
    at: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


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
    over, or it is in this state already and only the time differs.
    """
    known = requests.get(request_id)
    if known is None:
        seq = 1 + max((each.seq for each in requests.values()), default=0)
    elif is_over(known.state):
        return requests
    else:
        seq = known.seq
    after = RequestState(seq, kind, state, reason, at, dict(counts or {}))
    if known is not None and after == replace(known, at=at):
        return requests
    return {**requests, request_id: after}


def without(
    requests: Mapping[str, RequestState], request_ids: Iterable[str]
) -> dict[str, RequestState]:
    """Return the requests that are not named."""
    gone = frozenset(request_ids)
    return {each: state for each, state in requests.items() if each not in gone}


def open_of(requests: Mapping[str, RequestState]) -> dict[str, RequestState]:
    """Return the requests that are not over, in the order of acceptance."""
    known = sorted(requests.items(), key=lambda item: item[1].seq)
    return {each: state for each, state in known if not is_over(state.state)}

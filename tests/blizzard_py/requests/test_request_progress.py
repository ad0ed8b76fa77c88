"""Progress of requests: an order that stays, and ends that nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import StateError
from blizzard_py.requests.progress import (
    Ended,
    RequestState,
    State,
    is_over,
    open_of,
    with_state,
    without,
)

A, B, C = "0000000a.1", "0000000b.1", "0000000c.1"


def waiting(*request_ids: str) -> Mapping[str, RequestState]:
    requests: Mapping[str, RequestState] = {}
    for number, each in enumerate(request_ids):
        requests = with_state(requests, each, "mark_units", "waiting", "", float(number))
    return requests


def test_a_known_request_keeps_its_place() -> None:
    requests = with_state(waiting(B, A), B, "mark_units", "waiting", "configuration", 9.0)
    assert requests[B] == RequestState(1, "mark_units", "waiting", "configuration", 9.0)
    assert list(open_of(requests)) == [B, A]


@pytest.mark.parametrize("ended", get_args(Ended))
@pytest.mark.parametrize("later", get_args(State))
def test_an_end_is_never_changed(ended: Ended, later: State) -> None:
    requests = with_state(waiting(A), A, "mark_units", ended, "so", 1.0, {"units": 2})
    after = with_state(requests, A, "mark_units", later, "else", 2.0, {"units": 3})
    assert after is requests
    assert after[A] == RequestState(1, "mark_units", ended, "so", 1.0, {"units": 2})


def test_the_same_state_again_is_no_change() -> None:
    requests = waiting(A)
    assert with_state(requests, A, "mark_units", "waiting", "", 99.0) is requests
    assert with_state(requests, A, "mark_units", "waiting", "other", 99.0)[A].at == 99.0


def test_transitions_change_no_input() -> None:
    requests, counts = waiting(A), {"units": 1}
    after = with_state(requests, A, "mark_units", "done", "", 1.0, counts)
    counts["units"] = 2
    assert requests[A].state == "waiting"
    assert after[A].counts == {"units": 1}


def test_only_what_is_not_over_is_open() -> None:
    requests = with_state(waiting(A, B, C), B, "mark_units", "rejected", "no units", 1.0)
    assert list(open_of(requests)) == [A, C]
    assert [is_over(state) for state in get_args(State)] == [
        *[False, False],
        *[True, True, True, True],
    ]


@pytest.mark.parametrize("change", [{"seq": 0}, {"state": "lost"}, {"at": "now"}, {"more": 1}])
def test_a_wrong_stored_state_is_refused(change: dict[str, Any]) -> None:
    stored = {A: asdict(waiting(A)[A])}
    assert decode_document(dict[str, RequestState], stored, "checkpoint") == waiting(A)
    with pytest.raises(StateError, match=rf"checkpoint: .*{A}"):
        decode_document(dict[str, RequestState], {A: {**stored[A], **change}}, "checkpoint")


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([*get_args(State), None]))))
def test_places_are_unique_and_in_order_of_acceptance(
    steps: list[tuple[str, State | None]],
) -> None:
    requests: Mapping[str, RequestState] = {}
    accepted: list[str] = []
    for request_id, state in steps:
        if state is None:
            requests = without(requests, [request_id])
            accepted = [each for each in accepted if each != request_id]
            continue
        if request_id not in requests:
            accepted.append(request_id)
        requests = with_state(requests, request_id, "mark_units", state, "", 0.0)
    assert sorted(requests, key=lambda each: requests[each].seq) == accepted

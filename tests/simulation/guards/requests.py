"""Guards of operators' requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from blizzard_py.ingest import request_runner
from blizzard_py.ingest.request_acceptance import with_selected
from blizzard_py.ingest.request_runner import RequestRunner
from blizzard_py.selection.claims import Claim, Claims
from blizzard_py.sources.files.advance import NOTHING
from blizzard_py.sources.files.source import FileSource, _lowest
from blizzard_py.sources.protocol import PlainWork
from tests.simulation.guards.registry import guard
from tests.simulation.world import SimulatedWorld


@guard("nobody remembers that a request took files of which the time is to come")
def requested_future_files_are_remembered(_world: SimulatedWorld) -> Iterator[None]:
    def selected(state: Any, request_id: str, found: Any, now: float) -> Any:
        return with_selected(state, request_id, replace(found, ahead=()), now)

    with mock.patch.object(request_runner, "with_selected", selected):
        yield


@guard("the end of a request is recorded when its last files are queued")
def requests_end_by_a_save(_world: SimulatedWorld) -> Iterator[None]:
    real = RequestRunner._with_next_page

    def with_next_page(self: Any, state: Any, request_id: str) -> Any:
        after = real(self, state, request_id)
        known = None if after is None else after.work.requests[request_id]
        if known is not None and known.is_read and known.state == "running":
            self._record(after.with_work(requests={request_id: replace(known, state="done")}))
        return after

    with mock.patch.object(RequestRunner, "_with_next_page", with_next_page):
        yield


@guard("a batch of a request moves the marks of the source, as queued files do")
def requests_move_no_marks(_world: SimulatedWorld) -> Iterator[None]:
    def advance(self: Any, state: Any, batch: Any, work: Any, now: float) -> Any:
        beside = None if type(work) is PlainWork else work
        lowest = _lowest(state, batch, beside)
        moved = self._moved(state.with_work(queue=()), batch, lowest, now)
        return moved.with_work(queue=state.work.queue)

    def outlook(self: Any, state: Any, batch: Any) -> Any:
        now = batch.results.committed_ts
        moved = self._moved(state.with_work(queue=()), batch, NOTHING.lowest, now)
        return moved.with_work(queue=state.work.queue)

    with (
        mock.patch.object(FileSource, "advance", advance),
        mock.patch.object(FileSource, "outlook", outlook),
    ):
        yield


@guard("a request takes files without asking whether the source has them, or is going to")
def requests_ask_whose_it_is(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Claims, "claim_on", return_value=Claim("free")):
        yield


@guard("dead letters are put away when their files are queued")
def letters_wait_for_their_files(_world: SimulatedWorld) -> Iterator[None]:
    real = RequestRunner._with_next_page

    def with_next_page(self: Any, state: Any, request_id: str) -> Any:
        after = real(self, state, request_id)
        known = None if after is None else after.work.requests.get(request_id)
        if known is not None and known.letters:
            self._effects.put_away(self._mailbox.read(request_id), known.letters)
        return after

    with mock.patch.object(RequestRunner, "_with_next_page", with_next_page):
        yield

"""Guards of restored or lost state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from unittest import mock

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_py.sources import stale
from blizzard_py.state.fence_record import FenceFile
from blizzard_py.state.journal_tally import JournalTally
from tests.simulation.guards.registry import always, guard, nothing
from tests.simulation.world import SimulatedWorld


@guard("a checkpoint is judged without its fence record, and without outputs that lie there")
def fence_record_is_read(_world: SimulatedWorld) -> Iterator[None]:
    with (
        mock.patch.object(stale, "contradiction", nothing),
        mock.patch.object(stale, "newest_waiting", nothing),
    ):
        yield


@guard("a fence record is replaced whoever wrote it last")
def fence_record_is_conditional(_world: SimulatedWorld) -> Iterator[None]:
    def write(self: Any, record: Any) -> None:
        data = json.dumps({k: v for k, v in asdict(record).items() if v}).encode()
        self._sink.put_atomic(self._path, data)
        self._written = record

    with mock.patch.object(FenceFile, "_write", write):
        yield


@guard("a take-over counts epochs from a checkpoint that was put back")
def epochs_outlive_checkpoints(_world: SimulatedWorld) -> Iterator[None]:
    real = FencedFile.take

    def take(self: Any, parse: Any, fresh: Any, _least: int = 0) -> Any:
        return real(self, parse, fresh)

    with mock.patch.object(FencedFile, "take", take):
        yield


@guard("nobody counts the batches of the journal")
def journal_is_counted(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(JournalTally, "agrees_with", always):
        yield


@guard("nobody looks which batches the outputs are of that wait for their commit")
def waiting_outputs_are_read(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(stale, "newest_waiting", nothing):
        yield


@guard("nobody asks the log, or outputs that lie there, how far a source is")
def transactions_are_read(_world: SimulatedWorld) -> Iterator[None]:
    with (
        mock.patch.object(stale, "newest_transactions", return_value={}),
        mock.patch.object(stale, "newest_waiting", nothing),
    ):
        yield

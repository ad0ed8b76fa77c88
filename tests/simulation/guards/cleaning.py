"""Guards of the cleaning of source files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from blizzard_py.cleaning import commit_check
from blizzard_py.state.batch import Batch
from tests.simulation.guards.registry import guard
from tests.simulation.store import Client
from tests.simulation.world import SimulatedWorld


@guard("a source file is removed whatever version it has by then")
def cleaned_if_unchanged(_world: SimulatedWorld) -> Iterator[None]:
    def delete_if(self: Any, path: str, _version: str) -> bool:
        self.delete(path)
        return True

    with mock.patch.object(Client, "delete_if", delete_if):
        yield


@guard("source files are removed after a while, whether or not their rows are committed")
def committed_before_cleaned(_world: SimulatedWorld) -> Iterator[None]:
    def through(batches: Sequence[Batch], _present: object) -> str:
        return batches[-1].batch

    with mock.patch.object(commit_check, "committed_through", through):
        yield

"""Guards of the state and of operators' edits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from blizzard_py.ingest import source_view, start
from blizzard_py.sources.files import source as files
from blizzard_py.state import processed_set
from tests.simulation.guards.registry import guard, nothing
from tests.simulation.world import SimulatedWorld


@guard("a checkpoint of other files is gone on with")
def identity_is_checked(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(source_view, "check_identity", nothing):
        yield


@guard("a missing checkpoint means a cold start")
def lost_checkpoints_are_noticed(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(start, "check_cold_start", nothing):
        yield


@guard("the way of tracking can be changed under a state")
def tracking_is_checked(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(files, "check_tracking", nothing):
        yield


@guard("a stale daemon removes segments of names that its successor wrote")
def segments_have_epochs(_world: SimulatedWorld) -> Iterator[None]:
    real = processed_set.sweep

    def swept(storage: Any, folder: str, segments: Any, _epoch: int) -> Any:
        return real(storage, folder, segments, 10**7)

    with mock.patch.object(processed_set, "sweep", swept):
        yield

"""Guards of the state, and of what people do to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from blizzard_py.ingest import source_view, start
from blizzard_py.replay import Replay, ownership
from blizzard_py.replay import Taken as ReplayLedger
from blizzard_py.sources.files import source as files
from blizzard_py.state import processed_set
from tests.simulation.guards.registry import anybody, guard, nothing
from tests.simulation.world import World


@guard("a checkpoint of other files is gone on with")
def identity_is_checked(_world: World) -> Iterator[None]:
    with mock.patch.object(source_view, "check_identity", nothing):
        yield


@guard("a missing checkpoint means a cold start")
def lost_checkpoints_are_noticed(_world: World) -> Iterator[None]:
    with mock.patch.object(start, "check_cold_start", nothing):
        yield


@guard("the way of tracking can be changed under a state")
def tracking_is_checked(_world: World) -> Iterator[None]:
    with mock.patch.object(files, "check_tracking", nothing):
        yield


@guard("a stale daemon removes segments of names that its successor wrote")
def segments_have_epochs(_world: World) -> Iterator[None]:
    real = processed_set.sweep

    def swept(storage: Any, folder: str, segments: Any, _epoch: int) -> Any:
        return real(storage, folder, segments, 10**7)

    with mock.patch.object(processed_set, "sweep", swept):
        yield


@guard("a replay takes files without asking who else has them")
def replays_ask_whose_it_is(_world: World) -> Iterator[None]:
    free = ownership.Claim("free")
    with mock.patch.object(ownership.Claims, "whose", return_value=free):
        yield


# Either alone is enough: a letter that is on the list is put away, and one that is not finds
# its files in the journals of replays.
@guard("a replay forgets which letters it has taken, and what replays before it have done")
def replays_keep_a_ledger(_world: World) -> Iterator[None]:
    real = Replay.run

    def run(self: Any, chosen: Any) -> Any:
        for parts in (self.files, self.records):
            taken = ReplayLedger(parts)
            if taken.peek().letters:
                taken._save(replace(taken.open(), letters=()))
        return real(self, chosen)

    with (
        mock.patch.object(Replay, "run", run),
        mock.patch.object(ownership.Claims, "_replay_of", anybody),
    ):
        yield

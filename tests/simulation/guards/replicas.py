"""Guards of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from blizzard_py.replicas.membership import Membership
from tests.simulation.guards.registry import guard, nothing
from tests.simulation.world import SimulatedWorld


@guard("a source is taken as soon as it is assigned, though another replica has it")
def released_before_take_over(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Membership, "admit", nothing):
        yield

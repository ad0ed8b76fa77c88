"""Guards of the product that can be removed for a run: the test of the simulator.

A guard's removal is a patch of the product. If no seed finds it, either the simulator misses a
fault or the guard is useless. ``tests/simulation/GUARDS.md`` lists every guard.
"""

from tests.simulation.guards import (
    certificates,
    cleaning,
    commit,
    penguin,
    replicas,
    requests,
    scans,
    stale,
    state,
)
from tests.simulation.guards.registry import GUARDS, Guard

__all__ = [
    "GUARDS",
    "Guard",
    "certificates",
    "cleaning",
    "commit",
    "penguin",
    "replicas",
    "requests",
    "scans",
    "stale",
    "state",
]

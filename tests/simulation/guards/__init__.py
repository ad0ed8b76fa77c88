"""The test of the test: guards of the product, each of which can be taken away for a run.

A guard's removal is a patch of the product. If no seed finds it, the simulator is too kind,
or the guard guards nothing. Every guard is named in ``docs/reference/guarantees.md``.
"""

from tests.simulation.guards import commit, penguin, requests, scans, stale, state
from tests.simulation.guards.registry import GUARDS, Guard

__all__ = ["GUARDS", "Guard", "commit", "penguin", "requests", "scans", "stale", "state"]

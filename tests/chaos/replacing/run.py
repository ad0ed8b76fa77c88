"""One history, from its seed."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.replacing.faults import Faults
from tests.chaos.replacing.history import History
from tests.support.table_harness import TableHarness, footer_pool

RATE = 0.01


def run(root: Path, seed: int, rate: float = RATE, between: float = 0.3) -> dict[str, int]:
    """Run on a local disk; return the counts of events. Raises `AssertionError`.

    ``rate`` is how often a request goes wrong, ``between`` how often something comes between
    look and commit.
    """
    arrivals, chance = random.Random(f"{seed} arrivals"), random.Random(seed)
    with footer_pool() as pool:
        world = TableHarness(str(root / f"table-{seed}"), pool)
        return History(world, arrivals, chance, Faults(chance, rate), between).run()

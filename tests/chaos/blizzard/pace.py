"""Durations as parts of the grace period, so that a short run has the same proportions."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations in seconds, a rate, and the number of tracked partitions.

    The shares are those of the ten minutes with 20 s of grace.
    """

    grace: float = 20.0
    poll: float = 1.0
    sweep: float = 5.0
    files_per_sec: float = 4.0
    tracked: int = 64

    @property
    def covered(self) -> float:
        """Seconds after a higher name within which a file must be ingested.

        The rest of the grace period is a margin. It is not for the product, which counts
        from its own scans and so allows more, but for what we cannot see of the store.
        """
        return self.grace * 0.8

    def held_back(self, chance: random.Random) -> float:
        """Draw the delay of a file: half have none, a few exceed the grace period."""
        draw = chance.random()
        if draw < 0.5:
            return 0.0
        if draw < 0.97:
            return chance.uniform(0.02, 0.7) * self.grace
        return chance.uniform(1.5, 2.5) * self.grace

    def downtime(self, chance: random.Random) -> float:
        """Longer than the grace period."""
        return chance.uniform(1.1, 1.6) * self.grace

    def slow_job(self, chance: random.Random) -> float:
        """Longer than the grace period."""
        return chance.uniform(1.1, 1.5) * self.grace

    def moment(self, chance: random.Random) -> float:
        """Draw the seconds until the next fault; often a job is running then."""
        return chance.uniform(0.02, 0.3) * self.grace

    @property
    def longest_job(self) -> float:
        """The upper end of `slow_job`."""
        return 1.5 * self.grace

    @property
    def shutdown(self) -> float:
        """`global.advanced.shutdown_grace`: shorter than a slow job, so some are cancelled."""
        return 0.25 * self.grace

"""One run: play a plan to its end and return the violations."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass

from tests.simulation import check
from tests.simulation.cleaning import watch_sources
from tests.simulation.director import Director
from tests.simulation.guards import Guard
from tests.simulation.patches import patched
from tests.simulation.plan import DAY, Plan
from tests.simulation.processes import CALM
from tests.simulation.scheduler import MAX_STEPS, Endless, Owner
from tests.simulation.world import SimulatedWorld

# What a file that cannot be read waits at most before it is tried again, and some polls.
LONGEST_PAUSE_SECS = 1200.0


@dataclass
class Outcome:
    """Result of a run. Without ``violations`` the promise held."""

    plan: Plan
    violations: list[str]
    story: list[str]
    counts: Counter[str]
    steps: int
    secs: float

    @property
    def kinds(self) -> set[str]:
        """The violations' kinds: what stands before the first colon."""
        return {text.partition(":")[0] for text in self.violations}


def play(plan: Plan, without: Guard | None = None, max_steps: int = MAX_STEPS) -> Outcome:
    """Play a plan to its end and check it, ``without`` a guard of the product."""
    began = time.perf_counter()
    world = SimulatedWorld(plan)
    watch_sources(world)
    director = Director(world)
    scheduler = world.scheduler
    scheduler.max_steps = max_steps
    looks = Owner("supervisor")

    def supervise() -> None:
        while True:
            scheduler.sleep(director.supervise())

    violations: list[str] = []
    removed = nullcontext() if without is None else without.patch(world)
    with patched(world), removed:
        try:
            director.begin()
            scheduler.spawn(looks, supervise)
            scheduler.run(world.now + plan.length)
            director.calm()
            scheduler.run(world.now + settling_secs(plan))
            # Most are done by then. What waits for its last try takes longer, and may.
            if check.violations(world, director):
                director.start_again()
                scheduler.run(world.now + LONGEST_PAUSE_SECS + settling_secs(plan))
        except Endless as endless:
            violations.append(f"endless: {endless}")
        # The daemons are looked at while they live: what they hold is part of the answer.
        if not violations:
            violations = check.violations(world, director)
        scheduler.end()
    return Outcome(
        plan,
        violations,
        world.story(),
        world.counts,
        scheduler.steps,
        time.perf_counter() - began,
    )


def settling_secs(plan: Plan) -> float:
    """Return the most seconds until all work is done, counted from the last fault.

    Two sweeps, two grace periods, two complete scans, and the polls and retries in between, of
    daemons that wait longer than configured.
    """
    settings = plan.settings
    full_scan = settings.full_scan or 0.0
    return (
        2.2 * max(settings.sweep, settings.reconcile)
        + 3 * plan.longest_grace
        + 20 * settings.poll
        + (2.2 * CALM * full_scan if full_scan < DAY else 0.0)
    )

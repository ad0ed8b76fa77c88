"""Plans of schedules, and playing many of them."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache

from blizzard_core.log import silence
from tests.simulation.markers.checks import Held
from tests.simulation.markers.guards import GUARDS
from tests.simulation.markers.quick import quick
from tests.simulation.markers.world import MarkerPlan, MarkerWorld

# Seeds that a process takes at once.
CHUNK = 2000
# Of so many first histories some are at each stage.
_BASE_SEEDS = 200

_ORDINARY = ("late", "new", "newest", "replaced")
_PROCESSES = ("rival_blizzard", "rival_penguin", "kill", "restart_with_fault")
_LOSSES = (
    "mirror_lost",
    "confirmed_lost",
    "journal_lost",
    "restored_table",
    "log_deleted",
    "checkpoint_restored",
    "state_deleted",
)


def drawn(seed: int) -> MarkerPlan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    kinds = [chance.choice(_ORDINARY) for _ in range(chance.choice((1, 1, 2, 3)))]
    kinds += [chance.choice(_PROCESSES) for _ in range(chance.choice((0, 1, 1, 2)))]
    if chance.random() < 0.2:
        kinds.append(chance.choice(_LOSSES))
    return MarkerPlan(
        seed,
        chance.choice(("open", "complete", "marked", "marked")),
        chance.choice((64, 64, 1)),
        chance.choice(("ingest", "ingest", "report")),
        tuple(sorted((chance.random() * 0.6, kind) for kind in kinds)),
    )


@lru_cache(1)
def bases() -> dict[str, Held]:
    """Return the worlds that schedules begin with."""
    found: dict[str, Held] = {"empty": Held()}
    for seed in range(1, _BASE_SEEDS):
        plan = MarkerPlan(seed, events=((0.0, "first"),), length=random.Random(seed).random() * 3)
        world = MarkerWorld(plan, Held())
        world.play()
        if world.violations:
            raise AssertionError(list(world.violations))
        held = world.held()
        found.setdefault(world.stage(), held)
        if {"open", "complete", "marked"} <= found.keys():
            return found
    raise AssertionError(f"the stand-ins come no further than to {sorted(found)}")


def play(plan: MarkerPlan) -> MarkerWorld:
    """Play a plan inside of `quick`."""
    world = MarkerWorld(plan, bases()[plan.base])
    world.play()
    return world


@dataclass
class Played:
    """The violations of some seeds, what happened, and the processor time of all."""

    wrong: dict[int, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    secs: float = 0.0

    def add(self, other: Played) -> None:
        self.wrong |= other.wrong
        self.counts.update(other.counts)
        self.secs += other.secs


def played(first: int, count: int, guard: str = "") -> Played:
    """Play seeds, without a guard if one is named; then stop at the first violation."""
    with quick():
        bases()  # with all guards
        found, began = Played(), time.process_time()
        with GUARDS[guard]() if guard else nullcontext():
            for seed in range(first, first + count):
                world = play(drawn(seed))
                found.counts.update(world.counts)
                found.counts["steps"] += world.scheduler.steps
                if world.violations:
                    found.wrong[seed] = list(world.violations)
                    if guard:
                        break
    found.secs = time.process_time() - began
    return found


def all_played(first: int, count: int, jobs: int) -> Played:
    """Play a number of schedules in several processes."""
    total = Played()
    starts = range(first, first + count, CHUNK)
    sizes = [min(CHUNK, first + count - start) for start in starts]
    with ProcessPoolExecutor(jobs, initializer=_prepare) as pool:
        for each in pool.map(played, starts, sizes):
            total.add(each)
    return total


def _prepare() -> None:
    """Log nothing, and look for the circles that a run leaves behind seldom."""
    silence()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)


def described(total: Played, count: int, shown: int) -> str:
    """Return what the schedules show, as text for people."""
    steps = total.counts.pop("steps")
    lines = [
        f"{count:,} schedules, {steps:,} steps in {total.secs:,.0f} s of a processor",
        f"wrong markers in {len(total.wrong):,} of them",
    ]
    lines += [f"  {what:<45} {number:>10,}" for what, number in total.counts.most_common()]
    for seed in sorted(total.wrong)[:shown]:
        lines += [f"\nseed {seed}: {drawn(seed)}", *(f"  {text}" for text in total.wrong[seed])]
    return "\n".join(lines)

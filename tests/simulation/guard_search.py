"""Search for the first seed at which the simulator notices a removed guard."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from blizzard_core.log import silence
from tests.simulation.draw import draw
from tests.simulation.guards import GUARDS, Guard
from tests.simulation.run import play
from tests.simulation.world import SimulatedWorld


@dataclass(frozen=True)
class Find:
    """The first seed whose run breaks the promise without a guard; None if none did."""

    guard: str
    without: str
    seed: int | None
    violation: str = ""


def hunted(guard: Guard, first: int, count: int) -> Find:
    """Look for a seed at which the guard's removal shows, and nothing without it.

    Raises `AssertionError` where the patch does not fit the code: its crash would show nothing.
    """
    for seed in range(first, first + count):
        if guard.model is not None:
            with guard.patch(SimulatedWorld(draw(1))):
                found = guard.model(seed)
            if found and not guard.model(seed):
                return Find(guard.name, guard.without, seed, found[0])
            continue
        plan = draw(seed)
        outcome = play(plan, guard)
        known = play(plan).kinds if outcome.violations else set()
        for violation in outcome.violations:
            misfit = any(kind in violation for kind in ("TypeError", "AttributeError"))
            assert not misfit, f"{guard.name}: {violation}"
            if violation.partition(":")[0] not in known:
                return Find(guard.name, guard.without, seed, violation)
    return Find(guard.name, guard.without, None)


def _by_name(name: str, first: int, count: int) -> Find:

    silence()
    found = next(guard for guard in GUARDS if guard.name == name)
    return hunted(found, first, count)


def finds(only: str, first: int, count: int, jobs: int) -> Iterator[Find]:
    """Yield the finds for all guards whose name contains ``only``, in their order."""
    names = [guard.name for guard in GUARDS if only in guard.name]
    if jobs == 1:
        for name in names:
            yield _by_name(name, first, count)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_by_name, name, first, count) for name in names]
        for future in waiting:
            yield future.result()

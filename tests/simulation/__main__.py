"""``python -m tests.simulation``: many seeds, or the guards that are removed one by one."""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from blizzard_core.log import silence
from tests.simulation import report
from tests.simulation.draw import draw, drawn
from tests.simulation.guard_search import finds
from tests.simulation.markers.guards import GUARDS as MARKER_GUARDS
from tests.simulation.markers.play import all_played, described
from tests.simulation.markers.play import played as played_markers
from tests.simulation.plan import Plan
from tests.simulation.run import Outcome, play
from tests.simulation.shrink import TRIES, shrunk
from tests.simulation.troubles.manual_changes import by_hand
from tests.simulation.troubles.replicas import with_replicas

# Seeds that a process takes at once.
CHUNK = 50


@dataclass(frozen=True)
class Played:
    """Result of a run; ``secs`` is processor time."""

    seed: int
    violations: list[str]
    counts: Counter[str]
    secs: float


def planned(seed: int, *, hands: bool = False, replicas: bool = False) -> Plan:
    """Return the plan of a seed; ``hands`` adds operators who undo and redo, or ``replicas``."""
    if replicas:
        return with_replicas(draw(seed), always=True)
    return by_hand(drawn(seed)) if hands else draw(seed)


def played(seeds: Iterable[int], *, hands: bool = False, replicas: bool = False) -> list[Played]:
    """Violations and counts of some seeds."""
    silence()
    # A run leaves circles behind and little else: looking for them seldom is an eighth faster.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    found = []
    for seed in seeds:
        began = time.process_time()
        outcome = play(planned(seed, hands=hands, replicas=replicas))
        secs = time.process_time() - began
        found.append(Played(seed, outcome.violations, outcome.counts, secs))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if a promise was broken, or if a guard's removal was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", dest="first", type=int, help="the first seed; else a fresh one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--shown", type=int, default=3, help="failing seeds to shorten and show")
    parser.add_argument("--tries", type=int, default=TRIES, help="how often a plan is shortened")
    parser.add_argument("--guards", action="store_true", help="remove guards one at a time")
    parser.add_argument("--hands", action="store_true", help="people undo and redo, too")
    parser.add_argument("--replicas", action="store_true", help="in each plan, not in a few")
    parser.add_argument("--only", default="", help="guards whose name has this in it")
    parser.add_argument("--markers", type=int, help="schedules of complete partitions instead")
    chosen = parser.parse_args(arguments)
    silence()
    if chosen.markers is not None:
        return _play_markers(chosen)
    if chosen.guards:
        # The seeds that tests/simulation/GUARDS.md names.
        chosen.first = chosen.first or 1
        return _hunt(chosen)
    if chosen.first is None:
        chosen.first = random.SystemRandom().randrange(10**6, 10**9)
    print(f"seeds from {chosen.first} on")
    return _simulate(chosen)


def _simulate(chosen: argparse.Namespace) -> int:
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    failed: list[int] = []
    kinds: Counter[str] = Counter()
    worked = 0.0
    ways = {"hands": chosen.hands, "replicas": chosen.replicas}
    for run in _all(chosen.first, chosen.seeds, chosen.jobs, ways):
        counts += run.counts
        worked += run.secs
        if run.violations:
            failed.append(run.seed)
            kinds.update({text.partition(":")[0] for text in run.violations})
    secs = report.Secs(time.perf_counter() - began, worked)
    print(report.totals(chosen.seeds, len(failed), secs, counts))
    if kinds:
        print("\nviolations by kind:", ", ".join(f"{k} {n}" for k, n in kinds.most_common()))
        print("failing seeds:", " ".join(map(str, failed[:50])))
    for seed in failed[: chosen.shown]:
        first: Outcome = play(planned(seed, **ways))
        print(f"\n{report.failure(first, shrunk(first, chosen.tries))}")
    return int(bool(failed))


def _hunt(chosen: argparse.Namespace) -> int:
    missed = 0
    for find in finds(chosen.only, chosen.first, chosen.seeds, chosen.jobs):
        missed += find.seed is None
        where = "NOT FOUND" if find.seed is None else f"seed {find.seed}"
        print(f"{find.guard:<34} {where:<10} {find.violation[:120]}", flush=True)
    return int(bool(missed))


def _play_markers(chosen: argparse.Namespace) -> int:
    first = chosen.first or 1
    if not chosen.guards:
        total = all_played(first, chosen.markers, chosen.jobs)
        print(described(total, chosen.markers, chosen.shown))
        return int(bool(total.wrong))
    missed = 0
    for name in MARKER_GUARDS:
        if chosen.only in name:
            wrong = played_markers(first, chosen.markers, name).wrong
            seed, texts = next(iter(wrong.items()), (None, ["NOT FOUND"]))
            missed += seed is None
            print(f"{name:<34} {seed}: {texts[0][:120]}", flush=True)
    return int(bool(missed))


def _all(first: int, count: int, jobs: int, ways: dict[str, bool]) -> Iterator[Played]:
    play_some = partial(played, **ways)
    seeds = iter(range(first, first + count))
    chunks = iter(lambda: list(islice(seeds, CHUNK)), [])
    if jobs == 1 or count <= CHUNK:
        yield from chain.from_iterable(map(play_some, chunks))
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from chain.from_iterable(pool.map(play_some, chunks))


if __name__ == "__main__":
    sys.exit(main())

"""A bounded share of the simulator: fixed seeds, and a few guards taken away.

Fresh seeds are for `make simulate`: a gate must not fall because of a seed that nobody played.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from blizzard_core.log import silence
from tests.simulation.__main__ import planned
from tests.simulation.draw import draw, drawn
from tests.simulation.guard_search import hunted
from tests.simulation.guards import GUARDS, Guard
from tests.simulation.markers.guards import GUARDS as MARKER_GUARDS
from tests.simulation.models import covered_scans, replaced_daemons
from tests.simulation.report import COMMAND, failure
from tests.simulation.run import play
from tests.simulation.shrink import shrunk
from tests.simulation.troubles.manual_changes import by_hand
from tests.simulation.world import SimulatedWorld
from tests.support.scenario import ROOT

FIXED = range(1, 41)
HANDS = range(700_000, 700_015)
# Each of these has shown a defect once.
UNDONE = (
    6,
    42,
    74,
    136,
    167,
    246,
    292,
    305,
    1398,
    1483,
    3121,
    16263,
    17627,
    20467,
    500119,
    700347,
    700379,
)
# Guards whose removal shows soon, and within how many seeds.
SOON = {
    "fenced_saves": 20,
    "sweep_reads_journal": 10,
    "letters_are_durable": 10,
    "pending_files_hold": 40,
    "sweep_looks": 20,
    "start_scans_all": 8,
    "floors_by_complete_scans": 41,
    "hints_after_saves": 21,
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    silence()


def named(name: str) -> Guard:
    return next(guard for guard in GUARDS if guard.name == name)


@pytest.mark.parametrize("seed", [3, 44, 90])
def test_one_seed_is_one_history(seed: int) -> None:
    first, second = play(draw(seed)), play(draw(seed))
    assert draw(seed) == draw(seed)
    assert (first.story, first.counts, first.steps) == (second.story, second.counts, second.steps)


@pytest.mark.promise("G-017", "G-194")
def test_the_promise_holds_for_fixed_seeds() -> None:
    wrong = {seed: found for seed in FIXED if (found := play(draw(seed)).violations)}
    assert not wrong


@pytest.mark.promise("G-191", "G-193", "G-194")
def test_the_promise_holds_while_people_undo_and_redo() -> None:
    seeds = (*UNDONE, *HANDS)
    wrong = {seed: found for seed in seeds if (found := play(by_hand(drawn(seed))).violations)}
    assert not wrong


@pytest.mark.promise("G-001")
def test_scans_of_a_part_lose_no_promised_file() -> None:
    assert not [seed for seed in range(1, 101) if covered_scans(seed)]


@pytest.mark.promise("G-222")
def test_replaced_daemons_leave_messages_to_the_last() -> None:
    assert not [seed for seed in range(1, 26) if replaced_daemons(seed)]


@pytest.mark.promise("G-223", "G-224")
def test_the_promise_holds_while_replicas_share_sources() -> None:
    counts: Counter[str] = Counter()
    for seed in (7, 1001, 1002):
        outcome = play(planned(seed, replicas=True))
        assert not outcome.violations, seed
        counts += outcome.counts
    assert counts["source taken from dead"] > 5
    assert counts["source released"] > 5


@pytest.mark.promise("G-226")
def test_only_files_whose_rows_are_committed_are_cleaned() -> None:
    outcomes = [play(draw(seed)) for seed in (45, 77, 253, 301)]
    assert not any(each.violations for each in outcomes)
    assert sum(each.counts["files cleaned"] for each in outcomes) > 40
    assert hunted(named("cleaned_if_unchanged"), 301, 1).seed is not None


@pytest.mark.promise("G-224")
def test_taking_a_source_without_its_release_is_noticed() -> None:
    assert hunted(named("released_before_take_over"), 7, 1).seed is not None


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.name for guard in GUARDS])
def test_every_guard_is_still_where_its_patch_takes_it_away(guard: Guard) -> None:
    with guard.patch(SimulatedWorld(draw(1))):
        pass


@pytest.mark.parametrize("name", SOON)
def test_removed_guard_is_noticed(name: str) -> None:
    assert hunted(named(name), 1, SOON[name]).seed is not None


def test_failing_plan_is_shortened_to_a_readable_one() -> None:
    guard = named("sweep_looks")
    seed = hunted(guard, 1, 20).seed
    assert seed is not None
    first = play(draw(seed), guard)
    short = shrunk(first, 60, guard)
    assert short.kinds & first.kinds
    assert len(short.plan.events) < len(first.plan.events) / 2
    told = failure(first, short)
    assert COMMAND.format(seed=seed) in told
    assert len(told.splitlines()) < 120


def test_every_guard_is_listed() -> None:
    text = (ROOT / "tests/simulation/GUARDS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)) == {g.name for g in GUARDS} | {
        *MARKER_GUARDS
    }
    assert len(GUARDS) >= 25

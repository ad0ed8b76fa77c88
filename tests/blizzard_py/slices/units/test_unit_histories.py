"""Random histories of units against the table they are read into; and without each rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from types import ModuleType

import pytest

from blizzard_core.errors import StateError
from blizzard_py.slices.units import due as due_module
from blizzard_py.slices.units.planner import Verdict, verdict
from blizzard_py.slices.units.schemes import Pair
from tests.support import unit_harness
from tests.support.unit_harness import UnitHarness, Wrong

HISTORIES = 1000
RUNS = 6

Rule = Callable[[Pair, datetime | None, datetime | None, timedelta], Verdict]


def test_every_unit_is_in_the_table_once_and_complete() -> None:
    for seed in range(HISTORIES):
        try:
            UnitHarness(seed).live(RUNS)
        except (Wrong, StateError) as error:
            raise AssertionError(f"history {seed}: {error}") from error


def _incomplete_by_cut_off(
    partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
) -> Verdict:
    found = verdict(partition, high, cut_off, shift)
    if found.reason == "incomplete" and cut_off is not None and partition[1] <= cut_off:
        return Verdict(False, found.low, "done")
    return found


def _turned(reason: str, execute: bool) -> Rule:
    def rule(
        partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
    ) -> Verdict:
        found = verdict(partition, high, cut_off, shift)
        return found._replace(execute=execute) if found.reason == reason else found

    return rule


def _grace_from_the_cut_off_on(
    partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
) -> Verdict:
    found = verdict(partition, high, cut_off, shift)
    if found.reason == "done" and partition[1] == cut_off and found.low < partition[1]:
        return Verdict(True, found.low, "grace")
    return found


def _first_wrong(histories: int = 400, *, forgives: bool = False) -> str:
    for seed in range(histories):
        try:
            UnitHarness(seed, forgives=forgives).live(RUNS)
        except (Wrong, StateError) as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (_turned("new", execute=False), "never reaches its end"),
        (_turned("abstinent", execute=True), "an empty range"),
        (_turned("incomplete", execute=False), "never reaches its end|was read at .* last"),
        (_turned("ahead", execute=True), "is read, .* is known"),
        (_turned("grace", execute=False), "was read at .* last"),
        (_grace_from_the_cut_off_on, "though its grace is over"),
        (_turned("done", execute=True), "an empty range|though its grace is over"),
    ],
)
def test_without_any_rule_of_the_planner_a_history_goes_wrong(
    monkeypatch: pytest.MonkeyPatch, rule: Rule, wrong: str
) -> None:
    monkeypatch.setattr(due_module, "verdict", rule)
    assert re.search(wrong, _first_wrong())


def test_without_pauses_units_are_read_before_these_are_over() -> None:
    assert "its pause is not over" in _first_wrong(forgives=True)


def test_without_widening_a_reading_begins_within_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_module, "slice_begin", lambda low, *_: low)
    assert re.search("within a slice|twice|known", _first_wrong())


def test_late_rows_after_a_failed_read_are_lost_without_owes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_module, "owes", lambda *_: False)
    assert re.search("was read at .* last", _first_wrong(1000))


def test_owes_also_finds_a_tail_before_the_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_module, "verdict", _incomplete_by_cut_off)
    assert _first_wrong() == ""
    monkeypatch.setattr(due_module, "owes", lambda *_: False)
    assert re.search("never reaches its end|was read at .* last", _first_wrong())


@pytest.mark.parametrize(
    ("module", "name", "stands_in"),
    [
        (due_module, "known_end", lambda unit: unit.high),
        (unit_harness, "read_since", lambda state, *_: state),
    ],
)
def test_history_goes_wrong_without_distrust_of_clock_and_state(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, stands_in: object
) -> None:
    monkeypatch.setattr(module, name, stands_in)
    assert re.search("was read at .* last|twice|never reaches", _first_wrong(1500))

"""The short version of the histories of groups; the long one is `tests.chaos.replacing`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blizzard_core.groups import Group
from penguin_py.delta import writer
from penguin_py.groups.verdict import Going, GroupJudge
from penguin_py.model import TableState
from tests.chaos.replacing.run import run


@pytest.mark.parametrize("seed", range(6))
def test_each_version_holds_each_unit_as_of_one_reading(tmp_path: Path, seed: int) -> None:
    found = run(tmp_path, seed)
    assert found["versions"] > 20
    assert found["deaths"] > 0


def test_it_is_the_zero_retries_that_hold_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRIES", None)
    with pytest.raises(AssertionError):
        run(tmp_path, 0)


def test_it_is_the_rewriting_that_holds_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = GroupJudge.going

    def going(self: GroupJudge, state: TableState, group: Group) -> Going:
        return replace(real(self, state, group), mixed=())

    monkeypatch.setattr(GroupJudge, "going", going)
    with pytest.raises(AssertionError):
        run(tmp_path, 0)

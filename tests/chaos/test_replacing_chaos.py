"""The short version of the histories of groups; the long one is `tests.chaos.replacing`."""

from __future__ import annotations

import random
from collections.abc import Container
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from blizzard_core.handover.groups import Group
from penguin_py.delta import writer
from penguin_py.groups.group_planner import GroupPlanner, Removals
from penguin_py.model import TableState
from tests.chaos.penguins import has_table, killed
from tests.chaos.replacing.history import run
from tests.support.group_publisher import Publisher, reading, unit
from tests.support.s3_server import S3Server
from tests.support.table_harness import HARNESSES, TableHarness, footer_pool


# Arrow closes in destructors what a death leaves open, and nobody can catch what that raises.
@pytest.mark.promise("G-084")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(3))
def test_each_version_holds_each_unit_as_of_one_reading(tmp_path: Path, seed: int) -> None:
    found = run(tmp_path, seed)
    assert found["versions"] > 20
    assert found["deaths"] > 0


@pytest.mark.promise("G-085")
def test_promise_breaks_with_commit_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRIES", None)
    with pytest.raises(AssertionError):
        run(tmp_path, 0, rate=0, between=0.9)
    for world in HARNESSES:  # its log removes what is not active, against the protocol
        world.tampered = True


@pytest.mark.promise("G-085")
def test_promise_breaks_without_rewriting_mixed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = GroupPlanner.plan_removes

    def without_rewrites(
        self: GroupPlanner, state: TableState, group: Group, known: Container[str]
    ) -> Removals:
        return replace(real(self, state, group, known), mixed=())

    monkeypatch.setattr(GroupPlanner, "plan_removes", without_rewrites)
    with pytest.raises(AssertionError):
        run(tmp_path, 0)


@pytest.mark.parametrize("store", ["local", "s3"])
def test_killed_processes_apply_each_group_once(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    """SIGKILL at any moment, while mixed files are rewritten for every group."""
    chance = random.Random(1)
    with footer_pool() as pool:
        world = TableHarness(str(tmp_path / "table"), pool)
        if store == "s3":
            s3: S3Server = request.getfixturevalue("s3")
            world = TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, s3.options)
        source, expected = Publisher(world), {}
        for number in range(5):
            for key in "ab":
                rows = {"id": [number], "_unit": [unit("p_s", key, 0)]}
                source.group([rows], replace=[reading("p_s", key, 0)])
                expected[key] = number
            killed(world, chance.uniform(0, 0.8))
            if has_table(world):
                with suppress(DeltaError):  # a request of the dead one that is applied only now
                    world.delta().optimize.compact()
        world.run()
        found = {row["_unit"]: row["id"] for row in world.rows()}
        assert found == {unit("p_s", key, 0): number for key, number in expected.items()}
        assert len(world.rows()) == 2

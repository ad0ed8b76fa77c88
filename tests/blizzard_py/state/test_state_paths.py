"""Names of a run's state, composed and taken apart."""

from __future__ import annotations

import pytest

from blizzard_py.state.state_paths import StatePaths


@pytest.mark.parametrize("name", ["events_main", "a.b~replay", "x_d=1%2F..d=2", "a_ledger"])
def test_a_checkpoint_is_known_by_its_path(name: str) -> None:
    paths = StatePaths(name)
    assert StatePaths.of_checkpoint(paths.checkpoint) == paths
    every = [paths.checkpoint, paths.ledger, paths.processed, paths.journal, paths.staging]
    assert len(set(every)) == len(every)
    assert [StatePaths.of_checkpoint(path) for path in every[1:]] == [None] * 4


@pytest.mark.parametrize(
    "path",
    [
        "_blizzard/events_schema.json",
        "_blizzard/events_main_checkpoint.json.1234.tmp",
        "_blizzard/journal/events_main_checkpoint.json",
        "_penguin/events_checkpoint.json",
        "events_main_checkpoint.json",
    ],
)
def test_other_paths_are_not_recognized_as_checkpoints(path: str) -> None:
    assert StatePaths.of_checkpoint(path) is None

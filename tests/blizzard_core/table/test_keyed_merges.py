"""The merge that brought the changes of a version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from blizzard_core.storage.opening import open_storage
from blizzard_core.table.keyed_merges import find_merge


def log(folder: Path, merged: Sequence[int | None]) -> None:
    """Write a log whose commits have merged so many versions; None: of another writer."""
    (folder / "_delta_log").mkdir(parents=True)
    for version, number in enumerate(merged):
        document = {"merged": number, "outcomes": {"new": version}}
        own = {} if number is None else {"penguin": document}
        entry = msgspec.json.encode({"commitInfo": {"operation": "x", **own}})
        (folder / "_delta_log" / f"{version:020d}.json").write_bytes(entry)


@pytest.mark.unreadable_tables
@pytest.mark.parametrize(
    "merged", [[1, 2, 3], [2, None, 5, None, None, 5, 9, None], [None, 4], [None], [3, 3, 7, 8, 20]]
)
def test_the_first_merge_with_a_version_is_found(
    tmp_path: Path, merged: Sequence[int | None]
) -> None:
    log(tmp_path, merged)
    storage = open_storage(str(tmp_path), {})
    for version in range(22):
        found = find_merge(storage, version)
        expected = [at for at, number in enumerate(merged) if number and number > version]
        assert (None if found is None else found.version) == next(iter(expected), None)
        assert found is None or found.outcomes == {"new": found.version}


def test_a_table_that_is_not_there_has_no_merge(tmp_path: Path) -> None:
    assert find_merge(open_storage(str(tmp_path / "none"), {}), 0) is None

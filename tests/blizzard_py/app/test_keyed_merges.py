"""Explanations of files whose rows are in a keyed table, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.keyed_merges import find_merge, with_merge
from blizzard_py.explain import Explanation, Merged, lines
from blizzard_py.explain.explanation import Output
from tests.support.keyed_configuration import write


def explained(folder: Path, *versions: int | None) -> list[str]:
    """Explain a file whose outputs were committed in these versions."""
    outputs = tuple(Output("a", 1, "committed", version) for version in versions)
    found = Explanation("u", "ingested", "r", "orders/main", (), "p", outputs=outputs)
    found = with_merge("orders", load_config(write(folder)).pipelines["orders"], found)
    assert ("merged" in found.to_json()) is (found.merged is not None)
    return [line.split(maxsplit=1)[1] for line in lines(found) if line.startswith("  keyed")]


@pytest.mark.unreadable_tables
def test_explain_names_the_merge_of_a_file(tmp_path: Path) -> None:
    log = tmp_path / "current" / "_delta_log"
    log.mkdir(parents=True)
    outcomes = {"new": 1200, "without_key": 1}
    for version, merged in enumerate((4, 8)):
        document = {"merged": merged, "outcomes": outcomes}
        entry = msgspec.json.encode({"commitInfo": {"penguin": document}})
        (log / f"{version:020d}.json").write_bytes(entry)
    text = "orders_keyed: merged in version 1, with changes up to version 7: "
    assert explained(tmp_path, 2, 5) == [f"{text}1,200 new, 1 without key"]
    assert explained(tmp_path, 2, 8) == ["orders_keyed: not merged yet"]
    assert explained(tmp_path, None) == []


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
        found = find_merge(storage, "t", version)
        expected = [at for at, number in enumerate(merged) if number and number > version]
        assert found.version == next(iter(expected), None)
        assert found.version is None or found.outcomes == {"new": found.version}


def test_a_table_that_is_not_there_has_no_merge(tmp_path: Path) -> None:
    assert find_merge(open_storage(str(tmp_path / "none"), {}), "t", 0) == Merged("t")

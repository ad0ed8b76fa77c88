"""Explanations of files whose rows are in a keyed table, too."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from blizzard_core.settings.load import load_config
from blizzard_py.app.keyed_merges import with_merge
from blizzard_py.explain import Explanation, lines
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

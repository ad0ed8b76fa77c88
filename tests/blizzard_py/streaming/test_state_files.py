"""Files of state that a shared file system does not show yet are missed before they are packed."""

from __future__ import annotations

import json
from pathlib import Path

from blizzard_py.streaming.state_files import unseen


def test_every_id_of_a_commit_has_a_file(tmp_path: Path) -> None:
    ids = {"0": [["a-1"], ["b-2"]], "1": [["c-3", "d-4"]]}
    (tmp_path / "commits").mkdir()
    entry = json.dumps({"nextBatchWatermarkMs": 5, "stateUniqueIds": ids})
    (tmp_path / "commits" / "7").write_text(f"v2\n{entry}")
    for name in ("0/0/8_a-1.changelog", "0/1/8_b-2.zip", "1/0/left/8_c-3.changelog"):
        path = tmp_path / "state" / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert unseen(tmp_path, 7) == {"d-4"}
    (tmp_path / "state" / "1" / "0" / "8_d-4.changelog").touch()
    assert unseen(tmp_path, 7) == frozenset()


def test_a_query_without_state_has_nothing_to_show(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text('v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')
    assert unseen(tmp_path, 0) == frozenset()

"""Files of state that a shared file system does not show yet are missed before they are packed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from blizzard_py.streaming.state_files import unseen


def committed(root: Path, ids: object) -> Path:
    """A checkpoint directory whose micro-batch 7 has these ids; where a store's files are."""
    (root / "commits").mkdir()
    entry = json.dumps({"nextBatchWatermarkMs": 5, "stateUniqueIds": ids})
    (root / "commits" / "7").write_text(f"v2\n{entry}")
    folder = root / "state" / "0" / "0"
    folder.mkdir(parents=True)
    return folder


def put_archive(path: Path, *parts: str) -> None:
    """A snapshot as Spark 4.3 writes it."""
    named = [{"localFileName": "000008.sst", "dfsSstFileName": name} for name in parts]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": named, "numKeys": 1}))


@pytest.mark.promise("G-081")
def test_every_id_of_a_commit_has_a_file(tmp_path: Path) -> None:
    folder = committed(tmp_path, {"0": [["a-1"], ["b-2"]], "1": [["c-3", "d-4"]]})
    for name in ("0/0/8_a-1.changelog", "0/1/8_b-2.zip", "1/0/left/8_c-3.changelog"):
        path = tmp_path / "state" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put_archive(path)
    assert unseen(tmp_path, 7, is_shared=True) == {"d-4"}
    for checksum in (".8_d-4.changelog.crc", "8_d-4.changelog.crc", ".8_d-4.changelog.crc.crc"):
        (folder / checksum).touch()
        assert unseen(tmp_path, 7, is_shared=True) == {"d-4"}
    (tmp_path / "state" / "1" / "0" / "8_d-4.changelog").touch()
    assert unseen(tmp_path, 7, is_shared=True) == frozenset()


@pytest.mark.promise("G-081")
@pytest.mark.parametrize("made", ["whole", "cut"])
def test_a_snapshot_has_all_its_parts(tmp_path: Path, made: str) -> None:
    """Its folder may be shown before that of its parts, and itself before its content."""
    folder = committed(tmp_path, {"0": [["a-1"]]})
    (folder / "8_a-1.changelog").touch()
    # Of an older one that is on its way out the parts may be gone.
    put_archive(folder / "5_z-0.zip", "000001-z.sst")
    put_archive(folder / "12_y-0.zip", "000008-y.sst", "000009-y.sst")
    (folder / "SSTs").mkdir()
    (folder / "SSTs" / "000008-y.sst").touch()
    assert unseen(tmp_path, 7, is_shared=True) == {"000009-y.sst"}
    assert unseen(tmp_path, 7, is_shared=False) == frozenset()
    (folder / "SSTs" / "000009-y.sst").touch()
    if made == "cut":
        archive = folder / "12_y-0.zip"
        archive.write_bytes(archive.read_bytes()[:40])
    assert unseen(tmp_path, 7, is_shared=True) == ({"12_y-0.zip"} if made == "cut" else frozenset())


def test_a_query_without_state_has_nothing_to_show(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text('v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')
    assert unseen(tmp_path, 0, is_shared=True) == frozenset()

"""The demo from a stranger's view; other engines read its table."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.settings.load import load_config
from blizzard_py.demo.edits import configuration
from blizzard_py.demo.report import measure, table_size
from blizzard_py.demo.stage import staged


@pytest.mark.unreadable_tables("polars opens none in a folder with a space")
def test_any_folder_will_do(tmp_path: Path) -> None:
    place = tmp_path / "my: #demo ${X}"
    place.mkdir()
    path = place / "demo.yaml"
    path.write_text(configuration(place))
    pipeline = load_config(path, {}).pipelines["wikipedia"]
    assert pipeline.sink.table_uri == str(place / "lake/wikipedia")
    table = place / "lake/wikipedia"
    table.mkdir(parents=True)
    edits = {"added": [1, 2], "delta": [3, 4], "day": ["a b", "c"]}
    write_deltalake(table, pa.table(edits), partition_by=["day"])
    assert table_size(table) == (2, 2)
    assert measure(table) == {"rows": 2, "sum(added)": 3, "sum(delta)": 7}


@pytest.mark.parametrize("place", ["/proc/x", "/dev/full"])
def test_impossible_folder_is_named(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert staged(Path(place), lambda *_: True, "table", "Done") == 1
    assert f"demo: {place}: " in capsys.readouterr().out


def test_full_disk_is_reported_with_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scenes(*_: object) -> bool:
        raise OSError(ENOSPC, "No space left on device")

    assert staged(tmp_path, scenes, "table", "Done") == 1
    told = capsys.readouterr().out
    assert f"{tmp_path}: No space left on device; give another folder" in told

"""A watermark is of the folder and the format that it was read in, and of no other."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import StateError
from blizzard_core.settings.document import Config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.wiring import context_of
from blizzard_py.edits.rename import Rename
from tests.support.lake_pipelines import config_of, poll, write
from tests.support.query_harness import KernelEngine
from tests.support.text_lakes import at


def config(folder: Path, form: str = "csv", lake: str = "") -> Config:
    document = config_of(folder, form).model_dump(mode="json", by_alias=True, exclude_unset=True)
    if lake:
        document["connections"]["lake"]["uri"] = lake
    return Config.model_validate(document)


def ids(folder: Path) -> list[int]:
    files = (folder / "table").glob("*.parquet")
    return sorted(row["id"] for path in files for row in pq.read_table(path).to_pylist())


@pytest.fixture
def lakes(tmp_path: Path) -> Path:
    """Two lakes, the second one's rows on both sides of the first one's watermark, which is 5."""
    write("csv", tmp_path / "lake" / "in" / "a", [{"id": 1, "at": at(1)}, {"id": 2, "at": at(5)}])
    write("csv", tmp_path / "other" / "in" / "a", [{"id": 3, "at": at(2)}, {"id": 4, "at": at(9)}])
    write("json", tmp_path / "lake" / "in" / "b", [{"id": 5, "at": at(2)}, {"id": 6, "at": at(9)}])
    poll(config(tmp_path))
    return tmp_path


@pytest.mark.parametrize("spelling", ["{}/lake/", "file://{}/lake", "{}/./lake"])
def test_another_spelling_goes_on(lakes: Path, spelling: str) -> None:
    write("csv", lakes / "lake" / "in" / "c", [{"id": 7, "at": at(7)}])
    poll(config(lakes, lake=spelling.format(lakes)))
    assert ids(lakes) == [1, 2, 7]


@pytest.mark.parametrize(("form", "folder"), [("csv", "other"), ("json", "lake")])
def test_another_lake_is_refused_until_the_state_is_renamed(
    lakes: Path, form: str, folder: str
) -> None:
    other = config(lakes, form, str(lakes / folder))
    with pytest.raises(StateError, match=rf"now says lake:in, {form} in .*/{folder};") as told:
        poll(other)
    assert "--moved-from 'lake:in'" in str(told.value)
    assert ids(lakes) == [1, 2]
    engine = KernelEngine(LocalStorage(str(lakes / "table")))  # type: ignore[arg-type]  # any storage will do
    Rename(context_of(other, ("p", "s"), engine), "p_s", "lake:in").run()  # type: ignore[arg-type]  # see above
    poll(other)
    assert ids(lakes) == [1, 2, 4 if form == "csv" else 6]


def test_a_checkpoint_that_does_not_say_which_goes_on(lakes: Path) -> None:
    path = lakes / "table" / "_blizzard" / "p_s_checkpoint.json"
    document = json.loads(path.read_text())
    del document["source"]["lake"]
    path.write_text(json.dumps(document))
    write("csv", lakes / "lake" / "in" / "c", [{"id": 7, "at": at(7)}])
    poll(config(lakes))
    assert ids(lakes) == [1, 2, 7]
    assert json.loads(path.read_text())["source"]["lake"] == f"csv in {lakes}/lake"

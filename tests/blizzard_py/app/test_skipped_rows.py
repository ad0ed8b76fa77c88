"""Files of a table that come without the watermark's column: told until somebody has answered."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blizzard_core.settings.document import Config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.inspection import status
from blizzard_py.state.status_notes import SkippedNote, skipped_rows
from tests.support.lake_pipelines import config_of, poll, write
from tests.support.text_lakes import START, at

DAY = dt.timedelta(days=1)


def notes(config: Config) -> list[str]:
    document, errors = status(config)
    assert not errors
    return document["pipelines"]["p"]["sources"]["s"].get("notes", [])


@pytest.mark.promise("G-076")
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_status_tells_of_a_late_file_without_a_watermark(tmp_path: Path, form: str) -> None:
    config, lake = config_of(tmp_path, form), tmp_path / "lake" / "in"
    write(form, lake / "a", [{"id": 1, "at": at(1)}])
    poll(config)
    assert notes(config) == []
    write(form, lake / "b", [{"id": 2, "other": at(2)}])
    for _ in range(2):
        poll(config)  # there is nothing to read, and no batch that could tell
        [note] = notes(config)
        assert f"1 file without any value of at, such as b.{form}" in note
    poll(config_of(tmp_path, form, "never"))  # somebody says so
    assert notes(config) == []
    poll(config)
    assert len(notes(config)) == 1
    write(form, lake / "b", [{"id": 2, "at": at(2)}])
    poll(config)
    assert notes(config) == []
    rows = [r for p in (tmp_path / "table").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert sorted(row["id"] for row in rows) == [1, 2]


@pytest.mark.promise("G-076")
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_status_goes_on_telling_when_a_newer_date_folder_comes(tmp_path: Path, form: str) -> None:
    """A poll looks into the newest folders; the file stays in one that no poll would look into."""
    config = config_of(tmp_path, form, below="/{year}-{month}-{day}")

    folders = [tmp_path / "lake" / "in" / f"{START + days * DAY:%Y-%m-%d}" for days in range(2)]
    write(form, folders[0] / "a", [{"id": 1, "at": at(1)}])
    poll(config)
    write(form, folders[0] / "b", [{"id": 2, "other": at(2)}])
    poll(config)
    write(form, folders[1] / "c", [{"id": 3, "at": at(DAY.total_seconds())}])
    for _ in range(2):
        poll(config)  # each by a process of its own
        [note] = notes(config)
        assert f"1 file without any value of at, such as {folders[0].name}/b.{form}" in note
    write(form, folders[0] / "b", [{"id": 2, "at": at(2)}])
    poll(config)
    assert notes(config) == []


def test_unreadable_note_of_skipped_rows_is_reported(tmp_path: Path) -> None:
    sink = LocalStorage(str(tmp_path))
    note = SkippedNote(sink, "p_s")
    note.keep(("žluťoučký \udcff",))
    assert skipped_rows(sink, "p_s") == ("žluťoučký \udcff",)
    (tmp_path / "_blizzard" / "skipped" / "p_s.json").write_text("{")
    assert "cannot be read" in skipped_rows(sink, "p_s")[0]
    assert note.files() == ()
    note.keep(("a file",), ("a\udcff.csv",))
    assert SkippedNote(sink, "p_s").files() == ("a\udcff.csv",)
    note.keep(())
    assert skipped_rows(sink, "p_s") == ()

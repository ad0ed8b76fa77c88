"""Date folders of a lake: which files a window leaves out by name, and what that rests on."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.parquet import ParquetForm
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.support.lake_reading import rows_of
from tests.support.parquet_lakes import DATED, UTC, at, ids, poller, put

DAYS = (DATED[0], FieldSpec("at", "date", nullable=True))


def on(day: int, month: int = 2) -> dt.datetime:
    return dt.datetime(2026, month, day, 12, tzinfo=UTC)


def test_date_folders_are_pruned_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(1, 6):
        folder = tmp_path / "t" / "2026" / "05" / f"{day:02}"
        put(folder / "a.parquet", [{"id": day, "at": dt.datetime(2026, 5, day, 13, tzinfo=UTC)}])
    source = poller(tmp_path, table="t/{year}/{month}/{day}", fields=DATED)
    assert ids(source.poll()) == [1, 2, 3, 4, 5]
    put(
        tmp_path / "t/2026/05/05/b.parquet",
        [{"id": 6, "at": dt.datetime(2026, 5, 5, 14, tzinfo=UTC)}],
    )
    put(tmp_path / "t/2026/05/06/a.parquet", [{"id": 7, "at": dt.datetime(2026, 5, 6, tzinfo=UTC)}])
    up_to, _ = source.plan()
    # A new process knows nothing of old files, and has no need to.
    opened: list[str] = []
    facts = ParquetForm.facts

    def noted(form: ParquetForm, storage: Any, file: Any, columns: Any) -> Any:
        opened.append(file.name.path)
        return facts(form, storage, file, columns)

    monkeypatch.setattr(ParquetForm, "facts", noted)
    fresh = poller(tmp_path, table="t/{year}/{month}/{day}", fields=DATED)
    tasks = fresh.connect().tasks(Window(source.stored, up_to, source.stored), source.split)
    assert sorted(opened) == [
        "2026/05/05/a.parquet",
        "2026/05/05/b.parquet",
        "2026/05/06/a.parquet",
    ]
    assert ids(rows_of(read, source.access, tasks, source.fields)) == [6, 7]


@pytest.mark.promise("G-143")
@pytest.mark.parametrize(
    ("pattern", "spelling"),
    [
        ("{year}/{month}/{day}", "{0.year}/{0.month}/{0.day}"),
        ("year={year}/month={month}", "year={0.year}/month={0.month}"),
        ("{day}.{month}.{year}", "{0.day:02}.{0.month:02}.{0.year}"),
        ("{year}", "{0.year}"),
    ],
)
def test_folders_in_any_spelling_lose_no_row(tmp_path: Path, pattern: str, spelling: str) -> None:
    chance = random.Random(pattern)
    (tmp_path / "t").mkdir()
    source = poller(tmp_path, table=f"t/{pattern}", fields=DATED)
    now = dt.datetime(2025, 12, 1, tzinfo=UTC)
    for number in range(60):
        now += dt.timedelta(hours=chance.randint(1, 200))
        put(
            tmp_path / "t" / spelling.format(now) / f"{number}.parquet", [{"id": number, "at": now}]
        )
        assert ids(source.poll()) == [number]


def test_other_watermarks_do_not_follow_date_folders(tmp_path: Path) -> None:
    source = poller(tmp_path, ("id",), table="t/{year}", fields=DATED)
    put(tmp_path / "t/2025/a.parquet", [{"id": 9, "at": at(0)}])
    put(tmp_path / "t/2026/a.parquet", [{"id": 1, "at": at(0)}])
    assert ids(source.poll()) == [1, 9]
    assert source.stored == {"id": 9}
    put(tmp_path / "t/2024/a.parquet", [{"id": 10, "at": at(0)}])
    assert ids(source.poll()) == [10]


@pytest.mark.promise("G-144")
@pytest.mark.parametrize(
    "place", ["backfill", "year=2026", "0000", "year=late/month=02", "zz", ".", "year=2026/extra"]
)
def test_files_that_no_folder_dates_are_read(tmp_path: Path, place: str) -> None:
    source = poller(tmp_path, table="t/year={year}/month={month}", fields=DATED)
    put(tmp_path / "t/year=2026/month=02/a.parquet", [{"id": 1, "at": on(5)}])
    assert ids(source.poll()) == [1]
    # It raises the bound, wherever its name sorts, so a task has to read it.
    put(tmp_path / f"t/{place}/b.parquet", [{"id": 2, "at": on(20)}])
    put(tmp_path / "t/year=2026/month=02/c.parquet", [{"id": 3, "at": on(10)}])
    assert ids(source.poll()) == [2, 3]
    assert source.stored == {"at": on(20)}
    put(tmp_path / "t/year=2026/month=03/d.parquet", [{"id": 4, "at": on(5, month=3)}])
    assert ids(source.poll()) == [4]


@pytest.mark.parametrize("hour", [0, 23])
def test_folders_of_the_column_s_time_are_fine(tmp_path: Path, hour: int) -> None:
    moment = dt.datetime(2026, 2, 5, hour, 59, 59, 999_999, tzinfo=UTC)
    put(tmp_path / "t/2026/02/05/a.parquet", [{"id": 1, "at": moment}])
    put(tmp_path / "u/2026/02/05/a.parquet", [{"id": 1, "at": moment.date()}])
    for table, fields in (("t", DATED), ("u", DAYS)):
        source = poller(tmp_path, table=f"{table}/{{year}}/{{month}}/{{day}}", fields=fields)
        assert source.connect().warnings() == ()
        assert source.connect().bound("max", 0).warnings == ()


@pytest.mark.promise("G-144")
@pytest.mark.parametrize("moment", [on(4), on(6), dt.datetime(2026, 2, 6, tzinfo=UTC)])
def test_folders_of_another_time_are_refused(tmp_path: Path, moment: dt.datetime) -> None:
    put(tmp_path / "t/2026/02/05/a.parquet", [{"id": 1, "at": moment}])
    put(tmp_path / "u/2026/02/05/a.parquet", [{"id": 1, "at": moment.date()}])
    for table, fields in (("t", DATED), ("u", DAYS)):
        source = poller(tmp_path, table=f"{table}/{{year}}/{{month}}/{{day}}", fields=fields)
        with pytest.raises(SourceError, match=r"02/05/a\.parquet: at reaches .* from `table`"):
            source.connect().warnings()
        (warning,) = source.connect().bound("max", 0).warnings
        assert "names another time" in warning

"""Partitions by any column, through both daemons, as other engines read them."""

from __future__ import annotations

import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from blizzard_core.settings.document import Config
from blizzard_py.app.workers import build
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import tables_of
from tests.support.direct_engine import DirectEngine
from tests.support.table_harness import footer_pool

FIELDS = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "time", "type": "timestamp", "nullable": False},
    {"name": "country", "type": "string"},
    {"name": "shop", "type": "int32"},
    {"name": "open", "type": "boolean"},
    {"name": "day", "type": "date"},
]
COUNTRIES = ["DE", "a/b=c", "100%", "é ü", "..", "__x", "tab\tline\n", "'\"*?:", "😀", None, ""]

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "time": f"2024-01-0{1 + number % 2}T{number % 24:02d}:30:00Z",
        "country": COUNTRIES[number % len(COUNTRIES)],
        "shop": [None, -1, 0, 2147483647][number % 4],
        "open": [True, False, None][number % 3],
        "day": ["1969-12-31", None, "2024-02-29"][number % 3],
    }
    for number in range(132)
]


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as a table gives it back: Delta reads an empty partition value as null."""
    time = dt.datetime.fromisoformat(row["time"])
    day = row["day"] and dt.date.fromisoformat(row["day"])
    return {**row, "time": time, "day": day, "country": row["country"] or None}


def config(folder: Path, columns: list[Any]) -> Config:
    return Config.model_validate(
        {
            "pipelines": {
                "shops": {
                    "sources": {"main": {"source_uri": str(folder / "raw")}},
                    "sink": {
                        "table_uri": str(folder / "lake"),
                        "partition_by": {"columns": columns},
                    },
                    "schema": {"fields": FIELDS},
                }
            }
        }
    )


def through_both(folder: Path, columns: list[Any], rows: list[dict[str, Any]]) -> DeltaTable:
    (folder / "raw").mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "raw/1.ndjson").write_text(lines, encoding="utf-8")
    settings = config(folder, columns)
    [worker] = build(settings, DirectEngine())
    assert worker.cycle(threading.Event())
    [table] = tables_of(settings)
    with footer_pool() as pool:
        log = DeltaLog(table, worker.sink, pool)
        assert TablePipeline(table, worker.sink, log, pool, lambda: 1_900_000_000.0).cycle(
            threading.Event()
        )
    return DeltaTable(folder / "lake")


def by_delta_rs(table: DeltaTable) -> list[dict[str, Any]]:
    return list(pa.table(table.to_pyarrow_dataset().to_table()).to_pylist())


def by_duckdb(table: DeltaTable) -> list[dict[str, Any]]:
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        db.register("shops", table.to_pyarrow_dataset())
        return list(db.sql("select * from shops").to_arrow_table().to_pylist())


def by_polars(table: DeltaTable) -> list[dict[str, Any]]:
    return pl.read_delta(table.table_uri).to_dicts()


@pytest.mark.parametrize(
    "columns",
    [
        ["country"],
        ["shop", "open"],
        ["day", {"column": "time", "transform": "date"}, {"column": "time", "transform": "hour"}],
        ["time"],
        [{"column": "country", "name": "land"}],
    ],
    ids=repr,
)
def test_readers_see_one_column_with_the_right_values(tmp_path: Path, columns: list[Any]) -> None:
    table = through_both(tmp_path, columns, ROWS)
    names = [name if isinstance(name, str) else name.get("name") for name in columns]
    wanted = []
    for row in ROWS:
        expected = as_read(row)
        if "country" not in columns:
            expected["country"] = row["country"]
        if "land" in names:
            expected["land"] = row["country"] or None
        if len(columns) == 3:
            expected |= {"date": expected["time"].date(), "hour": f"{expected['time']:%H}"}
        wanted.append(expected)
    for read in (by_delta_rs, by_duckdb, by_polars):
        assert sorted(read(table), key=lambda row: row["id"]) == wanted, read.__name__


def test_a_filter_on_a_partition_finds_its_rows(tmp_path: Path) -> None:
    table = through_both(tmp_path, ["country", {"column": "time", "transform": "date"}], ROWS)
    frame = pl.scan_delta(table.table_uri).filter(pl.col("country") == "100%").collect()
    wanted = [row["id"] for row in ROWS if row["country"] == "100%"]
    assert sorted(frame["id"].to_list()) == wanted


def test_value_unfit_for_a_path_quarantines_its_file(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/1.ndjson").write_text(
        json.dumps({**ROWS[0], "country": "x" * 300}) + "\n", encoding="utf-8"
    )
    (tmp_path / "raw/2.ndjson").write_text(json.dumps(ROWS[0]) + "\n", encoding="utf-8")
    [worker] = build(config(tmp_path, ["country"]), DirectEngine())
    assert worker.cycle(threading.Event())
    letters = "".join(p.read_text() for p in (tmp_path / "lake/_blizzard/dlq").rglob("*.ndjson"))
    assert "a value of 'country' takes 308 bytes as a directory" in letters
    assert "x" * 100 not in letters
    assert [p.parent.name for p in (tmp_path / "lake").glob("*/*.parquet")] == ["country=DE"]

"""A SQLite table from the configuration to Parquet files: what the commands say on the way."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from blizzard_core.errors import ColdStartRefused, ConfigError, Unavailable
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.app import inspection
from blizzard_py.app.asked_backfill import backfill_worker
from blizzard_py.app.given_files import files_by_source
from blizzard_py.app.operations import asked_columns, rename_of
from blizzard_py.app.query_validation import validate_asked
from blizzard_py.app.wiring import parts_of, source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.tables.backfill import RangeRefused
from blizzard_py.state.source_state import checkpoint_path
from tests.support.direct_engine import DirectEngine

WHERE = ("orders", "erp")


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / "shop.db"
        self.document: dict[str, Any] = {
            "connections": {"shop": {"driver": "sqlite", "uri": str(self.base)}},
            "pipelines": {
                "orders": {
                    "sources": {
                        "erp": {
                            "kind": "table",
                            "id": "erp-orders",
                            "connection": "shop",
                            "table": "orders",
                            "watermark": {"columns": ["id"]},
                        }
                    },
                    "sink": {"table_uri": str(folder / "lake")},
                    "schema": {
                        "fields": [
                            {"name": "id", "type": "int64"},
                            {"name": "amount", "type": "decimal(12,2)"},
                        ]
                    },
                }
            },
        }
        self.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount TEXT, at TEXT)")

    def execute(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.base)) as base, base:
            for statement in statements:
                base.execute(statement)

    @property
    def source(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["pipelines"]["orders"]["sources"]["erp"]
        return found

    def config(self) -> Config:
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.document))
        return load_config(path, {})

    def run(self) -> SourcePipeline:
        worker = source_pipeline(parts_of(self.config(), WHERE, DirectEngine()))
        with contextlib.closing(worker):
            while worker.cycle(threading.Event()):
                pass
        return worker

    def rows(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "lake").glob("*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def plan(self, **options: Any) -> dict[str, Any]:
        document, errors = inspection.plan(self.config(), **options)
        assert errors == []
        json.dumps(document)
        found: dict[str, Any] = document["pipelines"]["orders"]["sources"]["erp"]
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_plan_run_and_status_tell_of_windows(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1.5', ''), (2, '2.25', '')")
    planned = shop.plan()
    assert planned["state"] == "Initial"
    assert planned["window"] == {"after": {}, "up_to": {"id": 2}, "low": {}}
    assert planned["query"] == "SELECT * FROM orders WHERE id <= 2 OR (id IS NULL)"
    assert [task["name"] for task in planned["tasks"]] == ["0"]
    assert "SELECT" in planned["tasks"][0]["where"]
    assert not (shop.folder / "lake").exists()
    shop.run()
    shop.execute("INSERT INTO orders VALUES (3, '3', '')")
    shop.run()
    assert [row["id"] for row in shop.rows()] == [1, 2, 3]
    planned = shop.plan()
    assert (planned["window"], planned["query"], planned["tasks"]) == (None, None, [])
    assert planned["watermark"] == planned["bound"]["value"] == {"id": 3}
    status, errors = inspection.status(shop.config())
    found = status["pipelines"]["orders"]["sources"]["erp"]
    assert errors == []
    assert found["watermark"] == {"id": 3}
    assert (found["kind"], found["bound"], found["rows"]) == ("table", "max", 3)
    assert found["boundaries"] == []
    assert found["state"] == "Idle"


def test_offline_bounds_are_of_the_time_that_is_given(shop: Shop) -> None:
    shop.source["watermark"] = {"columns": ["at"], "bound": "clock", "settle": "1m"}
    shop.document["connections"]["shop"]["uri"] = str(shop.folder / "not there.db")
    now = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
    planned = shop.plan(now=now, offline=True)
    assert planned["bound"]["value"] == {"at": {"__datetime__": "2026-05-04T11:59:00+00:00"}}
    assert planned["query"].startswith("SELECT * FROM orders WHERE at <= ")
    assert planned["tasks"] == []


def test_validate_tells_what_the_server_knows(shop: Shop) -> None:
    notes = validate_asked(shop.config())
    assert any("bound max: missed are lower values" in note for note in notes)
    shop.source["watermark"]["columns"] = ["nr"]
    shop.document["pipelines"]["orders"]["schema"]["fields"].append({"name": "x", "type": "json"})
    with pytest.raises(ConfigError) as caught:
        validate_asked(shop.config())
    first, second = caught.value.problems
    assert "watermark.columns: there is no column 'nr'; there are: id, amount, at" in first
    assert "has no column 'x', which schema.fields declares" in second
    shop.document["connections"]["shop"]["uri"] = str(shop.folder / "gone.db")
    [note] = validate_asked(shop.config())
    assert "could not be asked now" in note


def test_explain_tells_window_statement_and_outputs(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1.5', '')")
    shop.run()
    shop.execute("INSERT INTO orders VALUES (2, '1.5', '')")
    waits = inspection.explain(shop.config(), "orders/erp")
    assert (waits.verdict, waits.uri) == ("pending", "000000000001#0")
    assert waits.task is not None
    assert waits.task.window == {"after": {"id": 1}, "up_to": {"id": 2}}
    assert "SELECT" in (waits.task.statement or "")
    done = inspection.explain(shop.config(), "orders/erp#000000000000#0")
    assert done.verdict == "ingested"
    assert done.outputs
    assert inspection.explain(shop.config(), "orders/erp#000000000009#0").verdict == "missing"


def test_what_is_for_files_only_is_refused_by_name(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="has no files to ingest"):
        files_by_source(shop.config(), ["/x"], (None, None))
    assert asked_columns(shop.config(), WHERE) == ("id",)


def test_a_server_that_is_gone_waits_and_shows_no_secret(shop: Shop) -> None:
    shop.document["connections"]["shop"]["uri"] = str(shop.folder / "gone.db")
    with pytest.raises(Unavailable):
        shop.run()
    _, errors = inspection.plan(shop.config())
    assert len(errors) == 1


def worked_off(worker: SourcePipeline) -> None:
    with contextlib.closing(worker):
        while worker.cycle(threading.Event()):
            pass


def filled(shop: Shop, first: str, last: str, chunk: str = "", *, save: bool = False) -> None:
    engine = DirectEngine()
    worked_off(backfill_worker(shop.config(), WHERE, (first, last), chunk, engine, save=save))


def ids(shop: Shop) -> list[int]:
    return sorted(row["id"] for row in shop.rows())


def test_a_first_load_in_chunks_and_the_live_source_begins_at_its_end(shop: Shop) -> None:
    values = ", ".join(f"({n}, '1', '')" for n in range(1, 60))
    shop.execute(f"INSERT INTO orders VALUES {values}")
    with pytest.raises(RangeRefused, match="give --save"):
        filled(shop, "1", "50", "step=20")
    engine = DirectEngine()
    worker = backfill_worker(shop.config(), WHERE, ("1", "50"), "step=20", engine, save=True)
    worker.cycle(threading.Event())  # a chunk, and the process is gone
    worker.close()
    assert ids(shop) == list(range(1, 20))
    shop.run()
    assert ids(shop) == [*range(1, 20), *range(50, 60)]
    filled(shop, "1", "50", "step=20", save=True)
    assert ids(shop) == list(range(1, 60))
    filled(shop, "1", "50", "step=20")
    assert ids(shop) == list(range(1, 60))
    for first, last in (("40", "60"), ("10", "20")):
        with pytest.raises(RangeRefused):
            filled(shop, first, last)


def test_a_backfill_without_its_checkpoint_is_refused_and_another_goes_on(shop: Shop) -> None:
    values = ", ".join(f"({n}, '1', '')" for n in range(1, 60))
    shop.execute(f"INSERT INTO orders VALUES {values}")
    ends = ("1", "50")
    worker = backfill_worker(shop.config(), WHERE, ends, "step=20", DirectEngine(), save=True)
    worker.cycle(threading.Event())
    worker.close()
    assert ids(shop) == list(range(1, 20))
    sink = worker.parts.stores.sink
    sink.delete(checkpoint_path(worker.parts.id))
    with pytest.raises(ColdStartRefused, match="begin a backfill there") as refused:
        filled(shop, *ends, "step=20", save=True)
    assert "--fresh" not in str(refused.value)
    filled(shop, "20", "50", "step=20", save=True)
    shop.run()
    assert ids(shop) == list(range(1, 60))


def test_two_backfills_that_begin_at_the_same_moment_do_not_both_read(shop: Shop) -> None:
    values = ", ".join(f"({n}, '1', '')" for n in range(1, 60))
    shop.execute(f"INSERT INTO orders VALUES {values}")
    first, second = (
        backfill_worker(shop.config(), WHERE, ends, "", DirectEngine(), save=True)
        for ends in (("1", "50"), ("20", "50"))
    )
    worked_off(first)
    with pytest.raises(RangeRefused, match="the backfill from 1 to 50 has rows of it"):
        worked_off(second)
    shop.run()
    filled(shop, "1", "50")  # what was refused is in nobody's way
    assert ids(shop) == list(range(1, 60))


def test_a_range_that_would_double_rows_is_refused(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1', ''), (2, '2', '')")
    shop.run()
    for save in (False, True):
        with pytest.raises(RangeRefused, match="reads everything from the beginning on"):
            filled(shop, "0", "2", save=save)
    with pytest.raises(ConfigError, match="--from must lie below --to"):
        filled(shop, "2", "2")
    with pytest.raises(ConfigError, match="'x' is no int64"):
        filled(shop, "x", "2")
    assert ids(shop) == [1, 2]


def test_a_source_keeps_its_state_under_another_name_and_in_another_place(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1', ''), (2, '2', '')")
    shop.run()
    sources = shop.document["pipelines"]["orders"]["sources"]
    sources["sap"] = sources.pop("erp")
    where = ("orders", "sap")
    worked_off(source_pipeline(parts_of(shop.config(), where, DirectEngine())))
    assert ids(shop) == [1, 2]
    sources["sap"]["id"] = "sap-orders"
    with pytest.raises(ColdStartRefused, match="is of the same files"):
        worked_off(source_pipeline(parts_of(shop.config(), where, DirectEngine())))
    shop.document["connections"]["store"] = shop.document["connections"].pop("shop")
    sources["sap"]["connection"] = "store"
    rename = rename_of(shop.config(), where, "erp-orders", "shop:orders")
    rename.run()
    shop.execute("INSERT INTO orders VALUES (3, '3', '')")
    worked_off(source_pipeline(parts_of(shop.config(), where, DirectEngine())))
    assert ids(shop) == [1, 2, 3]


def test_a_row_is_told_whatever_came_with_it(shop: Shop) -> None:
    shop.document["pipelines"]["orders"]["schema"]["fields"][1]["type"] = "int64"
    shop.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (id INTEGER, amount INTEGER)",
        "INSERT INTO orders VALUES (1, 'one'), (5, 7)",
    )
    shop.run()
    shop.execute("INSERT INTO orders VALUES (5, 8), (6, 9)")
    shop.run()
    assert ids(shop) == [5, 5, 6]
    assert sorted(row["amount"] for row in shop.rows()) == [7, 8, 9]


def test_a_range_that_ends_above_what_there_is_is_refused(shop: Shop) -> None:
    with pytest.raises(RangeRefused, match="nothing to read by id yet"):
        filled(shop, "1", "9", save=True)
    shop.execute("INSERT INTO orders VALUES (1, '1', ''), (2, '2', '')")
    with pytest.raises(RangeRefused, match="settled up to 2 by now"):
        filled(shop, "1", "9", save=True)
    filled(shop, "1", "3", save=True)
    shop.execute("INSERT INTO orders VALUES (3, '3', '')")
    shop.run()
    assert ids(shop) == [1, 2, 3]


def test_a_range_of_times_is_not_compared_with_text(shop: Shop) -> None:
    shop.document["pipelines"]["orders"]["schema"]["fields"].append(
        {"name": "at", "type": "timestamp"}
    )
    shop.source["watermark"] = {"columns": ["at"], "bound": "max"}
    shop.execute("INSERT INTO orders VALUES (1, '1', '2026-05-31T12:00:00Z')")
    with pytest.raises(RangeRefused, match="of another kind: column at"):
        filled(shop, "2026-05-01", "2026-05-20", save=True)
    shop.run()
    assert ids(shop) == [1]

"""A SQLite table from the configuration to Parquet files: what the commands say on the way."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from pathlib import Path

import pytest

from blizzard_core.errors import ColdStartRefused, ConfigError, Unavailable
from blizzard_py.app import inspection
from blizzard_py.app.explaining import explain
from blizzard_py.app.operations import files_by_source, rename_of, watermark_columns
from blizzard_py.app.query_validation import validate_query_sources
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from tests.support.direct_engine import DirectEngine
from tests.support.table_shop import WHERE, Shop


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


def test_offline_plan_computes_the_bound_from_the_supplied_time(shop: Shop) -> None:
    shop.source["watermark"] = {"columns": ["at"], "bound": "clock", "settle": "1m"}
    shop.document["connections"]["shop"]["uri"] = str(shop.folder / "not there.db")
    now = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
    planned = shop.plan(now=now, offline=True)
    assert planned["bound"]["value"] == {"at": {"__datetime__": "2026-05-04T11:59:00+00:00"}}
    assert planned["query"].startswith("SELECT * FROM orders WHERE at <= ")
    assert planned["tasks"] == []


def test_validate_tells_what_the_server_knows(shop: Shop) -> None:
    notes = validate_query_sources(shop.config())
    assert any("bound max: missed are lower values" in note for note in notes)
    shop.source["watermark"]["columns"] = ["nr"]
    shop.document["pipelines"]["orders"]["schema"]["fields"].append({"name": "x", "type": "json"})
    with pytest.raises(ConfigError) as caught:
        validate_query_sources(shop.config())
    first, second = caught.value.problems
    assert "watermark.columns: there is no column 'nr'; there are: id, amount, at" in first
    assert "has no column 'x', which schema.fields declares" in second
    shop.document["connections"]["shop"]["uri"] = str(shop.folder / "gone.db")
    [note] = validate_query_sources(shop.config())
    assert "cannot be queried now" in note


def test_explain_tells_window_statement_and_outputs(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1.5', '')")
    shop.run()
    shop.execute("INSERT INTO orders VALUES (2, '1.5', '')")
    waits = explain(shop.config(), "orders/erp")
    assert (waits.verdict, waits.uri) == ("pending", "000000000001#0")
    assert waits.task.window == {"after": {"id": 1}, "up_to": {"id": 2}}
    assert "SELECT" in (waits.task.statement or "")
    done = explain(shop.config(), "orders/erp#000000000000#0")
    assert done.verdict == "ingested"
    assert done.outputs
    assert explain(shop.config(), "orders/erp#000000000009#0").verdict == "missing"


def test_query_source_refuses_to_ingest_files_by_name(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="has no files to ingest"):
        files_by_source(shop.config(), ["/x"], (None, None))
    assert watermark_columns(shop.config(), WHERE) == ("id",)


@pytest.mark.promise("G-166")
def test_unavailable_server_fails_run_and_plan_without_secrets(shop: Shop) -> None:
    connection = shop.document["connections"]["shop"]
    connection |= {"uri": str(shop.folder / "gone.db"), "password": "p4ss-of-the-shop"}
    with pytest.raises(Unavailable) as caught:
        shop.run()
    _, [error] = inspection.plan(shop.config())
    assert "p4ss-of-the-shop" not in f"{caught.value} {error}"


def run_as(shop: Shop, where: tuple[str, str]) -> None:
    worker = source_pipeline(context_of(shop.config(), where, DirectEngine()))
    with contextlib.closing(worker):
        while worker.cycle(threading.Event()):
            pass


@pytest.mark.promise("G-172")
def test_a_source_keeps_its_state_when_renamed_and_moved(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1', ''), (2, '2', '')")
    shop.run()
    sources = shop.document["pipelines"]["orders"]["sources"]
    sources["sap"] = sources.pop("erp")
    where = ("orders", "sap")
    run_as(shop, where)
    assert shop.ids() == [1, 2]
    sources["sap"]["id"] = "sap-orders"
    with pytest.raises(ColdStartRefused, match="is of the same files"):
        run_as(shop, where)
    shop.document["connections"]["store"] = shop.document["connections"].pop("shop")
    sources["sap"]["connection"] = "store"
    rename = rename_of(shop.config(), where, "erp-orders", "shop:orders")
    rename.run()
    shop.execute("INSERT INTO orders VALUES (3, '3', '')")
    run_as(shop, where)
    assert shop.ids() == [1, 2, 3]


def test_seen_row_is_recognized_when_a_bad_row_came_with_it(shop: Shop) -> None:
    shop.document["pipelines"]["orders"]["schema"]["fields"][1]["type"] = "int64"
    shop.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (id INTEGER, amount INTEGER)",
        "INSERT INTO orders VALUES (1, 'one'), (5, 7)",
    )
    shop.run()
    shop.execute("INSERT INTO orders VALUES (5, 8), (6, 9)")
    shop.run()
    assert shop.ids() == [5, 5, 6]
    assert sorted(row["amount"] for row in shop.rows()) == [7, 8, 9]

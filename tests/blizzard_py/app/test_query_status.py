"""`plan` of a table: bounds in the form of the rows, and executable statements."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from pathlib import Path

import pytest

from blizzard_core.errors import StateError
from tests.support.table_shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.promise("G-157")
@pytest.mark.parametrize(
    ("written", "reached"),
    [
        ("2026-05-01 10:00:00", "2026-05-04 11:58:58"),
        ("2026-05-01T10:00:00.123Z", "2026-05-04T11:58:59.998Z"),
        ("2026-05-01", "2026-05-03"),
    ],
)
def test_offline_bounds_have_the_form_of_the_rows(shop: Shop, written: str, reached: str) -> None:
    shop.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (id INTEGER, amount TEXT, at TIMESTAMP)",
        f"INSERT INTO orders VALUES (1, '1', '{written}')",
    )
    shop.source["watermark"] = {"columns": ["at"]}
    shop.run()
    now = dt.datetime(2027, 5, 4, 12, tzinfo=dt.UTC)
    planned = shop.plan(now=now, offline=True)
    assert planned["bound"]["value"] == {"at": reached.replace("2026", "2027")}


@pytest.mark.promise("G-157")
@pytest.mark.parametrize("end", [";", " ;\n-- all of them;\n", "; /* done */ ;"])
def test_the_query_that_is_shown_can_be_executed(shop: Shop, end: str) -> None:
    fields = shop.document["pipelines"]["orders"]["schema"]["fields"]
    fields[1]["type"] = "string"
    fields += [
        {"name": "order", "type": "int64"},
        {"name": "mixed", "from": "Mixed Case", "type": "int64"},
    ]
    del shop.source["table"]
    shop.source["query"] = (
        'SELECT id AS "order", id AS "Mixed Case", amount || \';\' AS amount, at, id'
        f" FROM orders -- of ';' all{chr(10)}{end}"
    )
    shop.source["filter"] = "amount <> '--;';"
    shop.source["watermark"] = {"columns": ["order"]}
    shop.execute("INSERT INTO orders VALUES (1, 'a', ''), (2, '--', '')")
    query = shop.plan()["query"]
    with contextlib.closing(sqlite3.connect(shop.folder / "shop.db")) as base:
        assert [row[0] for row in base.execute(query)] == [1]
    shop.run()
    assert [row["order"] for row in shop.rows()] == [1]


def test_a_table_of_another_name_is_refused_with_words_of_tables(shop: Shop) -> None:
    shop.execute("INSERT INTO orders VALUES (1, '1', '')", "CREATE TABLE b AS SELECT * FROM orders")
    shop.run()
    shop.source["table"] = "b"
    with pytest.raises(
        StateError, match=r"(?s)is of shop:orders.*--moved-from 'shop:orders'"
    ) as told:
        shop.run()
    assert "source_uri" not in str(told.value)

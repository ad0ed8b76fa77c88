"""Columns with another name than in a table or an API."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.app.query_validation import validate_query_sources
from tests.support.api_server import api_server
from tests.support.lake_pipelines import config_of, poll, write
from tests.support.record_api import Records, configured, polled
from tests.support.table_shop import Shop

FIELDS = [
    {"name": "number", "from": "Order No", "type": "int64"},
    {"name": "amount", "from": "id", "type": "decimal(12,2)"},
]


def test_columns_of_a_table_have_other_names(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.execute('ALTER TABLE orders ADD COLUMN "Order No" INTEGER')
    shop.document["pipelines"]["orders"]["schema"]["fields"] = FIELDS
    shop.execute("""INSERT INTO orders (id, "Order No") VALUES (1, 10), (2, NULL), (3, 'x')""")
    validate_query_sources(shop.config())
    shop.run()
    assert [(row["number"], int(row["amount"])) for row in shop.rows()] == [(10, 1), (None, 2)]
    letters = "".join(
        path.read_text() for path in (tmp_path / "lake/_blizzard/dlq").rglob("*") if path.is_file()
    )
    assert "column 'Order No': x is no " in letters
    shop.document["pipelines"]["orders"]["schema"]["fields"][0]["type"] = "string"
    shop.config()
    done = shop.command("replay", "--all", "--no-wait")
    assert "stays" in done.output
    shop.run()
    assert sorted(str(row["number"]) for row in shop.rows()) == ["10", "None", "x"]


def test_identifying_fields_go_by_their_source_names(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    fields = [{"name": "number", "from": "id", "type": "int64"}]
    shop.document["pipelines"]["orders"]["schema"]["fields"] = fields
    shop.source["watermark"] |= {"backward": "1h", "reread": "new_only", "key": ["id"]}
    shop.config()


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_columns_of_a_folder_have_other_names(tmp_path: Path, form: str) -> None:
    times = [dt.datetime(2024, 1, 1, second=second, tzinfo=dt.UTC) for second in range(3)]
    at = [each if form == "parquet" else each.isoformat() for each in times]
    rows = [{"id": number, "at": time} for number, time in enumerate(at)]
    write(form, tmp_path / "lake/in/a", rows)
    document = config_of(tmp_path, form).model_dump(by_alias=True, exclude_unset=True)
    document["pipelines"]["p"]["schema"]["fields"] = [
        {"name": "number", "from": "id", "type": "int64"},
        {"name": "changed", "from": "at", "type": "timestamp"},
    ]
    poll(Config.model_validate(document))
    files = (tmp_path / "table").glob("*.parquet")
    found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert sorted((row["number"], row["changed"]) for row in found) == [*enumerate(times)]


def test_columns_of_an_api_have_other_names(tmp_path: Path) -> None:
    with api_server() as api:
        records = Records(api)
        configured(api, tmp_path)
        path = tmp_path / "config.yaml"
        document = yaml.safe_load(path.read_text())
        document["pipelines"]["orders"]["schema"]["fields"] = [
            {"name": "number", "from": "id", "type": "int64"},
            {"name": "changed", "from": "at", "type": "timestamp"},
        ]
        path.write_text(yaml.safe_dump(document))
        records.put(7, -10)
        polled(load_config(path, {}))
        [file] = (tmp_path / "lake").glob("*.parquet")
        [row] = pq.ParquetFile(file).read().to_pylist()
        assert (row["number"], row["changed"]) == (7, records.rows[7])

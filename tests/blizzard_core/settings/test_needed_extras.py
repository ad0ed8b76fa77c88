"""Extras that a configuration needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from blizzard_core.settings.needed_extras import needed_extras, store_extras
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.configuration import load_config
from penguin_py.__main__ import main as penguin

NEEDS = "needs gcsfs, which is not installed; run: pip install 'blizzard-penguin[gcs]'"
CONFIG = """
pipelines:
  local:
    sources: { main: { source_uri: ./raw } }
    sink: { table_uri: ./lake/local }
    schema: { fields: [{ name: id, type: int64 }] }
  other:
    sources:
      files: { source_uri: "az://raw/a", format: { type: avro } }
      shop: { kind: table, connection: shop, table: orders, watermark: { columns: [id] } }
      lake: { kind: table, connection: lake, table: orders, watermark: { columns: [id] } }
    sink: { table_uri: "gs://lake/other" }
    error_handling: { advanced: { dlq_path: "s3://letters/other" } }
    schema: { fields: [{ name: id, type: int64 }] }
connections:
  shop: { driver: sqlite, uri: shop.db }
  lake: { driver: parquet, uri: "s3://lake/tables" }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    place = tmp_path / "a.yaml"
    place.write_text(CONFIG)
    return place


def test_each_extra_has_the_first_key_that_needs_it(config: Path) -> None:
    found = {need.extra.name: need.where for need in needed_extras(load_config(config))}
    assert found == {
        "spark": "pipelines.local",
        "azure": "pipelines.other.sources.files.source_uri",
        "avro": "pipelines.other.sources.files.format",
        "sqlite": "connections.shop.driver",
        "s3": "connections.lake.uri",
        "gcs": "pipelines.other.sink.table_uri",
    }


def test_stores_on_a_disk_need_no_extra() -> None:
    places = [("a", "/lake"), ("b", "file:///lake"), ("c", "S3://lake/x"), ("d", "s3://lake/y")]
    assert [(need.extra.name, need.where) for need in store_extras(places)] == [("s3", "c")]


def test_validate_names_all_missing_extras(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    needs = "which is not installed; run: pip install 'blizzard-penguin[spark,sqlite,gcs]'"
    for arguments in (["validate"], ["run", "--once"], ["up"]):
        done = CliRunner().invoke(blizzard, [arguments[0], str(config), *arguments[1:]])
        assert done.exit_code == 2
        assert done.stderr.splitlines()[1:] == [
            f"  pipelines.local: ingestion needs pyspark, {needs}",
            f"  connections.shop.driver: SQLite needs adbc_driver_sqlite, {needs}",
            f"  pipelines.other.sink.table_uri: Google Cloud Storage needs gcsfs, {needs}",
        ]


def test_penguin_names_the_missing_extra_of_its_stores(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    for arguments in (["validate"], ["run", "--once"]):
        done = CliRunner().invoke(penguin, [arguments[0], str(config), *arguments[1:]])
        assert done.exit_code == 2
        assert done.stderr.splitlines()[1:] == [f"  tables.other: Google Cloud Storage {NEEDS}"]

"""A shop's SQLite table that is ingested from a configuration, in one process."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from click.testing import CliRunner, Result

from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main
from blizzard_py.app import inspection
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested

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
        self._loaded: tuple[str, Config] | None = None
        self.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount TEXT, at TEXT)")

    def execute(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.base)) as base:
            base.execute("PRAGMA synchronous = OFF")  # for no disk is waited
            with base:
                for statement in statements:
                    base.execute(statement)

    @property
    def source(self) -> dict[str, Any]:
        return self.document["pipelines"]["orders"]["sources"]["erp"]

    def config(self) -> Config:
        """Return the configuration, which is loaded again only once it was changed."""
        text = f"{self.folder} {json.dumps(self.document, default=str)}"
        if self._loaded is None or self._loaded[0] != text:
            path = self.folder / "config.yaml"
            path.write_text(yaml.safe_dump(nested(Config, self.document)))
            self._loaded = text, load_config(path, {})
        return self._loaded[1]

    def run(self) -> SourcePipeline:
        worker = source_pipeline(context_of(self.config(), WHERE, DirectEngine()))
        with contextlib.closing(worker):
            while worker.cycle(threading.Event()):
                pass
        return worker

    def rows(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "lake").glob("*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def plan(self, **options: Any) -> dict[str, Any]:
        document, errors = inspection.plan(self.config(), **options)
        assert errors == []
        json.dumps(document)
        return document["pipelines"]["orders"]["sources"]["erp"]

    def command(self, name: str, *arguments: str) -> Result:
        """Run a command for the shop's source in this process."""
        self.config()
        where = ("--pipeline", WHERE[0], "--source", WHERE[1])
        path = str(self.folder / "config.yaml")
        return CliRunner().invoke(main, [*name.split(), path, *where, *arguments])

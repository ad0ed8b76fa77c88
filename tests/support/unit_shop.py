"""Survey answers in SQLite, read by work units from a configuration, with a fixed clock."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from blizzard_core.settings.document import Config
from blizzard_py.app.configuration import load_config
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine
from blizzard_py.state.source_state import checkpoint_path
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested
from tests.support.group_reader import rows_of

WHERE = ("p", "answers")
ID = "answers"


class UnitShop:
    """``now`` is what everybody takes for now, but for a machine whose clock is ``ahead``."""

    def __init__(self, folder: Path, now: str = "2020-02-22T09:30:00", **units: Any) -> None:
        self.folder = folder
        self.base = folder / "shop.db"
        self.now = dt.datetime.fromisoformat(now).replace(tzinfo=dt.UTC)
        self.ahead = dt.timedelta(0)
        self.engine: Engine = DirectEngine()
        self._loaded: tuple[str, Config] | None = None
        query = "SELECT * FROM answers WHERE day >= {from} AND day < {to}"
        values = units.get("values")
        if values:
            query += " AND survey = {unit.survey}"
        self.document: dict[str, Any] = {
            "connections": {"shop": {"driver": "sqlite", "uri": str(self.base)}},
            "pipelines": {
                WHERE[0]: {
                    "sources": {
                        WHERE[1]: {
                            "kind": "table",
                            "id": ID,
                            "connection": "shop",
                            "query": query,
                            "units": {
                                "range": {"from": "2020-01-01", "to": "-"},
                                "partition": "monthly",
                                **units,
                            },
                        }
                    },
                    "sink": {"table_uri": str(folder / "lake")},
                    "schema": {
                        "fields": [
                            {"name": "day", "type": "string"},
                            {"name": "survey", "type": "string"},
                            {"name": "text", "type": "string"},
                        ]
                    },
                }
            },
        }
        self.execute("CREATE TABLE answers (day TEXT, survey TEXT, text TEXT)")

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Yield a transaction that waits for no disk."""
        with contextlib.closing(sqlite3.connect(self.base)) as base:
            base.execute("PRAGMA synchronous = OFF")
            with base:
                yield base

    def execute(self, *statements: str) -> None:
        with self.changing() as base:
            for statement in statements:
                base.execute(statement)

    def put(self, *rows: tuple[str, str, str]) -> None:
        with self.changing() as base:
            base.executemany("INSERT INTO answers (day, survey, text) VALUES (?, ?, ?)", rows)

    def all(self) -> list[tuple[str, str, str]]:
        """Return all rows of the database."""
        with contextlib.closing(sqlite3.connect(self.base)) as base:
            return base.execute("SELECT day, survey, text FROM answers").fetchall()

    @property
    def source(self) -> dict[str, Any]:
        return self.document["pipelines"][WHERE[0]]["sources"][WHERE[1]]

    @property
    def units(self) -> dict[str, Any]:
        return self.source["units"]

    def path(self) -> Path:
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(nested(Config, self.document)))
        return path

    def config(self) -> Config:
        """Return the configuration, which is loaded again only once it was changed."""
        text = f"{self.folder} {json.dumps(self.document, default=str)}"
        if self._loaded is None or self._loaded[0] != text:
            self._loaded = text, load_config(self.path(), {})
        return self._loaded[1]

    def worker(self, **options: Any) -> SourcePipeline:
        parts = context_of(self.config(), WHERE, self.engine)
        clock = (self.now + self.ahead).timestamp()
        worker = source_pipeline(replace(parts, clock=lambda: clock), **options)
        if self.ahead:
            worker._clock.set(self.now.timestamp())  # noqa: SLF001  # the store's is right
        return worker

    def run(self, **options: Any) -> None:
        """One poll of a daemon that is started for it."""
        worker = self.worker(**options)
        with contextlib.closing(worker):
            while worker.cycle(threading.Event()):
                pass

    def passes(self, **span: float) -> None:
        self.now += dt.timedelta(**span)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def texts(self) -> list[str]:
        return sorted(row["text"] for row in rows_of(self.lake))

    def checkpoint(self) -> dict[str, Any]:
        path = self.lake / checkpoint_path(ID)
        return json.loads(path.read_text())


def api_shop(folder: Path, url: str, params: dict[str, str], **units: Any) -> UnitShop:
    shop = UnitShop(folder, **units)
    shop.document["connections"] = {"api": {"driver": "http", "base_url": url}}
    shop.source.pop("query")
    request = {"path": "/rows", "params": params}
    shop.source.update(kind="http", connection="api", records="items", request=request)
    shop.document["pipelines"]["p"]["schema"]["fields"] = [{"name": "text", "type": "string"}]
    return shop


def snapshots(folder: Path) -> UnitShop:
    shop = UnitShop(folder)
    for key in ("units", "query"):
        del shop.source[key]
    shop.source.update(table="answers", snapshot=True)
    return shop


def windows(folder: Path) -> UnitShop:
    shop = UnitShop(folder)
    for key in ("units", "query"):
        del shop.source[key]
    mark = {"columns": ["day"], "bound": "max", "backward": {"days": 3}, "reread": "replace"}
    shop.source.update(table="answers", watermark=mark)
    return shop

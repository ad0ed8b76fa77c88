"""An API of records by id and time, and a configuration that reads it."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from pathlib import Path
from typing import Any

import yaml

from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, reply
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested

WHERE = ("orders", "crm")
TOKEN = "t0ken-of-the-crm"  # of the test's own server


def configured(api: ApiServer, folder: Path, **mark: Any) -> Any:
    document = {
        "connections": {
            "crm": {
                "driver": "http",
                "base_url": api.url,
                "auth": {"kind": "bearer", "token": TOKEN},
            }
        },
        "pipelines": {
            "orders": {
                "sources": {
                    "crm": {
                        "kind": "http",
                        "connection": "crm",
                        "request": {"path": "/orders"},
                        "records": "data.items",
                        "watermark": {
                            "columns": ["at"],
                            "push": {
                                "from": {"param": "since"},
                                "to": {"param": "until"},
                            },
                            **mark,
                        },
                    }
                },
                "sink": {"table_uri": str(folder / "lake")},
                "schema": {
                    "fields": [
                        {"name": "id", "type": "int64"},
                        {"name": "at", "type": "timestamp"},
                    ]
                },
            }
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(nested(Config, document)))
    return load_config(path, {})


def moment(text: str) -> dt.datetime:
    """A time as it is sent: in UTC where the format has no zone."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


class Records:
    """Serve records by id, those between ``since`` and ``until``."""

    def __init__(self, api: ApiServer) -> None:
        self.now = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
        self.rows: dict[Any, dt.datetime] = {}
        api.answer = self.answer
        api.date = self.time

    def time(self) -> float:
        return self.now.timestamp()

    def answer(self, asked: ReceivedRequest) -> Reply:
        low, high = (asked.params.get(name) for name in ("since", "until"))
        found = [
            {"id": key, "at": at.isoformat()}
            for key, at in self.rows.items()
            if (low is None or at >= moment(low)) and (high is None or at <= moment(high))
        ]
        return reply({"data": {"items": found}})

    def put(self, key: Any, minutes: float) -> None:
        self.rows[key] = self.now + dt.timedelta(minutes=minutes)


def polled(config: Any) -> None:
    worker = source_pipeline(context_of(config, WHERE, DirectEngine()))
    with contextlib.closing(worker):
        worker.cycle(threading.Event())

"""Pipelines over folders of files, run in this process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.settings.document import Config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.workers import build
from tests.support.flat_settings import nested
from tests.support.query_harness import KernelEngine
from tests.support.text_lakes import put


def config_of(folder: Path, form: str, nulls: str = "first", below: str = "") -> Config:
    table = {"kind": "table", "connection": "lake", "table": f"in{below}"}
    marks = {"columns": ["at"], "nulls": nulls}
    fields = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp"}]
    return Config.model_validate(
        nested(
            Config,
            {
                "spark": {"master": "local[1]"},
                "connections": {"lake": {"driver": form, "uri": str(folder / "lake")}},
                "pipelines": {
                    "p": {
                        "sources": {"s": {**table, "watermark": marks}},
                        "sink": {"table_uri": str(folder / "table")},
                        "schema": {"fields": fields},
                    }
                },
            },
        )
    )


def poll(config: Config) -> None:
    """Ingest all files with a new pipeline."""
    sink = LocalStorage(config.pipelines["p"].sink.table_uri)
    [worker] = build(config, KernelEngine(sink))  # type: ignore[arg-type]  # any storage will do
    while worker.cycle(threading.Event()):
        pass
    worker.close()


def write(form: str, path: Path, rows: list[dict[str, Any]]) -> None:
    if form != "parquet":
        put(form, path, rows)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    if "at" in table.column_names:
        table = table.set_column(1, "at", table["at"].cast(pa.timestamp("us", "UTC")))
    pq.write_table(table, f"{path}.parquet")

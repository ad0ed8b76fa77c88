"""A configuration of files into a keyed table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from blizzard_core.settings.document import Config
from tests.support.flat_settings import nested

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "seq", "type": "int64", "nullable": False},
    {"name": "op", "type": "string"},
    {"name": "amount", "type": "float64", "nullable": False},
    {"name": "maybe", "type": "int64"},
]


def write(folder: Path, pipeline: dict[str, Any] | None = None, **keyed: Any) -> Path:
    """Write a configuration of files into a keyed table, changed by both."""
    orders = {
        "sources": {"main": {"path": str(folder / "raw")}},
        "sink": {"table_uri": str(folder / "changes"), "metadata_columns": ["_ingested_at"]},
        "schema": {"fields": FIELDS},
        **(pipeline or {}),
    }
    block = {"table_uri": str(folder / "current"), "keys": ["id"], "sequence_by": ["seq"], **keyed}
    orders["keyed"] = {key: value for key, value in block.items() if value is not None}
    path = folder / "config.yaml"
    document = {"pipelines": {"orders": orders}}
    if pipeline and pipeline.get("kind_of_source") == "table":
        del orders["kind_of_source"]
        document["connections"] = {"shop": {"driver": "sqlite", "uri": f"sqlite:///{folder}/x.db"}}
    path.write_text(yaml.safe_dump(nested(Config, document)))
    return path

"""A good configuration, its variants, and the problems of those."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from tests.support.flat_settings import nested

GOOD: dict[str, Any] = {
    "pipelines": {
        "events": {
            "sources": {"main": {"source_uri": "/data/raw"}},
            "sink": {"table_uri": "/data/lake/events"},
            "schema": {"fields": [{"name": "time", "type": "timestamp", "nullable": False}]},
        }
    }
}


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "config.yaml"
    found = nested(Config, document) if isinstance(document, dict) else document
    path.write_text(found if isinstance(found, str) else yaml.safe_dump(found))
    return path


def load(tmp_path: Path, document: Any, **environment: str) -> Config:
    return load_config(write(tmp_path, document), environment)


def problems(tmp_path: Path, document: Any, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document, **environment)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


def changed(**places: Any) -> dict[str, Any]:
    """The good document with values set at dotted places (``__`` for the dot)."""
    document = copy.deepcopy(GOOD)
    for place, value in places.items():
        block = document
        *outer, last = place.split("__")
        for key in outer:
            block = block.setdefault(key, {})
        block[last] = value
    return document

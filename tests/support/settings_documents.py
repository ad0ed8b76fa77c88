"""A good configuration, its variants, tables of wrong ones, and their problems."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
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
_TOP = {field.alias or name for name, field in Config.model_fields.items()}


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "config.yaml"
    found = nested(Config, document) if isinstance(document, dict) else document
    path.write_text(found if isinstance(found, str) else yaml.safe_dump(found, sort_keys=False))
    return path


def load(tmp_path: Path, document: Any, **environment: str) -> Config:
    return load_config(write(tmp_path, document), environment)


def problems(tmp_path: Path, document: Any, **environment: str) -> list[str]:
    """Return what is wrong with a configuration; nothing if it loads."""
    try:
        load(tmp_path, document, **environment)
    except ConfigError as error:
        return list(error.problems)
    return []


def with_changes(
    document: dict[str, Any], changes: Mapping[str, Any], below: str = "pipelines.events"
) -> dict[str, Any]:
    """Return the document with values at dotted places; None removes the key.

    A place that begins with no key of the top lies below ``below``.
    """
    changed = copy.deepcopy(document)
    for place, value in changes.items():
        whole = place if place.partition(".")[0] in _TOP else f"{below}.{place}"
        block = changed
        *outer, last = whole.split(".")
        for key in outer:
            block = block.setdefault(key, {})
        if value is None:
            block.pop(last, None)
        else:
            block[last] = value
    return changed


def changed(**places: Any) -> dict[str, Any]:
    """Return the good document with values set at dotted places (``__`` for the dot)."""
    return with_changes(GOOD, {place.replace("__", "."): places[place] for place in places})


def cases(table: str) -> list[Any]:
    """Read a table of changes as YAML writes them, ``=>``, and a part of the problem.

    A case may go over several lines. The place of the problem may follow after ``@``.
    """
    found, case = [], ""
    for line in table.strip().splitlines():
        case += f" {line.strip()}"
        text, arrow, said = case.partition(" => ")
        if arrow:
            changes = yaml.safe_load(f"{{{text}}}")
            said, _, place = said.partition(" @ ")
            found.append(pytest.param(changes, said, place, id=text.strip()))
            case = ""
    return found


def is_reported(found: list[str], said: str, place: str = "") -> bool:
    """Return whether a problem says this, with its line, of this place if one is given."""
    here = re.compile(rf"([^:]*\.)?{re.escape(place) or '[^:]*'} \(line \d+\): ")
    return any(here.match(problem) and said in problem for problem in found)

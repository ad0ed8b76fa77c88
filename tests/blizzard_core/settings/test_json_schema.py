"""The JSON schema of configurations agrees with the settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from blizzard_core.settings.document import Config
from blizzard_core.settings.json_schema import config_schema
from blizzard_core.settings.yaml_file import parse_yaml

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = [
    *sorted((ROOT / "configs").glob("*.yaml")),
    ROOT / "blizzard_py" / "demo" / "edits.yaml",
    ROOT / "deploy" / "kubernetes" / "base" / "config.yaml",
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(.*?)^```|<<'END'\n(pipelines:.*?)^END", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found = config_schema()
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def problems(schema: dict[str, Any], document: Any) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{each.json_path}: {each.message}" for each in found]


def configurations_in(page: Path) -> Iterator[str]:
    known = {field.alias or name for name, field in Config.model_fields.items()}
    for block in BLOCK.finditer(page.read_text("utf-8")):
        text = block[1] or block[2]
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(found, dict) and found.keys() <= known and "…" not in text:
            yield text


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_shipped_configurations_fit(schema: dict[str, Any], path: Path) -> None:
    assert problems(schema, parse_yaml(path).data) == []


def test_configurations_of_the_documentation_fit(schema: dict[str, Any], tmp_path: Path) -> None:
    path, count = tmp_path / "c.yaml", 0
    for page in PAGES:
        for text in configurations_in(page):
            path.write_text(text)
            assert problems(schema, parse_yaml(path).data) == [], (page.name, text)
            count += 1
    assert count >= 5


SOURCE = "pipelines: {a: {sources: {m: {source_uri: raw, %s}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "pipelines: {}\ndefaults: {pipeline: {sink: {advanced: {compression: none}}}}",
        "x-a: &a {poll_interval: '${EVERY:-5m}'}\npipelines: {p: {x-note: 1, sources: {m: *a}}}",
        "tables: {t: {table_uri: t, poll_interval: 0, vacuum: {retention: P7D}, optimize: null}}",
        "tables: {t: {x-a: {}, advanced: {max_files_per_commit: '${FILES}'}}}",
        "connections: {a: {driver: delta, uri: lake, backward: {months: 1}}}",
        SOURCE % "format: csv",
        SOURCE % "format: {type: csv, null_value: 'NULL', delimiter: ;}",
        SOURCE % "use_watermark: '${ORDERED}'",
        "pipelines: {a: {schema: {fields: [{name: n, type: list, items: string}]}}}",
        "pipelines: {a: {sink: {partition_by: {columns: [c, {column: t, transform: hour}]}}}}",
        "defaults: {source: {kind: table, table: t}}\npipelines: {a: {sources: {m: {}}}}",
    ],
)
def test_every_notation_fits(schema: dict[str, Any], tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert problems(schema, parse_yaml(tmp_path / "c.yaml").data) == []


@pytest.mark.parametrize(
    "text",
    [
        "pipeline: {}",
        "pipelines: []",
        "pipelines: {'a b': {}}",
        "pipelines: {a: {sinks: {}}}",
        "defaults: {sources: {}}",
        "defaults: {source: {poll_intervall: 1m}}",
        "tables: {t: {poll_interval: 5}}",
        "tables: {t: {poll_interval: '5'}}",
        "tables: {t: {poll_interval: often}}",
        "tables: {t: {schema_evolution: some}}",
        "tables: {t: {advanced: {max_files_per_commit: many}}}",
        "tables: {t: {advanced: {max_files_per_commit: 0}}}",
        "connections: {a: {driver: oracle, uri: x}}",
        "connections: {a: {driver: delta}}",
        "connections: {a: {driver: http, base_url: ftp://x}}",
        SOURCE % "format: parquett",
        SOURCE % "format: {type: csv, delimeter: ;}",
        SOURCE % "use_watermark: 1",
        SOURCE % "kind: tables",
        "pipelines: {a: {schema: {fields: [{name: n}]}}}",
    ],
)
def test_mistakes_do_not_fit(schema: dict[str, Any], tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert problems(schema, parse_yaml(tmp_path / "c.yaml").data) != []


def test_every_key_is_described(schema: dict[str, Any]) -> None:
    json.dumps(schema)
    missing = [
        f"{name}.{key}"
        for name, block in schema["$defs"].items()
        for part in (block, *block.get("anyOf", ()))
        for key, value in part.get("properties", {}).items()
        if not value.get("description")
    ]
    assert missing == []

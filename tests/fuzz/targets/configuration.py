"""A foreign configuration: read, or refused without a secret in the message."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.redact import redacted
from blizzard_core.settings.load import load_config
from tests.fuzz.mutate import json_document
from tests.fuzz.target import Target, hold

SECRET = "hR7mQ2zK9wLp4Xv"
_ENVIRONMENT = {"SECRET": SECRET, "HOME": "/home/x", "EMPTY": ""}
_EXAMPLE = Path(__file__).parents[3] / "configs" / "example.yaml"


def configuration(data: bytes) -> None:
    """Every problem at once, bounded, with no value of the environment in it."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            load_config(Path(file.name), _ENVIRONMENT)
        except ConfigError as error:
            told = str(error)
            hold("a secret is in no message", SECRET not in told, told)
            hold("nor where it is masked", SECRET not in redacted(told))
            hold("a problem is told with its place", bool(error.problems))


def mutated(data: bytes, chance: Random) -> bytes | None:
    """Mutate YAML as JSON, which is valid YAML."""
    try:
        document = yaml.safe_load(data)
        text = json.dumps(document, default=str).encode()
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return None
    return json_document(text, chance)


def _seeds() -> Iterator[bytes]:
    blocks = yaml.safe_load(_EXAMPLE.read_text())
    for name in blocks:
        yield yaml.safe_dump({name: blocks[name]}, allow_unicode=True).encode()
    yield b"""pipelines:
  events:
    sources:
      main: {source_uri: "s3://raw/${SECRET}", storage_options: {a_secret: "${SECRET}"}}
      api: {kind: http, connection: c, request: {path: "/${SECRET}"}, records: "${SECRET}"}
      rows: {kind: table, connection: d, table: "${SECRET}", watermark: {columns: ["${SECRET}"]}}
    sink: {table_uri: "s3://lake/${SECRET:-x}", partition_by: {prefix_template: "date=%Y"}}
    schema: {fields: [{name: "${SECRET}", type: "${SECRET}"}]}
    transform: "SELECT ${SECRET} FROM source"
connections:
  c: {driver: http, base_url: "https://${SECRET}@host/", auth: {kind: bearer, token: "${SECRET}"}}
  d: {driver: postgresql, uri: "postgresql://u:${SECRET}@host/db", password: "${SECRET}"}
spark: {master: "local[2]", conf: {spark.x.password: "${SECRET}"}}
metrics: {address: "${SECRET}"}
"""
    yield b"a: &a [x, x]\nb: &b [*a, *a]\nc: {<<: *a}\npipelines: {p: *b}\n"
    yield b"? {a: b}\n: 1\n!!set {a, b}: 2024-01-28\n0x10: .nan\n"


TARGETS = (Target("configuration", configuration, _seeds, mutated, max_bytes=8192),)

"""Modules that commands load. Reading them is most of the time that a short command takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from tests.support.scenario import ROOT

# What only work on data needs. Each takes 30 to 500 ms of CPU.
HEAVY = {
    "adlfs", "aiobotocore", "asyncio", "boto3", "deltalake", "duckdb", "fsspec", "gcsfs", "httpx",
    "numpy", "pandas", "prometheus_client", "pyarrow", "pydantic", "pyspark", "rich.console",
    "s3fs", "structlog", "wasmtime", "yaml",
    "blizzard_py.app.status_page", "blizzard_py.connections", "blizzard_py.sources.tables",
    "blizzard_py.kernels",
}  # fmt: skip
# Of features that a daemon of a plain source does not use until somebody asks for them.
FEATURES = {
    "blizzard_core.notifications.inbox", "blizzard_core.notifications.receiver",
    "blizzard_py.explain", "blizzard_py.selection", "blizzard_py.slices.units.grid",
    "blizzard_py.sources.files.processed_name_files",
}  # fmt: skip
# What `status` needs of it for files on local disks that were not ingested yet.
READING = {"pydantic", "yaml"}
HELP = """
import json, sys
import click
from {package}.__main__ import main

def walk(command, context):
    command.get_help(context)
    for name, each in getattr(command, "commands", {{}}).items():
        walk(each, click.Context(each, info_name=name, parent=context))

walk(main, click.Context(main, info_name="x"))
print(json.dumps(sorted(sys.modules)))
"""
RUN = """
import json, sys
from blizzard_py.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""
CONFIG = """
pipelines:
  events:
    sources: { main: { source_uri: ./raw } }
    sink: { table_uri: ./lake/events }
    schema: { fields: [{ name: id, type: int64 }] }
"""


def heavy_modules(
    code: str, *arguments: str, cwd: Path = ROOT, among: AbstractSet[str] = HEAVY
) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return set(json.loads(done.stdout.splitlines()[-1])) & among


@pytest.mark.parametrize("package", ["blizzard_py", "penguin_py"])
def test_help_of_all_commands_loads_no_library(package: str) -> None:
    assert heavy_modules(HELP.format(package=package)) == set()


@pytest.mark.parametrize(
    "command",
    [
        ("status", "a.yaml"),
        ("checkpoint", "show", "a.yaml", "--pipeline", "events", "--source", "main"),
    ],
    ids=" ".join,
)
def test_commands_that_show_state_load_what_reads_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "raw").mkdir()
    assert heavy_modules(RUN, *command, cwd=tmp_path) - READING == set()


def test_a_daemon_that_does_little_loads_little(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "raw").mkdir()
    among = HEAVY | FEATURES
    found = heavy_modules(RUN, "run", "a.yaml", "--once", cwd=tmp_path, among=among)
    # structlog brings asyncio along.
    assert found <= READING | {"asyncio", "prometheus_client", "structlog"}

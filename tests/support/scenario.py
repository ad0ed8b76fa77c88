"""Both daemons as a user runs them: real processes, a real configuration, a real store."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from deltalake import DeltaTable

from blizzard_core.daemon import Loop, run
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.app import inspection
from blizzard_py.app.workers import build
from penguin_py.app import build as build_penguin
from penguin_py.app import status as penguin_status
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested
from tests.support.forked_process import call_forked
from tests.support.s3_server import S3Server

ROOT = Path(__file__).parents[2]
MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}


def ndjson(*rows: dict[str, Any]) -> bytes:
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


def scenario_on(store: str, request: pytest.FixtureRequest) -> Scenario:
    """Return a test's scenario in its folder ("local") or in a bucket of its own ("s3")."""
    folder: Path = request.getfixturevalue("tmp_path")
    if store == "local":
        return Scenario(folder, str(folder))
    server: S3Server = request.getfixturevalue("s3")
    return Scenario(folder, f"s3://{server.new_bucket()}/base", server.options)


@dataclass
class Scenario:
    """A source, a table and their configuration below one place: a directory or a bucket."""

    folder: Path
    place: str
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source: Storage = open_storage(f"{self.place}/raw", self.options)
        self.table: Storage = open_storage(f"{self.place}/lake/events", self.options)
        self.config = self.folder / "config.yaml"
        self.document: dict[str, Any] = {
            "pipelines": {
                "events": {
                    "sources": {
                        "main": {
                            "source_uri": f"{self.place}/raw",
                            "poll_interval": "200ms",
                            "storage_options": self.options,
                        }
                    },
                    "sink": {
                        "table_uri": f"{self.place}/lake/events",
                        "partition_by": {"prefix_template": "date=%Y-%m-%d"},
                        "storage_options": self.options,
                    },
                    "schema": {
                        "fields": [
                            {"name": "id", "type": "int64", "nullable": False},
                            {"name": "text", "type": "string"},
                        ]
                    },
                }
            },
            "spark": {"master": "local[2]"},
            "global": {"poll_jitter": 0},
        }
        self.write_config()

    @property
    def main_source(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["pipelines"]["events"]["sources"]["main"]
        return found

    def write_config(self) -> None:
        self.config.write_text(yaml.safe_dump(nested(Config, self.document)))

    def put(self, path: str, data: bytes) -> None:
        self.source.put_atomic(path, data)

    def put_rows(self, path: str, *ids: int) -> None:
        self.put(path, ndjson(*({"id": number, "text": f"t{number}"} for number in ids)))

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """``blizzard …`` or ``penguin …`` as a process; stdout and stderr are piped."""
        program, *arguments = command
        return subprocess.Popen(
            [sys.executable, "-m", MODULES.get(program, program), *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run such a process to its end; it has been forked, and so it begins at once."""
        program, *arguments = command
        return call_forked(MODULES.get(program, program), arguments, **environment)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Like `call`, but it must succeed."""
        done = self.call(*command)
        assert done.returncode == 0, done.stderr
        return done

    def once(self, program: str) -> None:
        self.run(program, "run", str(self.config), "--once")

    def kill_at(self, point: str, program: str) -> None:
        """Run ``program`` until ``kill -9`` strikes at the point."""
        done = self.call(
            "tests.support.dying_main", point, program, "run", str(self.config), "--once"
        )
        assert done.returncode == -9, (point, done.returncode, done.stderr)

    def ingest(self) -> None:
        """Drain the sources in this process and without Spark, where Spark is not the point."""
        loop = Loop(once=True, jitter_secs=0, grace_secs=0)
        workers = build(load_config(self.config), DirectEngine())
        assert run(workers, loop, threading.Event()) == 0

    def commit(self) -> None:
        """Have Penguin commit what is there, in this process, where its command is not the point.

        A process of its own spends a second of the processor on imports.
        """
        loop = Loop(once=True, jitter_secs=0, grace_secs=0)
        with build_penguin(load_config(self.config)) as workers:
            assert run(workers, loop, threading.Event()) == 0
            assert not any(worker.missing(worker.snapshot()) for worker in workers)

    def status(self, program: str) -> dict[str, Any]:
        """Return what ``status --json`` prints, without another process."""
        told = {"blizzard": inspection.status, "penguin": penguin_status}[program]
        document, errors = told(load_config(self.config))
        assert not errors
        found: dict[str, Any] = json.loads(json.dumps(document))
        return found

    def ids(self) -> list[int]:
        """Return the ids in the Delta table, read by duckdb."""
        options = {**self.options, "AWS_ALLOW_HTTP": "true"} if self.options else None
        dataset = DeltaTable(
            f"{self.place}/lake/events", storage_options=options
        ).to_pyarrow_dataset()
        connection = duckdb.connect()
        connection.register("events", dataset)
        return [
            row[0] for row in connection.execute("select id from events order by id").fetchall()
        ]

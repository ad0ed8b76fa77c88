"""Cost of a poll without new rows: statements in the server's log, writes on the disk."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import yaml

from blizzard_core.settings.load import load_config
from blizzard_py.app.workers import build
from blizzard_py.job import Engine
from tests.support.postgresql_server import PASSWORD, PostgresqlServer

POLLS = 10
_ROWS = 1000


def polled(server: PostgresqlServer, folder: Path, engine: Engine) -> tuple[float, int]:
    """Statements of such a poll, and objects that `POLLS` of them have written or touched.

    The source is the product's own, from YAML, and has read its table before.
    """
    server.execute(
        "CREATE TABLE polled (id bigint, updated_at timestamptz)",
        "CREATE INDEX ON polled (updated_at)",
        f"INSERT INTO polled SELECT g, now() FROM generate_series(1, {_ROWS}) g",  # a number
        "ALTER SYSTEM SET log_line_prefix = '%a|'",
        "ALTER SYSTEM SET log_statement = 'all'",
        "SELECT pg_reload_conf()",
    )
    (source,) = build(load_config(_written(server, folder), {}), engine)
    with contextlib.closing(source):
        stop = threading.Event()
        while source.cycle(stop):
            pass
        source.cycle(stop)  # the first one after rows connects, and may know less
        asked, kept = _statements(server), _objects(folder / "lake")
        if not kept:
            raise RuntimeError("nothing was read before")
        for _ in range(POLLS):
            source.cycle(stop)
        changed = set(_objects(folder / "lake").items()) ^ set(kept.items())
        return (_statements(server) - asked) / POLLS, len(changed)


def _written(server: PostgresqlServer, folder: Path) -> Path:
    uri = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    source = {
        "kind": "table",
        "id": "polled",
        "connection": "shop",
        "table": "polled",
        "watermark": {"columns": ["updated_at"]},
    }
    fields = [{"name": "id", "type": "int64"}, {"name": "updated_at", "type": "timestamp"}]
    document = {
        "connections": {"shop": {"driver": "postgresql", "uri": uri, "password": PASSWORD}},
        "pipelines": {
            "polled": {
                "sources": {"shop": source},
                "sink": {"table_uri": str(folder / "lake")},
                "schema": {"fields": fields},
            }
        },
    }
    path = folder / "polled.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _statements(server: PostgresqlServer) -> int:
    lines = (server.place / "log").read_text(errors="replace").splitlines()
    ours = [line for line in lines if line.startswith("blizzard plans|LOG:")]
    return sum(" statement: " in line or " execute " in line for line in ours)


def _objects(folder: Path) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}

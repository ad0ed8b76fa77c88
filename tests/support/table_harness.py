"""A table directory that tests drop Parquet into, and Penguins over it."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from blizzard_core.errors import StorageError
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import delta_options, open_storage
from blizzard_core.storage.protocol import Storage
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import Table, tables_of
from tests.support.delta_protocol import problems
from tests.support.flat_settings import nested

NOW = 1_800_000_000.0
# Those of the test that is running; see `tests.conftest.sound_tables`.
HARNESSES: list[TableHarness] = []


def parquet(
    data: pa.Table | Mapping[str, list[Any]], output_id: str | None = None, **options: Any
) -> bytes:
    """Return the bytes of a Parquet file."""
    table = data if isinstance(data, pa.Table) else pa.table(dict(data))
    if output_id is not None:
        table = table.replace_schema_metadata({"blizzard.output_id": output_id})
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@dataclass
class TableHarness:
    """One table's place, with what tests do to it."""

    uri: str
    pool: Executor
    options: dict[str, str] = field(default_factory=dict)
    now: float = NOW
    # Whether the test itself breaks the log, which else is held against the protocol.
    tampered: bool = False

    def __post_init__(self) -> None:
        HARNESSES.append(self)

    @property
    def storage(self) -> Storage:
        return open_storage(self.uri, self.options)

    def put(self, path: str, data: pa.Table | Mapping[str, list[Any]] | bytes, **more: Any) -> None:
        """Drop a file, as a writer does."""
        content = data if isinstance(data, bytes) else parquet(data, **more)
        self.storage.put_atomic(path, content)

    def table(self, name: str = "events", **settings: Any) -> Table:
        # Tests drop files of no particular writer, and do not wait for them.
        ours = {"own_prefixes": [""], "storage_options": self.options}
        block = {"table_uri": self.uri, **ours, **settings}
        return tables_of(Config.model_validate(nested(Config, {"tables": {name: block}})))[0]

    def penguin(self, name: str = "events", **settings: Any) -> TablePipeline:
        """Return a freshly started Penguin, which knows only the stored state."""
        table = self.table(name, **settings)
        storage = self.storage
        return self.penguin_on(table, storage, DeltaLog(table, storage, self.pool))

    def penguin_on(self, table: Table, storage: Storage, log: DeltaLog) -> TablePipeline:
        return TablePipeline(table, storage, log, self.pool, lambda: self.now)

    def run(self, penguin: TablePipeline | None = None, **settings: Any) -> int:
        """Cycle until nothing is left; how many cycles did work."""
        worker = penguin or self.penguin(**settings)
        stop = threading.Event()
        cycles = 0
        while worker.cycle(stop):
            cycles += 1
            assert cycles < 1000
        return cycles

    def delta(self) -> DeltaTable:
        options = delta_options(self.uri, self.options, os.environ)
        return DeltaTable(self.uri, storage_options=options)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as a reader of the table sees them, sorted."""
        found = pa.table(self.delta().to_pyarrow_dataset().to_table()).to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str, sort_keys=True))

    def paths(self) -> set[str]:
        return set(self.delta_paths())

    def delta_paths(self) -> list[str]:
        return list(pa.table(self.delta().get_add_actions())["path"].to_pylist())

    def actions(self, version: int) -> list[dict[str, Any]]:
        raw = self.storage.read(f"_delta_log/{version:020d}.json")
        return [json.loads(line) for line in raw.splitlines()]

    def quarantined(self, table: str = "events") -> dict[str, str]:
        """Path to error, as recorded."""
        if self.storage.stat(f"_penguin/{table}_quarantine.ndjson") is None:
            return {}
        lines = self.storage.read(f"_penguin/{table}_quarantine.ndjson").splitlines()
        records = [json.loads(line) for line in lines]
        assert len({r["path"] for r in records}) == len(records)
        return {record["path"]: record["error"] for record in records}

    def mirror(self, table: str = "events") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.storage.read(f"_penguin/{table}_checkpoint.json"))
        return found


def unsound(worlds: list[TableHarness]) -> list[str]:
    """Return the protocol's objections to the logs of these tables."""
    found = []
    for world in {world.uri: world for world in worlds}.values():
        if any(other.tampered for other in worlds if other.uri == world.uri):
            continue
        try:
            told = problems(world.storage)
        except StorageError:
            continue  # its server has gone with the test
        found += [f"{world.uri}: {problem}" for problem in told]
    return found


@contextmanager
def footer_pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield pool

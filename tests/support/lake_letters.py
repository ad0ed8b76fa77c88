"""A folder of files as a table: polls with a schema, letters of rows, and their replay."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.settings.document import Config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import build
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.kernels.packing import pack, tasks_of
from blizzard_py.kernels.report import merged
from blizzard_py.kernels.task import run_task
from blizzard_py.sources.context import SourceContext
from tests.support.query_harness import KernelEngine
from tests.support.request_harness import outcomes_of, submit


class LetterEngine(KernelEngine):
    """Reads the table, or files of records in the dead letters."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Run the job in this process."""
        if job.reading is not None:
            return super().ingest(job)
        source = LocalStorage(job.settings.source.uri)
        return merged(
            run_task(task, source, self.sink, next(self._attempts))
            for task in tasks_of(job, pack(job.files, 1))
        )


@dataclass
class LakeLetters:
    """The folder ``in`` below ``root``, of which everything is read once."""

    root: Path
    driver: str

    def put(self, name: str, data: bytes) -> None:
        """Write a file of the table."""
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def config(
        self, fields: Mapping[str, Any], form: Mapping[str, Any] | None = None, **schema: Any
    ) -> Config:
        """Return a configuration with these columns and options of the format."""
        source = {
            "kind": "table",
            "id": "t",
            "connection": "lake",
            "table": "in",
            "watermark": {"columns": ["n"], "bound": "rows"},
            **({"format": dict(form)} if form else {}),
        }
        columns = [
            {"name": name, **(kind if isinstance(kind, dict) else {"type": kind})}
            for name, kind in fields.items()
        ]
        sink = {"table_uri": str(self.root / "table"), **schema.pop("sink", {})}
        handling = {"on_bad_record": "quarantine_record", "max_bad_fraction": 1}
        pipeline = {
            "sources": {"s": source},
            "sink": sink,
            "schema": {"fields": columns, **schema},
            "error_handling": handling,
        }
        connection = {"driver": self.driver, "uri": str(self.root)}
        return Config.model_validate(
            {"connections": {"lake": connection}, "pipelines": {"p": pipeline}}
        )

    def _engine(self) -> LetterEngine:
        return LetterEngine(LocalStorage(str(self.root / "table")))  # type: ignore[arg-type]  # any storage will do

    def parts(self, config: Config) -> SourceContext:
        """Return what the source is made of."""
        return context_of(config, ("p", "s"), self._engine())  # type: ignore[arg-type]  # an engine

    def poll(self, config: Config) -> None:
        """Ingest what is there, and what is requested."""
        [worker] = build(config, self._engine())  # type: ignore[arg-type]  # an engine
        while worker.cycle(threading.Event()):
            pass
        worker.close()

    def replay(self, config: Config, **options: Any) -> dict[str, str]:
        """Replay all open letters with a configuration; the outcomes of their files."""
        parts = self.parts(config)
        ids = [each.id for each in reader.objects(parts.stores.dlq, parts.letters_id)]
        request = submit(parts, {"letters": ids}, **options)
        self.poll(config)
        return outcomes_of(parts, request)

    def letters(self, config: Config) -> list[DeadLetter]:
        """Return the open letters."""
        parts = self.parts(config)
        found = reader.objects(parts.stores.dlq, parts.letters_id)
        return [letter for each in found for letter in reader.read(parts.stores.dlq, each)]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all files of the table, in order of ``n``."""
        files = sorted((self.root / "table").rglob("*.parquet"))
        rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        return sorted(rows, key=lambda each: repr(each["n"]))

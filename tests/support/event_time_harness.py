"""An event-time pipeline in a folder, with real files and real Spark."""

from __future__ import annotations

import json
import threading
import time as clock
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.errors import Unfinished
from blizzard_core.settings.document import Config
from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_core.storage.protocol import is_hidden
from blizzard_py.app.workers import build
from blizzard_py.edits.checkpoint_edit import change, read_checkpoint
from blizzard_py.edits.event_time import advance_watermark, with_empty_state
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine
from blizzard_py.state.stream_state import StreamState
from tests.support.event_time_oracle import BASE
from tests.support.flat_settings import nested

FIELDS: list[dict[str, Any]] = [
    {"name": "ts", "type": "timestamp", "nullable": False},
    {"name": "seen", "type": "timestamp", "nullable": False},
    {"name": "id", "type": "int64"},
    {"name": "page", "type": "string"},
    {"name": "bytes", "type": "int64"},
]
# On one partition: each costs a task and some stores of state in every batch. `test_streams` has
# queries on more.
TUMBLING: dict[str, Any] = {
    "column": "ts",
    "delay": "10 seconds",
    "window": "5 seconds",
    "group_by": ["page"],
    "aggregates": {"n": "count(*)", "bytes": "sum(bytes)"},
    "partitions": 1,
}

# Snapshots of state are in every history of some batches, and not in those of hours only.
EAGER_SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}

# What a user may set, and no query may follow.
CONTRARY = {
    "spark.sql.streaming.noDataProgressEventInterval": "0",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


@dataclass
class EventTimeHarness:
    """A pipeline: ``put`` a file and ``drain`` it; a new pipeline is a restart."""

    root: Path
    engine: Engine
    event_time: dict[str, Any] = field(default_factory=lambda: dict(TUMBLING))
    pipeline_settings: dict[str, Any] = field(default_factory=dict)
    # Spark's configuration as a user writes it; the engine that is given has its own.
    conf: dict[str, str] = field(default_factory=dict)
    files_per_batch: int = 1
    files: int = 0
    # What is each source's own; one that is called web is alone, by default.
    sources: dict[str, dict[str, Any]] = field(default_factory=lambda: {"web": {}})
    # After how many batches a process began.
    starts: list[int] = field(default_factory=list)
    whose: dict[str, str] = field(default_factory=dict)

    def raw(self, source: str) -> Path:
        folder = self.root / ("raw" if source == "web" else f"raw-{source}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def config(self) -> Config:
        return Config.model_validate(
            nested(
                Config,
                {
                    "spark": {"master": "local[2]", "conf": self.conf},
                    "pipelines": {
                        "pages": {
                            "sources": {
                                name: {
                                    "source_uri": str(self.raw(name)),
                                    "grace_period": 0,
                                    "order_guard": "off",
                                    # A slow machine makes no batch smaller.
                                    "checkpoint": {
                                        "interval_files": self.files_per_batch,
                                        "interval": "1000000s",
                                    },
                                    **own,
                                }
                                for name, own in self.sources.items()
                            },
                            "sink": {
                                "table_uri": str(self.root / "table"),
                                "metadata_columns": ["_emitted_batch"],
                            },
                            "schema": {"fields": FIELDS},
                            "event_time": self.event_time,
                            **self.pipeline_settings,
                        }
                    },
                },
            )
        )

    def put(self, rows: Iterable[Mapping[str, Any] | str], source: str = "web") -> str:
        """Write the next file of a source; a text is a line as it is."""
        self.files += 1
        name = f"{self.files:04d}.ndjson"
        lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
        (self.raw(source) / name).write_text("".join(f"{line}\n" for line in lines))
        self.whose[name] = source
        return name

    def pipeline(self) -> SourcePipeline:
        """Start a process: return the worker of all sources."""
        [worker] = build(self.config(), self.engine)
        stream = worker.load().kind.stream
        self.starts.append(0 if stream is None else stream.batch)
        return worker

    def drain(self, pipeline: SourcePipeline | None = None) -> None:
        """Ingest all files, as ``--once`` does; a given pipeline stays open."""
        worker = self.pipeline() if pipeline is None else pipeline
        try:
            while True:
                try:
                    if not worker.cycle(threading.Event()):
                        return
                except Unfinished:
                    return
        finally:
            if pipeline is None:
                worker.close()

    def advance(self, second: float) -> int:
        """Have the next batch move the watermark to so many seconds after `BASE`."""
        to_ms = round((BASE.timestamp() + second) * 1000)
        pipeline = self.pipeline()
        given = EventTimeSettings.model_validate(nested(EventTimeSettings, self.event_time))
        now = clock.time()
        branches = pipeline.parts.branches
        edit = partial(advance_watermark, given=given, branches=branches, to_ms=to_ms, now=now)
        change(pipeline, read_checkpoint(pipeline), edit, now)
        return to_ms

    def forget(self) -> None:
        """Have the next batch begin with nothing that the query remembers."""
        pipeline = self.pipeline()
        change(pipeline, read_checkpoint(pipeline), with_empty_state, clock.time())

    def stream(self) -> StreamState:
        state = self.pipeline().load().kind.stream
        assert state is not None
        return state

    def table(self) -> list[dict[str, Any]]:
        """Rows of everything that a committer would see."""
        root = self.root / "table"
        paths = [str(p.relative_to(root)) for p in root.rglob("*.parquet")]
        return [
            one
            for path in sorted(paths)
            if not is_hidden(path)
            for one in pq.ParquetFile(root / path).read().to_pylist()
        ]

    def output_ids(self) -> list[str]:
        root = self.root / "table"
        return [
            pq.read_metadata(p).metadata[b"blizzard.output_id"].decode()
            for p in root.rglob("*.parquet")
            if not is_hidden(str(p.relative_to(root)))
        ]

    def letters(self) -> list[dict[str, Any]]:
        """Return the dead letters of records, in their order."""
        root = self.root / "table" / "_blizzard" / "dlq"
        return [
            json.loads(line)
            for name in self.sources
            for path in sorted((root / f"pages_{name}").glob("*.records.ndjson"))
            for line in path.read_text().splitlines()
        ]

    def late(self) -> Counter[tuple[str, int]]:
        """File and line of each late row."""
        return Counter(
            (Path(letter["path"]).name, letter["line"])
            for letter in self.letters()
            if letter["stage"] == "late"
        )

    def packs(self) -> set[str]:
        """Return the objects in which state is packed."""
        root = self.root / "table"
        name = "pages_web" if len(self.sources) == 1 else "pages~sources"
        folder = root / "_blizzard" / "state" / name
        return {str(p.relative_to(root)) for p in folder.rglob("*") if p.is_file()}

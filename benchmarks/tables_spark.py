"""Contenders of `benchmarks.tables` through Spark, and the CPU time of their processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import worker_memory
from benchmarks.tables_reading import Order, read_by_adbc, settings
from benchmarks.tables_shapes import COLUMNS, FIELDS
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.protocol import ReadSelection, SourceConnection, WindowSplit
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.job import IngestJob, JobFile
from blizzard_py.reading import Access, Reading, ReadTask, Window
from blizzard_py.slices.windows import window

JAR = Path("/usr/share/java/postgresql.jar")
OURS_SPARK, ADBC_SPARK, JDBC = "ours, Spark task", "ADBC, Spark task", "spark.read.jdbc"

_WATERMARK = {"postgresql": "updated_at", "sqlite": "id"}
_TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def planned(
    driver: str, uri: str, below: int | None = None
) -> Iterator[tuple[SourceConnection, Access, Window, list[ReadTask]]]:
    """Yield the first window of ``orders`` and its tasks; with ``below`` only ids up to that."""
    access = Access(driver, uri)
    column = _WATERMARK[driver]
    chosen = "" if below is None else f"id <= {below}"
    selection = ReadSelection("orders", filter=chosen, fields=FIELDS, columns=(column,))
    with contextlib.closing(connect(access, selection)) as connection:
        asking = QuerySpec(connection, access, (column,))
        bound = connection.bound(asking.bound_kind, 0)
        found = window(None, bound.value, {}, datetime.now(UTC), bound.kind)
        if found is None:
            raise RuntimeError("the table is empty")
        yield connection, access, found, list(connection.tasks(found, WindowSplit()))


def statement_of(driver: str, uri: str) -> str:
    """Return the statement of our own task, for contenders without a plan."""
    with planned(driver, uri) as (_, _, _, tasks):
        (task,) = tasks
        statement: str = task.spec["statement"]
        return statement


class Through:
    """Reads ``orders`` through one Spark session; each gives the rows that it wrote."""

    def __init__(self, engine: SparkEngine, password: str, port: int) -> None:
        self._engine = engine
        self._password = password
        self._url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        self._turn = 0

    def contenders(self, driver: str) -> Mapping[str, Callable[[Order], int]]:
        """Return the contenders by name. The distribution has no JDBC driver for SQLite."""
        found: dict[str, Callable[[Order], int]] = {
            OURS_SPARK: self.run_first_window,
            ADBC_SPARK: self._adbc,
        }
        if driver == "postgresql" and JAR.exists():
            found[JDBC] = self._jdbc
        return found

    def run_first_window(self, order: Order, below: int | None = None) -> int:
        """Run the daemon's first window in its engine, with its planning."""
        self._turn += 1
        with planned(order.driver, order.uri, below) as (connection, access, _, tasks):
            named = {f"000000000000#{task.name}": task for task in tasks}
            with connection.hold(access) as held:
                job = IngestJob(
                    settings(order.folder),
                    "staging",
                    f"bench/orders/{self._turn}/1",
                    tuple(JobFile(name, task.size) for name, task in named.items()),
                    1.0,
                    Reading(held, named),
                )
                result = self._engine.ingest(job)
        return sum(
            pq.read_metadata(Path(order.folder, one.staged)).num_rows for one in result.outputs
        )

    def _adbc(self, order: Order) -> int:
        """Run a reader with ``mapInArrow``, as one writes it by hand."""
        rows = self._engine.session().range(0, 1, 1, 1)
        (row,) = rows.mapInArrow(partial(_by_hand, order), "rows long").collect()
        found: int = row["rows"]
        return found

    def _jdbc(self, order: Order) -> int:
        frame = (
            self._engine.session()
            .read.format("jdbc")
            .options(
                url=self._url,
                query=f"SELECT {COLUMNS} FROM orders",  # our own names
                user="postgres",
                password=self._password,
                driver="org.postgresql.Driver",
                fetchsize="10000",
            )
            .load()
        )
        frame.write.parquet(order.folder)
        return sum(pq.read_metadata(p).num_rows for p in Path(order.folder).glob("*.parquet"))


def _by_hand(order: Order, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prepare_process()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"rows": [read_by_adbc(order)]})


def jvm() -> int | None:
    """Spark's JVM, a child of this process; None before it has started."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone
            command = (place / "cmdline").read_bytes()
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"org.apache.spark" in command:
                return int(place.name)
    return None


def cpu_secs(*pids: int) -> float:
    """CPU seconds of the processes and of their children that have ended."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it is gone
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / _TICKS
    return total


def workers_cpu_secs() -> float:
    """CPU seconds of Spark's Python workers and their parent up to now."""
    return cpu_secs(*worker_memory.python_workers())

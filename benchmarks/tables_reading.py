"""Contenders of `benchmarks.tables` without Spark: each reads ``orders`` into one file.

    python -m benchmarks.tables_reading < order.json

All write snappy Parquet with the same schema. Each runs in a fresh process, which tells its
rows, seconds and CPU seconds (without imports) and its peak in MB.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables_shapes import COLUMNS, FIELDS, SCHEMA
from blizzard_core.storage.opening import open_storage
from blizzard_py.connections.drivers import reader_of
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.job import IngestJob, IngestSettings, JobFile, OutputLayout, Place, RowSchema
from blizzard_py.kernels.read_task import reading_tasks, run_read_task
from blizzard_py.reading import Access, Reading, ReadTask

ADBC, CONNECTORX, PSYCOPG, OURS = "bare ADBC", "connectorx", "psycopg", "ours, bare process"
_STATEMENT = f"SELECT {COLUMNS} FROM orders"  # our own names
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Order:
    """Source and target of a reading; ``statement`` is that of our own task."""

    contender: str
    driver: str
    uri: str
    statement: str
    folder: str


def settings(folder: str) -> IngestSettings:
    """Return the settings that the pipeline's YAML would give, all others at their defaults."""
    return IngestSettings(
        source=Place("shop:orders"),
        sink=Place(folder),
        schema=RowSchema(FIELDS),
        layout=OutputLayout("snappy", file_bytes=128 << 20),
    )


def read_by_adbc(order: Order) -> int:
    """Read as one writes it by hand: batches as they come, cast to the schema, written."""
    dbapi, uri = _adbc(order)
    with dbapi.connect(uri, autocommit=True) as session, session.cursor() as cursor:
        cursor.execute(_STATEMENT)
        return _written(order, cursor.fetch_record_batch())


def _adbc(order: Order) -> tuple[Any, str]:
    if order.driver == "sqlite":
        import adbc_driver_sqlite.dbapi as sqlite  # noqa: PLC0415  # before the clock starts

        return sqlite, f"file:{order.uri}?mode=ro"
    import adbc_driver_postgresql.dbapi as postgresql  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; likewise

    return postgresql, order.uri


def read_by_connectorx(order: Order) -> int:
    """Likewise, as a stream."""
    import connectorx  # noqa: PLC0415  # likewise

    uri = f"sqlite://{order.uri}" if order.driver == "sqlite" else order.uri
    reader = connectorx.read_sql(
        uri, _STATEMENT, return_type="arrow_stream", batch_size=_BATCH_ROWS
    )
    return _written(order, reader)


def read_by_psycopg(order: Order) -> int:
    """Likewise, by rows of a server's cursor, as one would do it without Arrow."""
    import psycopg  # noqa: PLC0415  # likewise

    with psycopg.connect(order.uri) as session, session.cursor("orders") as cursor:
        cursor.itersize = _BATCH_ROWS
        cursor.execute(_STATEMENT)
        return _written(order, _batches(cursor))


def _batches(cursor: Any) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(_BATCH_ROWS):
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )


def read_by_us(order: Order) -> int:
    """Run the product's task without Spark: its reader, its kernel, its outputs."""
    access = Access(order.driver, order.uri)
    read = ReadTask("0", order.statement, {"statement": order.statement})
    job = IngestJob(settings(order.folder), "staging", "b", (JobFile("i", 0),), 1.0)
    [task] = reading_tasks(job, Reading(access, {"i": read}))
    rows = reader_of(order.driver)(access, read.spec, FIELDS)
    report = run_read_task(task, rows, open_storage(order.folder, {}), attempt_id=1)
    return sum(file.rows for file in report.files)


CONTENDERS: Mapping[str, Callable[[Order], int]] = {
    ADBC: read_by_adbc,
    CONNECTORX: read_by_connectorx,
    PSYCOPG: read_by_psycopg,
    OURS: read_by_us,
}


def contenders(driver: str) -> list[str]:
    """Return the contenders that can read that database."""
    return [name for name in CONTENDERS if name != PSYCOPG or driver == "postgresql"]


def _written(order: Order, batches: Iterator[pa.RecordBatch]) -> int:
    Path(order.folder).mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetWriter(f"{order.folder}/all.parquet", SCHEMA, compression="snappy") as writer:
        for batch in batches:
            columns = [_cast(batch.column(field.name), field.type) for field in SCHEMA]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            rows += batch.num_rows
    return rows


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):  # numeric is text there
        column = column.storage
    return column if column.type == kind else column.cast(kind)


def _prepare(order: Order) -> None:
    """Import what the contender uses, as a worker has that has run before."""
    prepare_process()
    if order.contender == CONNECTORX:
        import connectorx  # noqa: F401, PLC0415  # this is what it is for
    elif order.contender == PSYCOPG:
        import psycopg  # noqa: F401, PLC0415  # likewise
    else:
        _adbc(order)
        reader_of(order.driver)


def main() -> None:
    order = Order(**json.load(sys.stdin))
    _prepare(order)
    cpu, start = os.times(), time.perf_counter()
    rows = CONTENDERS[order.contender](order)
    took, now = time.perf_counter() - start, os.times()
    used = now.user + now.system - cpu.user - cpu.system
    (line,) = [x for x in open("/proc/self/status") if x.startswith("VmHWM")]  # noqa: SIM115, PTH123  # it ends
    print(json.dumps({"rows": rows, "secs": took, "cpu": used, "mb": int(line.split()[1]) / 1000}))


def as_json(order: Order) -> str:
    """Return the input of `main`."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    main()

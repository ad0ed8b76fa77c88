"""``make bench-formats``: files of each format to Parquet, beside duckdb, polars, Spark, fastavro.

"row groups" are Parquet files whose row groups are copied, beside the same files decoded. "json"
are arrays; in "json documents" the array is below a key, so duckdb and Spark unnest it.

Each contender runs alone in a fresh process with one thread, ours with the environment of workers.
They run in turn, so that all see the same load of the machine. What counts is CPU seconds of the
process and its children without imports, the median of the rounds, and the peak memory of the
process and its children (Spark's is in its JVM). Each contender must return as many rows as the
files have. Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import (
    CsvOptions,
    FormatSettings,
    JsonOptions,
    NdjsonOptions,
    OrcOptions,
    ParquetOptions,
    XmlOptions,
)
from blizzard_core.storage.opening import open_source, open_storage
from blizzard_py.engines.spark.masters import WORKER_ENVIRONMENT
from blizzard_py.job import (
    FieldSpec,
    IngestJob,
    IngestSettings,
    JobFile,
    OutputLayout,
    Place,
    RowSchema,
)
from blizzard_py.schema.types import table_schema

COLUMNS = {
    "id": ("int64", "BIGINT"),
    "user": ("string", "VARCHAR"),
    "kind": ("string", "VARCHAR"),
    "page": ("string", "VARCHAR"),
    "price": ("float64", "DOUBLE"),
    "amount": ("int32", "INTEGER"),
    "at": ("timestamp", "TIMESTAMP"),
    "day": ("date", "DATE"),
    "ok": ("boolean", "BOOLEAN"),
}
FIELDS = tuple(FieldSpec(name, kind, nullable=True) for name, (kind, _) in COLUMNS.items())  # type: ignore[arg-type]  # literals
AVRO_TYPES: dict[str, object] = {
    "id": "long", "user": "string", "kind": "string", "page": "string", "price": "double",
    "amount": "int", "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"}, "ok": "boolean",
}  # fmt: skip
OURS = "blizzard"
SETTINGS: dict[str, FormatSettings] = {
    "ndjson": NdjsonOptions(),
    "csv": CsvOptions(type="csv"),
    "json": JsonOptions(type="json"),
    "json documents": JsonOptions(type="json", records="data"),
    "avro": AvroOptions(type="avro"),
    "parquet": ParquetOptions(type="parquet"),
    "orc": OrcOptions(type="orc"),
    "xml": XmlOptions(type="xml", row_tag="event"),
    "row groups": ParquetOptions(type="parquet", row_groups="copy"),
}
# How many times as fast as the contender we want to be.
GOALS = {
    ("csv", "duckdb"): 0.75,
    ("csv", "spark"): 5.0,
    ("json", "spark"): 5.0,
    ("json documents", "duckdb"): 5.0,
    ("json documents", "spark"): 5.0,
    ("avro", "fastavro"): 1.0,
    ("parquet", "duckdb"): 0.7,
    ("parquet", "spark"): 10.0,
    ("xml", "spark"): 1.0,
    ("row groups", "decoded"): 6.0,
}
ORC_GOAL = 0.7  # how many times as fast as our Parquet
# How often the rows of a file are repeated, which makes row groups that are worth copying.
REPEATED = 20


@dataclass(frozen=True, slots=True)
class Run:
    """One run: CPU seconds, peak memory in MB, and rows."""

    cpu: float
    peak_mb: float
    rows: int


def write_files(folder: Path, kind: str, files: int, rows: int) -> None:
    """Write files of events; equal numbers give equal rows in each format."""
    for file in range(files):
        events = [_event(file * rows + number) for number in range(rows)]
        path = folder / f"{file:03}.{kind}"
        if kind == "csv":
            lines = [",".join(COLUMNS), *(",".join(map(_text, e.values())) for e in events)]
            path.write_text("\n".join(lines) + "\n")
        elif kind == "json":
            path.write_text(json.dumps(events))
        elif kind == "json documents":
            path.write_text(json.dumps({"count": rows, "data": events}))
        elif kind == "xml":
            path.write_text(f"<events>\n{''.join(map(_element, events))}</events>\n")
        elif kind in {"avro", "parquet", "orc", "row groups"}:
            _write_typed(path, kind, [_typed(event) for event in events])
        else:
            path.write_text("".join(json.dumps(event) + "\n" for event in events))


def _write_typed(path: Path, kind: str, events: list[dict[str, object]]) -> None:
    if kind == "avro":
        import fastavro  # noqa: PLC0415  # the other formats do not need it

        fields = [{"name": name, "type": ["null", AVRO_TYPES[name]]} for name in COLUMNS]
        schema = {"type": "record", "name": "event", "fields": fields}
        with path.open("wb") as file:
            fastavro.writer(file, schema, events, codec="deflate")
        return
    schema = table_schema(FIELDS)
    table = pa.Table.from_pylist(events, schema)
    if kind == "row groups":
        pq.write_table(pa.concat_tables([table] * REPEATED), path.with_suffix(".parquet"))
        return
    (pq.write_table if kind == "parquet" else orc.write_table)(table, path)


def _typed(event: dict[str, object]) -> dict[str, object]:
    at = dt.datetime.fromisoformat(str(event["at"]))
    return {**event, "at": at, "day": dt.date.fromisoformat(str(event["day"]))}


def _event(number: int) -> dict[str, object]:
    spread = number * 2_654_435_761 % 4_294_967_296
    return {
        "id": number,
        "user": f"user-{spread % 9973}",
        "kind": ("view", "click", "buy")[spread % 3],
        "page": f"/products/{spread % 99_991}",
        "price": spread % 100_000 / 100,
        "amount": spread % 97,
        "at": f"2024-05-06T12:{spread % 60:02}:{spread % 59:02}Z",
        "day": f"2024-05-{spread % 28 + 1:02}",
        "ok": spread % 2 == 0,
    }


def _element(event: Mapping[str, object]) -> str:
    inside = "".join(f"<{name}>{_text(value)}</{name}>" for name, value in event.items())
    return f"<event>{inside}</event>\n"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def blizzard_run(kind: str, source: Path, sink: Path) -> int:
    """Ingest the files in one task."""
    from blizzard_py.kernels.packing import tasks_of  # noqa: PLC0415  # not before the clock
    from blizzard_py.kernels.task import run_task  # noqa: PLC0415  # as above

    paths = tuple(JobFile(p.name, p.stat().st_size) for p in sorted(source.iterdir()))
    settings = IngestSettings(
        Place(str(source)),
        Place(str(sink)),
        RowSchema(FIELDS),
        OutputLayout("snappy", file_bytes=512 << 20),
        format=SETTINGS[kind],
    )
    job = IngestJob(settings, "_blizzard/staging/bench/1/1", "bench/source/1/1", paths)
    [task] = tasks_of(job, [paths])
    report = run_task(task, open_source(str(source), {}), open_storage(str(sink), {}), 1)
    return sum(file.rows for file in report.files)


def decoded_run(kind: str, source: Path, sink: Path) -> int:  # noqa: ARG001  # there is one kind
    """Ingest the files of which row groups are copied by decoding them."""
    return blizzard_run("parquet", source, sink)


def duckdb_run(kind: str, source: Path, sink: Path) -> int:
    """Copy the files by one statement."""
    import duckdb  # noqa: PLC0415  # in its own process

    types = ", ".join(f"'{name}': '{sql}'" for name, (_, sql) in COLUMNS.items())
    files = f"'{source}/*.{kind}', columns={{{types}}}"
    readers = {"csv": f"read_csv({files}, header=true)", "parquet": f"'{source}/*.parquet'"}
    reader = readers.get(kind, f"read_json({files})")
    columns = "*"
    if kind == "json documents":
        event = ", ".join(f'"{name}" {sql}' for name, (_, sql) in COLUMNS.items())
        documents = f"columns={{'data': 'STRUCT({event})[]'}}, maximum_object_size={64 << 20}"
        reader = f"read_json('{source}/*', format='unstructured', {documents})"
        columns = "unnest(data, max_depth := 2)"
    connection = duckdb.connect(config={"threads": 1})
    copied = connection.execute(
        f"COPY (SELECT {columns} FROM {reader}) TO '{sink}/o.parquet' (FORMAT parquet)"  # ours
    )
    return int(copied.fetchall()[0][0])


def polars_run(kind: str, source: Path, sink: Path) -> int:
    """Read the files lazily, or documents one by one, and write them."""
    import polars as pl  # noqa: PLC0415  # in its own process

    kinds = {
        "int64": pl.Int64, "string": pl.String, "float64": pl.Float64, "int32": pl.Int32,
        "timestamp": pl.String, "date": pl.String, "boolean": pl.Boolean,
    }  # fmt: skip
    schema = {name: kinds[kind] for name, (kind, _) in COLUMNS.items()}
    if kind == "parquet":
        frame = pl.scan_parquet(f"{source}/*.parquet").collect()
        frame.write_parquet(sink / "o.parquet", compression="snappy")
        return frame.height
    if kind == "csv":
        frame = pl.scan_csv(f"{source}/*.csv", schema=schema).collect()
    elif kind == "ndjson":
        frame = pl.scan_ndjson(f"{source}/*.ndjson", schema=schema).collect()
    else:
        frame = pl.concat([pl.read_json(p, schema=schema) for p in sorted(source.iterdir())])
    times = pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%SZ"), pl.col("day").str.to_date()
    frame.with_columns(*times).write_parquet(sink / "o.parquet", compression="snappy")
    return frame.height


def spark_run(kind: str, source: Path, sink: Path) -> int:
    """Read the files with Spark's own source of the format; the session is warm."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # in its own process

    spark = SparkSession.builder.master("local[1]").getOrCreate()
    spark.range(1).count()
    types = ", ".join(f"`{name}` {sql.replace('VARCHAR', 'STRING')}" for name, (_, sql) in
                      COLUMNS.items())  # fmt: skip
    types, is_below = types.replace("INTEGER", "INT"), kind == "json documents"
    reader = spark.read.schema(f"data ARRAY<STRUCT<{types}>>" if is_below else types)
    reader = reader.option("header", True).option("multiLine", kind not in {"ndjson", "csv"})
    reader = reader.option("rowTag", "event")
    is_json = kind in {"ndjson", "json documents"}
    frame = reader.format("json" if is_json else kind).load(str(source))
    frame = frame.selectExpr("inline(data)") if is_below else frame
    frame.write.parquet(f"{sink}/spark")
    return spark.read.parquet(f"{sink}/spark").count()


def fastavro_run(kind: str, source: Path, sink: Path) -> int:  # noqa: ARG001  # it reads only Avro
    """Read Avro with fastavro, make an Arrow table of the records, and write it."""
    import fastavro  # noqa: PLC0415  # in its own process

    tables = []
    for path in sorted(source.iterdir()):
        with path.open("rb") as file:
            tables.append(pa.Table.from_pylist(list(fastavro.reader(file)), table_schema(FIELDS)))
    table = pa.concat_tables(tables)
    pq.write_table(table, sink / "o.parquet")
    return int(table.num_rows)


CONTENDERS: Mapping[str, Callable[[str, Path, Path], int]] = {
    OURS: blizzard_run,
    "duckdb": duckdb_run,
    "polars": polars_run,
    "spark": spark_run,
    "fastavro": fastavro_run,
    "decoded": decoded_run,
}
_TEXTS = frozenset({"ndjson", "csv", "json"})
_DOCUMENTS = frozenset({"json documents"})
# Of Avro and ORC, duckdb, polars and Spark read what their packages can read without a download.
READ = {
    OURS: frozenset(SETTINGS),
    "duckdb": _TEXTS | _DOCUMENTS | {"parquet"},
    "polars": _TEXTS | {"parquet"},
    "spark": _TEXTS | _DOCUMENTS | {"parquet", "orc", "xml"},
    "fastavro": frozenset({"avro"}),
    "decoded": frozenset({"row groups"}),
}


def measured(name: str, kind: str, source: Path) -> Run:
    """Run one contender in this process; its first run loads what is imported only once."""
    run = CONTENDERS[name]
    with tempfile.TemporaryDirectory() as warm:
        small = Path(warm) / "in"
        small.mkdir()
        write_files(small, kind, 1, 10)
        (Path(warm) / "out").mkdir()
        run(kind, small, Path(warm) / "out")
    with tempfile.TemporaryDirectory() as sink:
        before = _cpu()
        rows = run(kind, source, Path(sink))
        spent = _cpu() - before
    # Not getrusage, whose peak is inherited from the process that started this one.
    return Run(spent, sum(map(_peak_mb, ["self", *_children()])), rows)


def _cpu() -> float:
    """Return the CPU seconds of this process and all its children, ended or not."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(each.ru_utime + each.ru_stime for each in used)
    for pid in _children():
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


def _children() -> set[str]:
    paths = Path("/proc/self/task").glob("*/children")
    return {pid for path in paths for pid in path.read_text().split()}


def _peak_mb(pid: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    """Print a table for each format; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description="Compare the formats of files.")
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    parser.add_argument("--formats", nargs="*", default=list(SETTINGS))
    chosen = parser.parse_args()
    missed = []
    our_seconds: dict[str, float] = {}
    for kind in chosen.formats:
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder), kind, chosen.files, chosen.rows)
            names = [name for name in chosen.only if kind in READ[name]]
            found: dict[str, list[Run]] = {name: [] for name in names}
            for _ in range(chosen.rounds):
                for name in names:
                    found[name].append(_alone(name, kind, Path(folder)))
        ours = our_seconds[kind] = median(run.cpu for run in found[OURS])
        rows = chosen.rows * (REPEATED if kind == "row groups" else 1)
        print(f"\n{kind}: {chosen.files} files of {rows:,} rows")
        print(f"  {'':10} {'CPU s':>7} {'times ours':>11} {'peak MB':>8}")
        for name, runs in found.items():
            assert {run.rows for run in runs} == {chosen.files * rows}, (name, runs)
            cpu = median(run.cpu for run in runs)
            peak = max(run.peak_mb for run in runs)
            memory = "in JVM" if name == "spark" else f"{peak:.0f}"
            print(f"  {name:10} {cpu:7.2f} {cpu / ours:11.2f} {memory:>8}")
            goal = GOALS.get((kind, name))
            if goal is not None and cpu / ours < goal:
                missed.append(f"{kind}: {cpu / ours:.2f} times as fast as {name}, wanted {goal:g}")
    if {"orc", "parquet"} <= our_seconds.keys():
        factor = our_seconds["parquet"] / our_seconds["orc"]
        if factor < ORC_GOAL:
            missed.append(f"orc: {factor:.2f} times as fast as our Parquet, wanted {ORC_GOAL:g}")
    print("\n".join(["", *(missed or ["all goals are met"])]))
    return 1 if missed else 0


def _alone(name: str, kind: str, source: Path) -> Run:
    environment = WORKER_ENVIRONMENT if name in {OURS, "decoded"} else {}
    with patch.dict(os.environ, environment), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measured, name, kind, source).result()


if __name__ == "__main__":
    sys.exit(main())

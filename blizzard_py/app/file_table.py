"""Outcomes of items as a table: one row for each item of each batch in the journals.

The rows go to Parquet some at a time, so journals of any length fit in memory. A journal has the
batches of the last thirty days, and older ones that its source still needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import ConfigError, StateError
from blizzard_core.handover.published import first_name
from blizzard_core.settings.document import Config
from blizzard_core.text import utf8_name
from blizzard_py.app.wiring import context_of
from blizzard_py.state.journal import REMEDY, Journal

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("pipeline", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bad_rows", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified", _TIME, nullable=False),
        pa.field("seen", _TIME, nullable=False),
        pa.field("finished", _TIME, nullable=False),
        pa.field("batch", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("request", pa.string(), nullable=False),
    ]
)
# Rows that are in memory at once.
_TOGETHER = 50_000
_MICROS = 1_000_000
# What the columns hold. Moments that readers know end with the year 9999.
_NUMBERS = {"rows": 2**63, "bad_rows": 2**63, "size": 2**63, "attempt": 2**31} | dict.fromkeys(
    ("modified", "seen", "finished"), 253_402_300_800 * _MICROS
)
_TEXTS = ("batch", "stage", "error", "request")


def rows_of(
    config: Config, where: Iterable[tuple[str, str]], since: float | None
) -> Iterator[dict[str, Any]]:
    """Yield a row of `SCHEMA` for each item of the batches since then (epoch seconds).

    Raises `StateError` naming an object that is not understood, `StorageError`.
    """
    first = "" if since is None else first_name(since)
    for pipeline, source in where:
        parts = context_of(config, (pipeline, source))
        journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
        for document in journal.documents(journal.batches_from(first)):
            for file in document.files:
                row: dict[str, Any] = {
                    "pipeline": pipeline,
                    "source": source,
                    "path": utf8_name(file.path),
                    "outcome": file.outcome,
                    "rows": file.rows,
                    "bad_rows": file.bad_rows,
                    "size": file.size,
                    "modified": _micros(file.modified),
                    "seen": _micros(document.seen_ts),
                    "finished": _micros(document.finished_ts),
                    "batch": document.batch,
                    "attempt": document.attempt,
                    "stage": file.stage,
                    "error": file.error,
                    "request": document.request,
                }
                wrong = [
                    name for name, limit in _NUMBERS.items() if not -limit <= row[name] < limit
                ]
                if wrong:
                    raise StateError(
                        f"{journal.where}/{document.batch}.json: {wrong[0]} of {row['path']} is out"
                        f" of range; {REMEDY}"
                    )
                yield row | {name: utf8_name(row[name]) for name in _TEXTS}


def write_parquet(rows: Iterable[dict[str, Any]], path: Path) -> int:
    """Write the rows to a file that is whole or not there; return their number.

    A link stays one. Raises `ConfigError` if the file cannot be written, or is no plain file, such
    as a pipe or `/dev/stdout`: a rename would put a file in its place.
    """
    remaining, count = iter(rows), 0
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ConfigError("--to", [f"{path}: is not a plain file; name another one"])
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            whole = Path(folder, path.name)
            with pq.ParquetWriter(whole, SCHEMA, compression="zstd") as writer:
                while some := list(islice(remaining, _TOGETHER)):
                    writer.write_table(pa.Table.from_pylist(some, SCHEMA))
                    count += len(some)
            whole.replace(path)
    except OSError as error:
        raise ConfigError(
            "--to", [f"{path}: cannot be written: {error.strerror or error}"]
        ) from error
    return count


def summarize(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return counts by source and outcome, with the time of the newest batch (epoch seconds)."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["pipeline"], row["source"], row["outcome"]
        names = ("pipeline", "source", "outcome")
        counts = dict.fromkeys(("items", "rows", "bad_rows", "size"), 0)
        line = found.setdefault(
            key, {**dict(zip(names, key, strict=True)), **counts, "newest": 0.0}
        )
        line["items"] += 1
        for name in ("rows", "bad_rows", "size"):
            line[name] += row[name]
        line["newest"] = max(line["newest"], row["finished"] / _MICROS)
    return [found[key] for key in sorted(found)]


def _micros(moment: float) -> int:
    return round(moment * _MICROS)

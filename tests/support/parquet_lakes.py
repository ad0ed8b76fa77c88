"""Folders of Parquet files, and sources that poll them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_py.connections.lakes.parquet import connect
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.lake_reading import Poller

UTC = dt.UTC

START = dt.datetime(2026, 5, 4, 12, tzinfo=UTC)


def poller(
    folder: Path,
    columns: tuple[str, ...] = ("at",),
    table: str = "",
    fields: tuple[FieldSpec, ...] = (),
) -> Poller:
    access = Access("parquet", str(folder))
    connection = connect(access, ReadSelection(table=table, columns=columns, fields=fields))
    return Poller(lambda: connection, read, access, "max", columns, fields)


DATED = (FieldSpec("id", "int64", nullable=True), FieldSpec("at", "timestamp", nullable=True))


def put(
    path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None, **options: Any
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def at(secs: float) -> dt.datetime:
    return START + dt.timedelta(seconds=secs)

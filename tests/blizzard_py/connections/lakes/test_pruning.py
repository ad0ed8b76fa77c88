"""Files that a unit need not read: never one with rows of it, and few others."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_py.connections.lakes import delta, iceberg
from blizzard_py.connections.lakes.pruning import PrunableFiles
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.reading import Access, ReadTask
from tests.support.iceberg_catalog import FolderCatalog
from tests.support.lake_reading import rows_of

UTC = dt.UTC
START = dt.datetime(2026, 5, 4, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int32()),
        ("m", pa.decimal128(9, 2)),
        ("f", pa.float64()),
        ("s", pa.string()),
    ]
)


def row(chance: random.Random, number: int, around: int) -> dict[str, Any]:
    """Values near those of its file; some are null, at an end of time, or longer than bounds."""
    at = START + dt.timedelta(days=around, microseconds=chance.choice([-1, 0, 1, 999, 10**9]))
    return {
        "id": number,
        "p": (START + dt.timedelta(days=around)).date(),
        "at": chance.choice([at, at, at, None]),
        "n": chance.choice([around, around + 1, None]),
        "m": Decimal(around) + Decimal("0.25"),
        "f": chance.choice([float(around), float("nan"), 0.1 * around]),
        "s": chance.choice(["", "a" * 40 + chr(97 + around), f"{around}", "\U0010ffff" * 40, None]),
    }


def need(chance: random.Random) -> str:
    """A condition, many of them at the edge of a file's values."""
    name = chance.choice(["p", "at", "at", "n", "m", "f", "s"])
    day = START + dt.timedelta(days=chance.randint(-1, 6))
    literals = {
        "p": [f"'{day:%F}'", f"DATE '{day:%F}'"],
        "at": [
            f"'{day:%F}'",
            f"DATE '{day:%F}'",
            f"'{day + dt.timedelta(microseconds=chance.randint(-1, 1))}'",
            f"TIMESTAMP '{day:%F} 00:16:40'",
        ],
        "n": [str(chance.randint(-1, 7)), f"'{chance.randint(-1, 7)}'", "2.5"],
        "m": [str(chance.randint(-1, 7)), "3.25"],
        "f": ["3", "0.3"],
        "s": ["''", "'3'", f"'{'a' * 40}c'", f"'{'a' * 32}'", "'\U0010ffff'"],
    }[name]
    some = [chance.choice(literals) for _ in range(2)]
    sign = chance.choice(["=", "<", "<=", ">", ">=", "<>"])
    compared = f"{name} {sign} {some[0]}"
    between = f"{name} BETWEEN {some[0]} AND {some[1]}"
    return chance.choice([compared] * 6 + [between, f"NOT {compared}", f"{name} IS NULL"])


def condition(chance: random.Random) -> str:
    parts = [need(chance) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.2:
        parts.append(f"({need(chance)} OR {need(chance)})")
    return " AND ".join(parts)


def write_delta(folder: Path, files: list[pa.Table], *, by: bool) -> Access:
    for file in files:
        write_deltalake(folder, file, mode="append", partition_by=["p"] if by else None)
    return Access("delta", str(folder))


def write_iceberg(folder: Path, files: list[pa.Table]) -> Access:
    made = FolderCatalog("default", warehouse=str(folder)).create_table("db.t", SCHEMA)
    for file in files:
        made.append(file)
    catalog = "tests.support.iceberg_catalog.FolderCatalog"
    return Access("iceberg", "", {"py-catalog-impl": catalog, "warehouse": str(folder)})


def unit_of(access: Access, text: str) -> ReadTask:
    table = "db.t" if access.driver == "iceberg" else ""
    made: Any = iceberg.IcebergConnection if table else delta.DeltaConnection
    [task] = made(access, ReadSelection(table=table, filter=text)).unit_tasks([{}])
    assert isinstance(task, ReadTask)
    return task


@pytest.mark.promise("G-163")
@pytest.mark.parametrize("kind", ["delta", "delta by p", "iceberg"])
def test_a_unit_reads_all_its_rows_and_not_all_files(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    files = [
        pa.Table.from_pylist([row(chance, 10 * day + n, day) for n in range(4)], SCHEMA)
        for day in range(6)
    ]
    if kind == "iceberg":
        access = write_iceberg(tmp_path, files)
    else:
        access = write_delta(tmp_path, files, by=kind == "delta by p")
    left_out = 0
    for _ in range(60):
        text = condition(chance)
        pruned = unit_of(access, text)
        with monkeypatch.context() as patch:
            patch.setattr(
                PrunableFiles, "files", lambda self, _: [each.file for each in self.known]
            )
            whole = unit_of(access, text)
        assert len(whole.spec["files"]) == 6
        left_out += 6 - len(pruned.spec["files"])
        found = [sorted(r["id"] for r in rows_of(read, access, [task])) for task in (pruned, whole)]
        assert found[0] == found[1], text
    assert left_out > 60


def test_units_of_a_day_read_the_files_of_that_day(tmp_path: Path) -> None:
    chance = random.Random(5)
    files = [
        pa.Table.from_pylist([{**row(chance, day, day), "s": f"r{day % 2}"}], SCHEMA)
        for day in range(6)
    ]
    access = write_delta(tmp_path, files, by=True)
    text = "p >= {from} AND p < {to} AND s = {unit.region}"
    connection = delta.DeltaConnection(access, ReadSelection(filter=text))
    days = [START + dt.timedelta(days=day) for day in range(7)]
    units = [
        {"from": low, "to": high, "unit.region": region}
        for low, high in pairwise(days)
        for region in ("r0", "r1")
    ]
    read_files = [
        len(task.spec["files"])
        for task in connection.unit_tasks(units)
        if isinstance(task, ReadTask)
    ]
    assert read_files == [1, 0, 0, 1] * 3
    empty = connection.unit_tasks([{**units[0], "unit.region": "none"}])[0]
    assert isinstance(empty, ReadTask)
    assert rows_of(read, replace(access), [empty]) == []

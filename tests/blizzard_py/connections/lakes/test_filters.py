"""The filter on lakes against SQLite, and through every reader."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes import parquet, scanned, window_rows
from blizzard_py.connections.lakes.filters import parse
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.support.lake_reading import rows_of
from tests.support.text_lakes import access_to

A = [None, -1, 0, 1, 2]
B = [None, "", "a", "A'b", "aé%"]


def made(chance: random.Random, depth: int = 0) -> str:
    """A random condition that SQLite and we read alike."""
    literal = {"a": lambda: str(chance.randint(-1, 2)), "b": lambda: quoted(chance)}
    name = chance.choice("ab")
    value = literal[name]
    if depth < 3 and chance.random() < 0.6:
        joined = f" {chance.choice(['AND', 'or'])} ".join(made(chance, depth + 1) for _ in range(2))
        return chance.choice([f"({joined})", joined, f"NOT ({joined})", f"not {joined}"])
    negated = chance.choice(["", "NOT "])
    return chance.choice(
        [
            f"{name} {chance.choice(['=', '<>', '!=', '<', '<=', '>', '>='])} {value()}",
            f"{name} IS {negated}NULL",
            f"{name} {negated}IN ({value()}, {value()})",
            f'"{name}" {negated}BETWEEN {value()} AND {value()}',
        ]
    )


def quoted(chance: random.Random) -> str:
    text: str = chance.choice([text for text in B if text is not None])
    return "'" + text.replace("'", "''") + "'"


def test_random_conditions_are_those_of_sql() -> None:
    server = sqlite3.connect(":memory:")
    server.execute("CREATE TABLE t (n INTEGER, a INTEGER, b TEXT)")
    every = [(n, a, b) for n, (a, b) in enumerate((a, b) for a in A for b in B)]
    server.executemany("INSERT INTO t VALUES (?, ?, ?)", every)
    columns = {"a": pa.array([row[1] for row in every]), "b": pa.array([row[2] for row in every])}
    chance = random.Random(7)
    for _ in range(1500):
        text = made(chance)
        found = parse(text)
        kept = [n for n, keeps in enumerate(found.keeps(columns).to_pylist()) if keeps]
        asked = server.execute(f"SELECT n FROM t WHERE {text} ORDER BY n")
        assert kept == [n for (n,) in asked], text
    server.close()


NONSENSE = (
    "a|a =|a = b|= 1|a = 1 AND|a = 1; DROP TABLE t|(a = 1|a = 'x|a LIKE 1|f(a) = 1|a + 1 = 2"
    "|a IN ()|a = DATE 'soon'|NOT|a NOT = 1|a = 1 b|a = --1"
)


@pytest.mark.parametrize("text", NONSENSE.split("|"))
def test_parse_rejects_unsupported_filters(text: str) -> None:
    with pytest.raises(SourceError, match="is not understood at"):
        parse(text)


MOMENT = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
TYPED: list[tuple[str, pa.Array, bool]] = [
    ("c >= DATE '2026-05-04'", pa.array([MOMENT]), True),
    ("c < '2026-05-04T12:00:00.000001+00:00'", pa.array([MOMENT]), True),
    ("c = TIMESTAMP '2026-05-04 12:00:00'", pa.array([MOMENT.replace(tzinfo=None)]), True),
    ("c = '2026-05-04'", pa.array([MOMENT.date()]), True),
    ("c > 1.5", pa.array([Decimal("1.51")]), True),
    ("c = 0.1", pa.array([0.1]), True),
    ("c > -1.5e0", pa.array([-1], pa.int8()), True),
    ("c <= 99999999999999999999", pa.array([2**63 - 1]), True),
    ("c = TRUE", pa.array([True]), True),
    ("c = 'x'", pa.array(["x"]).dictionary_encode(), True),
    ("c = 'x'", pa.nulls(1), False),
    ("c LIKE 'a_%'", pa.array(["axb"]), True),
    ("c LIKE 'a%'", pa.nulls(1), False),
]


@pytest.mark.parametrize(("text", "column", "kept"), TYPED)
def test_literals_have_the_type_of_their_column(text: str, column: pa.Array, kept: bool) -> None:
    found = parse(text)
    assert found.keeps({"c": column}).to_pylist() == [kept]


@pytest.mark.parametrize("text", ["c = 'x'", "c = DATE '2026-01-01'", "c = TRUE"])
def test_filter_rejects_incompatible_types(text: str) -> None:
    found = parse(text)
    with pytest.raises(SourceError, match="c is int64"):
        found.keeps({"c": pa.array([1])})


def test_every_reader_keeps_what_the_filter_keeps(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "ok": [True, False, None]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id,ok\n1,true\n2,false\n3,\n")
    (tmp_path / "a.json").write_text('{"id":1,"ok":true}\n{"id":2,"ok":false}\n{"id":3}\n')
    fields = (FieldSpec("id", "int64", nullable=True), FieldSpec("ok", "boolean", nullable=True))
    modules: dict[str, Any] = {"parquet": parquet, "csv": scanned, "json": scanned}
    readers = {"parquet": window_rows.read, "csv": scanned.read, "json": scanned.read}
    for form, module in modules.items():
        access = access_to(form, tmp_path)
        for columns in ((), ("id",)):
            selection = ReadSelection(filter="ok = true", fields=fields, columns=columns)
            window = Window(up_to={"id": 3}) if columns else Window()
            tasks = module.connect(access, selection).tasks(window, WindowSplit())
            found = rows_of(readers[form], access, tasks, fields)
            assert [int(row["id"]) for row in found] == [1], form
            assert "ok = true" in tasks[0].where
        with pytest.raises(SourceError, match=r"w|there are"):
            module.connect(access, ReadSelection(filter="w = 1", fields=fields)).tasks(
                Window(), WindowSplit()
            )

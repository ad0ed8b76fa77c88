"""Letters of rows of a folder: the file's own records, and a replay gives what the file has."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from blizzard_py.dead_letters.reader import objects
from blizzard_py.selection.letters import LetterFiles
from tests.support import avro_files, workbooks
from tests.support.lake_letters import LakeLetters

FAR = 1 << 40
NAN = float("nan")
MOMENT = dt.datetime(1970, 1, 1, 0, 0, 0, 1, ZoneInfo("UTC"))


@dataclass(frozen=True)
class Case:
    """A file with a good and a bad row: ``narrow`` columns, ``wide`` ones, and the row of these."""

    ending: str
    data: bytes
    wide: Mapping[str, Any]
    row: Mapping[str, Any]
    raw: bytes
    narrow: Mapping[str, Any] = field(default_factory=lambda: {"n": "int64", "id": "int32"})
    form: Mapping[str, Any] | None = None
    mended: Mapping[str, Any] | None = None


def _table(**columns: Any) -> pa.Table:
    return pa.table({"n": [1, 2], "id": [1, FAR], **columns})


def _parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(_table(**columns), out)
    return out.getvalue()


def _orc(**columns: Any) -> bytes:
    out = io.BytesIO()
    orc.write_table(_table(**columns), out)
    return out.getvalue()


def _avro() -> bytes:
    types = {
        "n": "long",
        "id": "long",
        "u": ["double", "string"],
        "t": {"type": "long", "logicalType": "timestamp-nanos"},
    }
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    rows = [{"n": 1, "id": 1, "u": 1.5, "t": 0}, {"n": 2, "id": FAR, "u": NAN, "t": 1_500}]
    return avro_files.written({"type": "record", "name": "r", "fields": fields}, rows)


NANOS = pa.array([0, 1_500]).cast(pa.timestamp("ns", "UTC"))
FLOATS = pa.array([[0.5], [NAN, None]])
DIGITS = pa.array([Decimal("1.50"), Decimal("2.50")])
XML = {"type": "xml", "row_tag": "r"}
WIDE = {"n": "int64", "id": "int64"}
CASES: Mapping[str, Case] = {
    "csv": Case(
        "csv",
        b'n,id,v\n1,1,x\n2, 1099511627776 ,"a""b\n c "\n',
        {**WIDE, "v": "string"},
        {"n": 2, "id": FAR, "v": 'a"b\n c '},
        b'2, 1099511627776 ,"a""b\n c "',
    ),
    "csv with options": Case(
        "csv",
        b"n;id;v\n1;1;x\n2;00007,50; - \n",
        {"n": "int64", "id": "string", "v": "string"},
        {"n": 2, "id": "00007,50", "v": None},
        b"2;00007,50; - ",
        form={"type": "csv", "delimiter": ";", "decimal": ","},
        mended={"type": "csv", "delimiter": ";", "decimal": ",", "null_value": ["", " - "]},
    ),
    "csv with blanks": Case(
        "csv",
        b"n,id\n1,1\n2,  x \n",
        {"n": "int64", "id": "string"},
        {"n": 2, "id": "  x "},
        b"2,  x ",
    ),
    "xml": Case(
        "xml",
        b'<rs xmlns:i="u"><r><n>1</n><id>1</id></r>'
        b"<r><n>2</n><id> 0x1 </id><v i:k='1'>&lt; a</v></r></rs>",
        {"n": "int64", "id": "string", "v": "string"},
        {"n": 2, "id": " 0x1 ", "v": "< a"},
        b"<r><n>2</n><id> 0x1 </id><v i:k='1'>&lt; a</v></r>",
        form=XML,
        mended={**XML, "ignore_surrounding_spaces": False},
    ),
    "avro": Case(
        "avro",
        _avro(),
        {**WIDE, "u": "json", "t": "timestamp"},
        {"n": 2, "id": FAR, "u": '"NaN"', "t": MOMENT},
        b'{"n": 2, "id": 1099511627776, "u": "\\"NaN\\"", "t": "1970-01-01T00:00:00.000001500Z"}',
        mended={"type": "avro", "nanoseconds": "cut"},
    ),
    "orc": Case(
        "orc",
        _orc(f=FLOATS),
        {**WIDE, "f": {"type": "list", "items": "float64"}},
        {"n": 2, "id": FAR, "f": [NAN, None]},
        b'{"n": 2, "id": 1099511627776, "f": ["NaN", null]}',
    ),
    "parquet": Case(
        "parquet",
        _parquet(f=FLOATS, d=DIGITS, t=NANOS),
        {**WIDE, "f": {"type": "list", "items": "float64"}, "d": "string", "t": "timestamp"},
        {
            "n": 2,
            "id": FAR,
            "f": [NAN, None],
            "d": "2.50",
            "t": MOMENT,
        },
        b'{"d": 2.50, "f": ["NaN", null], "id": 1099511627776, "n": 2,'
        b' "t": "1970-01-01T00:00:00.000001500Z"}',
        mended={"type": "parquet", "nanoseconds": "cut"},
    ),
    "excel": Case(
        "xlsx",
        workbooks.saved([["n", "id", "v"], [1, 1, None], [2, " 7x ", dt.date(2026, 5, 4)]]),
        {"n": "int64", "id": "string", "v": "date"},
        {"n": 2, "id": " 7x ", "v": dt.date(2026, 5, 4)},
        b'{"n": 2, "id": " 7x ", "v": {"time": "2026-05-04"}}',
    ),
    "json": Case(
        "json",
        b'{"n": 1, "id": 1}\n{"n": 2, "id": 1099511627776, "v": 1.10}\n',
        {**WIDE, "v": "json"},
        {"n": 2, "id": FAR, "v": "1.10"},
        b'{"n": 2, "id": 1099511627776, "v": 1.10}',
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_comes_again_as_its_file_has_it(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    world = LakeLetters(tmp_path, name.split(maxsplit=1)[0])
    world.put(f"a.{case.ending}", case.data)
    # All columns are read from the beginning, as strictly as today.
    narrow = {**case.wide, **case.narrow}
    config = world.config(narrow, case.form)
    world.poll(config)
    assert [row["n"] for row in world.rows()] == [1]
    [letter] = world.letters(config)
    assert (letter.raw, letter.stage) == (case.raw, "parse")
    assert list(world.replay(config).values()) == ["ingested"]
    [again] = world.letters(config)
    assert (again.raw, again.header, again.error) == (letter.raw, letter.header, letter.error)
    assert [row["n"] for row in world.rows()] == [1]
    mended = world.config(case.wide, case.mended or case.form)
    assert list(world.replay(mended).values()) == ["ingested"]
    assert world.letters(mended) == []
    [_, row] = world.rows()
    assert repr(row) == repr(dict(case.row))
    world.poll(mended)
    assert len(world.rows()) == 2


@pytest.mark.parametrize("rule", ["capture", "fail"])
@pytest.mark.parametrize("name", ["csv", "xml", "avro", "orc", "parquet", "excel"])
def test_other_columns_count_in_no_letter(tmp_path: Path, name: str, rule: str) -> None:
    """A table reads its own columns alone, and so does a replay."""
    case = CASES[name]
    world = LakeLetters(tmp_path, name)
    world.put(f"a.{case.ending}", case.data)
    world.poll(world.config(case.narrow, case.form, unexpected_fields=rule))
    right = world.config({"n": "int64", "id": "string"}, case.form, unexpected_fields=rule)
    assert list(world.replay(right).values()) == ["ingested"]
    assert [row["n"] for row in world.rows()] == [1, 2]
    assert [row.get("_rescued") for row in world.rows()] == [None, None]


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_row_without_a_directory_has_its_record(tmp_path: Path, name: str) -> None:
    keys = ["x", "__HIVE_DEFAULT_PARTITION__"]
    csv = "n,id,k\n" + "".join(f"{n},{n},{key}\n" for n, key in enumerate(keys, 1))
    world = LakeLetters(tmp_path, name)
    world.put(f"a.{name}", csv.encode() if name == "csv" else _parquet(k=keys))
    by = {"partition_by": {"columns": ["k"]}}
    config = world.config({**WIDE, "k": "string"}, sink=by)
    world.poll(config)
    [letter] = world.letters(config)
    assert (letter.stage, bool(letter.header)) == ("partition", True)
    assert list(world.replay(config).values()) == ["ingested"]
    [again] = world.letters(config)
    assert (again.raw, again.header, again.stage) == (letter.raw, letter.header, "partition")
    mended = world.config({**WIDE, "k": "string"})
    assert list(world.replay(mended).values()) == ["ingested"]
    assert len(world.rows()) == 2


def _tampered(world: LakeLetters, change: Any) -> None:
    """Let somebody change the documents of the only object of letters."""
    [path] = (world.root / "table" / "_blizzard" / "dlq").glob("*/*.records.ndjson")
    letters = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps(each) + "\n" for each in change(letters)))


def _csv(ids: Sequence[str]) -> bytes:
    return "".join(["n,id\n", *(f"{n},{id_}\n" for n, id_ in enumerate(ids))]).encode()


@pytest.mark.parametrize("name", ["csv", "json", "avro"])
def test_a_row_that_is_cut_costs_only_itself(tmp_path: Path, name: str) -> None:
    long, texts = "x" * (600 << 10), {"n": "int64", "id": "string"}
    values = ["a", long, "b"]
    types = [{"name": "n", "type": "long"}, {"name": "id", "type": "string"}]
    rows = [{"n": n, "id": id_} for n, id_ in enumerate(values)]
    schema = {"type": "record", "name": "r", "fields": types}
    data = {
        "csv": _csv(values),
        "json": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "avro": avro_files.written(schema, rows),
    }
    world = LakeLetters(tmp_path, name)
    world.put(f"a.{name}", data[name])
    narrow, right = world.config({"n": "int64", "id": "int64"}), world.config(texts)
    world.poll(narrow)
    before = [letter for letter in world.letters(narrow) if letter.truncated]
    for _ in range(2):
        assert set(world.replay(right).values()) == {"ingested"}
        assert [row["id"] for row in world.rows()] == ["a", "b"]
        [letter] = world.letters(right)
        assert "512" in letter.error or "of its" in letter.error
        assert [(letter.raw, letter.header, letter.length) for letter in before] == [
            (letter.raw, letter.header, letter.length)
        ]
        assert letter.truncated


def test_a_letter_that_somebody_broke_costs_only_itself(tmp_path: Path) -> None:
    world = LakeLetters(tmp_path, "csv")
    world.put("a.csv", _csv([f"x{n}" for n in range(40)]))
    narrow = world.config({"n": "int64", "id": "int64"})
    world.poll(narrow)

    def broken(letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for letter, number in zip(letters[::2], range(20), strict=True):
            kind = ["rows", "text", "none", "refused"][number % 4]
            letter["header"] = json.dumps(["letters", {"letters": kind, "around": number}])
        return letters

    _tampered(world, broken)
    right = world.config({"n": "int64", "id": "string"})
    outcomes = world.replay(right)
    assert list(outcomes.values()) == ["ingested"] * 2  # good letters, and the broken ones
    assert sorted(row["n"] for row in world.rows()) == list(range(1, 40, 2))
    assert sorted(letter.raw for letter in world.letters(right)) == sorted(
        f"{n},x{n}".encode() for n in range(0, 40, 2)
    )
    assert list(world.replay(right).values()) == ["ingested"]
    assert len(world.letters(right)) == 20


def test_rows_of_a_table_are_not_read_from_their_source(tmp_path: Path) -> None:
    world = LakeLetters(tmp_path, "csv")
    world.put("a.csv", _csv(["x"]))
    config = world.config({"n": "int64", "id": "int64"})
    world.poll(config)
    parts = world.parts(config)
    [found] = objects(parts.stores.dlq, parts.letters_id)
    [refused] = LetterFiles(parts, from_source=True).files_of(found.id)
    assert "without --from-source" in refused.problem

"""A reader's schema: what files of other schemas become, and which cannot be read by it."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pydantic import ValidationError

from blizzard_core.errors import ConfigError
from blizzard_core.settings.format_options import AvroOptions
from blizzard_py.formats.avro.records import AvroDecoder
from blizzard_py.formats.names import check_format, format_of
from blizzard_py.formats.protocol import Parsed
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece
from tests.support.avro_files import container, parsed_of, written
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.memory_file import MemoryFile

UTC = dt.UTC
ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
FIXED = {"type": "fixed", "name": "f", "size": 2}
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """Return a record of fields: documents, or pairs of name and type."""
    made = [
        each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields
    ]
    return {"type": "record", "name": "r", "fields": made, **more}


def options(reader: Any, **given: Any) -> AvroOptions:
    return AvroOptions(type="avro", avro_schema=json.dumps(reader), **given)


def parsed(
    writer: Any, rows: Sequence[Any], reader: Any, fields: tuple[FieldSpec, ...], **given: Any
) -> list[Parsed]:
    return parsed_of(written(writer, rows), fields, options(reader), **given)


def rows_of(*given: Any) -> list[Any]:
    found = parsed(*given)
    assert not [bad for each in found for bad in each.bad]
    return [row for each in found for row in each.table.to_pylist(maps_as_pydicts="strict")]


def one(type_: Any, **more: Any) -> dict[str, Any]:
    return record({"name": "c", "type": type_, **more})


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def nested(kind: Any, **children: Any) -> FieldSpec:
    return FieldSpec("c", kind, nullable=True, children=specs(**children))


def column(kind: Any) -> FieldSpec:
    [spec] = specs(c=kind)
    return spec


DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
TIMES = (dt.datetime(2024, 5, 6, 7, 8, 9, 123000, UTC),)
CHANGES: list[tuple[Any, Any, Any, FieldSpec, Any]] = [
    ("int", 7, "long", column("int64"), 7),
    ("int", 7, "float", column("float32"), 7.0),
    ("long", 7, "double", column("float64"), 7.0),
    ("float", 0.5, "double", column("float64"), 0.5),
    ("string", "é", "bytes", column("binary"), "é".encode()),
    ("bytes", "é".encode(), "string", column("string"), "é"),
    (ENUM, "b", {**ENUM, "symbols": ["b"]}, column("string"), "b"),
    (ENUM, "a", {**ENUM, "symbols": ["b", "z"], "default": "z"}, column("string"), "z"),
    (ENUM, "a", {**ENUM, "name": "F", "aliases": ["x.E"]}, column("string"), "a"),
    (
        {"type": "fixed", "name": "f", "size": 2}, b"xy",
        {"type": "fixed", "name": "g", "size": 2, "aliases": ["f"]}, column("binary"), b"xy",
    ),
    (
        {"type": "array", "items": "int"}, [1, 2], {"type": "array", "items": "double"},
        nested("list", element="float64"), [1.0, 2.0],
    ),
    (
        {"type": "map", "values": "int"}, {"k": 1}, {"type": "map", "values": ["null", "long"]},
        nested("map", value="int64"), {"k": 1},
    ),
    (["null", "int"], None, ["null", "long"], column("int64"), None),
    (["null", "int"], 5, ["long", "null"], column("int64"), 5),
    ("int", 5, ["null", "long"], column("int64"), 5),
    (["null", "string"], "x", "string", column("string"), "x"),
    (["int", "string"], 5, ["string", "long"], column("json"), "5"),
    (["int", "string"], "x", ["string", "long"], column("json"), '"x"'),
    (["null", "int", "string"], None, ["string", "null", "long"], column("json"), None),
    ("long", 2**60 + 1, ["double", "long"], column("json"), str(2**60 + 1)),
    (["int", "long"], 5, "long", column("int64"), 5),
    (["int", "long"], 2**40, "long", column("int64"), 2**40),
    (
        ["null", {**POINT, "name": "Q"}, POINT], ("P", {"x": 3}),
        ["null", record(("y", "int"), name="Q"), record(("x", "long"), name="P")],
        column("json"), '{"x":3}',
    ),
    (
        record(("a", "int"), ("b", "int"), name="in"), {"a": 1, "b": 2},
        record(
            {"name": "z", "type": "string", "default": "new"},
            {"name": "c", "type": "long", "aliases": ["b"]},
            name="other",
        ),
        nested("struct", z="string", c="int64"), {"z": "new", "c": 2},
    ),
    (logical("long", "timestamp-millis"), TIMES[0], logical("long", "timestamp-micros"),
     column("timestamp"), TIMES[0]),
    (logical("long", "timestamp-micros"), TIMES[0], logical("long", "timestamp-millis"),
     column("timestamp"), TIMES[0]),
    ("long", 1000, logical("long", "timestamp-millis"), column("timestamp"),
     dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (logical("long", "timestamp-millis"), TIMES[0], "long", column("int64"), 1714979289123),
    (DECIMAL, Decimal("1.50"), DECIMAL,
     FieldSpec("c", "decimal", nullable=True, precision=9, scale=2), Decimal("1.50")),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "value", "reader", "spec", "expected"), CHANGES)
def test_values_become_those_of_the_reader(
    writer: Any, value: Any, reader: Any, spec: FieldSpec, expected: Any
) -> None:
    found = rows_of(one(writer), [{"c": value}] * 2, one(reader), (spec,))
    assert found == [{"c": expected}] * 2


DEFAULTS: list[tuple[Any, Any, FieldSpec, Any]] = [
    (["null", "int"], None, column("int64"), None),
    (["int", "null"], 5, column("int64"), 5),
    (["null", "int"], 5, column("int64"), 5),
    (["int", "string"], "x", column("json"), '"x"'),
    ("boolean", True, column("boolean"), True),
    ("long", -(2**63), column("int64"), -(2**63)),
    ("double", 1, column("float64"), 1.0),
    ("string", "é", column("string"), "é"),
    ("bytes", "\u00ff\u0000", column("binary"), b"\xff\x00"),
    ({"type": "fixed", "name": "f", "size": 2}, "\u00ff0", column("binary"), b"\xff0"),
    (ENUM, "b", column("string"), "b"),
    (logical("int", "date"), 1, column("date"), dt.date(1970, 1, 2)),
    ({"type": "array", "items": "int"}, [1, 2], nested("list", element="int32"), [1, 2]),
    ({"type": "array", "items": "int"}, [], nested("list", element="int32"), []),
    ({"type": "map", "values": "int"}, {"k": 1}, nested("map", value="int32"), {"k": 1}),
    (
        record(("x", "int"), {"name": "y", "type": "string", "default": "d"}, name="in"),
        {"x": 1},
        nested("struct", x="int32", y="string"),
        {"x": 1, "y": "d"},
    ),
]


@pytest.mark.parametrize(("type_", "default", "spec", "expected"), DEFAULTS)
def test_missing_fields_have_their_defaults(
    type_: Any, default: Any, spec: FieldSpec, expected: Any
) -> None:
    reader = record(("id", "long"), {"name": "c", "type": type_, "default": default})
    rows = rows_of(
        record(("id", "int")), [{"id": 1}, {"id": 2}], reader, (*specs(id="int64"), spec)
    )
    assert rows == [{"id": 1, "c": expected}, {"id": 2, "c": expected}]


def test_fields_come_by_name_or_alias() -> None:
    writer = record(("b", "int"), ("old", "string"), ("gone", "int"), name="topLevelRecord")
    reader = record({"name": "new", "type": "string", "aliases": ["older", "old"]}, ("b", "long"))
    fields = specs(new="string", b="int64", old="string")
    found = parsed(
        writer, [{"b": 1, "old": "x", "gone": 2}], reader, fields, unexpected_fields="fail"
    )
    assert [each.table.to_pylist() for each in found] == [[{"new": "x", "b": 1, "old": None}]]


BAD: list[tuple[Any, list[Any], Any, FieldSpec, str]] = [
    (["null", "int"], [1, None, 3], "int", column("int64"), "is null, which avro_schema"),
    (["int", "string"], [1, "x", 3], "long", column("int64"), "is string, which avro_schema"),
    (ENUM, ["b", "a", "b"], {**ENUM, "symbols": ["b"]}, column("string"), "the symbol 'a'"),
    ({"type": "array", "items": ["null", "int"]}, [[1], [2, None], []],
     {"type": "array", "items": "int"}, nested("list", element="int32"), "is null"),
    (logical("long", "timestamp-micros"), [TIMES[0], TIMES[0].replace(microsecond=1), TIMES[0]],
     logical("long", "timestamp-millis"), column("timestamp"), "more digits"),
    (logical("long", "timestamp-millis"), [1, 2**62, 3], logical("long", "timestamp-micros"),
     column("timestamp"), "overflow"),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "values", "reader", "spec", "why"), BAD)
def test_a_value_without_a_type_is_a_bad_record(
    writer: Any, values: list[Any], reader: Any, spec: FieldSpec, why: str
) -> None:
    found = parsed(one(writer), [{"c": value} for value in values], one(reader), (spec,))
    [each] = found
    assert each.rows_at.tolist() == [0, 2]
    [bad] = each.bad
    assert bad.index == 1
    assert bad.reason.startswith("column 'c': ")
    assert why in bad.reason


def test_nulls_of_a_record_around_them_are_not_bad() -> None:
    inner = record(("x", ["null", "int"]), name="in")
    writer = one(["null", inner])
    reader = one(["null", record(("x", "int"), name="in")])
    rows = [{"c": None}, {"c": {"x": 1}}]
    spec = nested("struct", x="int32")
    assert rows_of(writer, rows, reader, (spec,)) == rows
    [each] = parsed(writer, [*rows, {"c": {"x": None}}], reader, (spec,))
    assert [bad.index for bad in each.bad] == [2]


MISFITS: list[tuple[Any, Any, str]] = [
    ("long", "int", "field 'c' is long in the file, not int"),
    ("double", "float", "field 'c' is double in the file, not float"),
    ("string", "long", "field 'c' is string in the file, not long"),
    ("boolean", {"type": "array", "items": "int"}, "field 'c' is boolean in the file, not array"),
    ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, "field 'c[]' is"),
    (POINT, record(("x", "string"), name="P"), "field 'c.x' is int in the file, not string"),
    (POINT, record(("y", "int"), name="P"), "field 'c.y' is not in the file, and has"),
    (ENUM, {**ENUM, "name": "F"}, "field 'c' is enum E in the file, not enum F"),
    (FIXED, {**FIXED, "size": 3}, "field 'c' is fixed f in the file"),
    (DECIMAL, {**DECIMAL, "scale": 3}, "field 'c' is decimal(9,2) in the file, not decimal(9,3)"),
    (logical("int", "date"), logical("int", "time-millis"), "is date in the file, not time-millis"),
    (["null", "string"], ["null", "int"], "is a union of null and string in the file, not a union"),
    (["null", "string"], "int", "a union of null and string in the file, not int"),
    ("string", ["null", "int"], "field 'c' is string in the file, not a union of null and int"),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "reader", "why"), MISFITS)
def test_a_file_that_cannot_be_read_names_the_field(writer: Any, reader: Any, why: str) -> None:
    data = written(one(writer), [])
    with pytest.raises(FileFailed) as failed:
        parsed_of(data, specs(c="json"), options(one(reader)))
    assert failed.value.reason.startswith("the file's Avro schema does not fit avro_schema: ")
    assert why in failed.value.reason
    assert failed.value.outcome == "quarantined"


WRONG: list[tuple[Any, str]] = [
    ({"type": "enum", "name": "E", "symbols": []}, "avro_schema: is no record, but enum"),
    (record(("c", "nonsense")), "without a definition of the type 'nonsense'"),
    (record(("c", ["null", "r"])), "recursive"),
    (one("int", default="x"), "the default of c is no int"),
    (one("int", default=True), "the default of c is no int"),
    (one("int", default=2**31), "the default of c is no int"),
    (one(["null", "int"], default="x"), "the default of c is no union"),
    (one({"type": "fixed", "name": "f", "size": 2}, default="x"), "the default of c is no fixed"),
    (one(POINT, default={}), "the default of c is no record"),
    (one(record({"name": "x", "type": "int", "default": None}, name="in")), "default of c.x is no"),
    (one({**ENUM, "default": "z"}), "the default 'z' of E is none of its symbols"),
]


@pytest.mark.parametrize(("reader", "why"), WRONG)
def test_a_wrong_reader_is_a_wrong_configuration(reader: Any, why: str) -> None:
    with pytest.raises(ConfigError, match="avro_schema") as failed:
        check_format(options(reader))
    assert why in str(failed.value)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.avsc"
    path.write_text(json.dumps(one("long"), indent=2))
    form = AvroOptions(type="avro", avro_schema=str(path))
    [found] = parsed_of(written(one("int"), [{"c": 1}]), specs(c="int64"), form)
    assert found.table.to_pylist() == [{"c": 1}]
    path.write_bytes(b"\xff")
    for text, why in (
        (str(path), "no text in UTF-8"),
        (f"{path}.other", "cannot be read (No such file"),
        ("order.avsc", "the path of a file with one"),
    ):
        with pytest.raises(ValidationError) as failed:
            AvroOptions(type="avro", avro_schema=text)
        assert why in str(failed.value)
    with pytest.raises(ConfigError, match="is not JSON"):
        check_format(AvroOptions(type="avro", avro_schema="{"))


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_task_reads_files_of_all_versions(tmp_path: Path, attempt: int) -> None:
    reader = record(
        {"name": "id", "type": "long", "aliases": ["number"]},
        {"name": "note", "type": "string", "default": "-"},
    )
    fields = (FieldSpec("id", "int64", nullable=False), *specs(note="string"))
    world = IngestJobHarness(
        tmp_path, fields=fields, format=options(reader), metadata=("_source_line",)
    )
    notes = ["x", None, "y"]
    world.put("1.avro", written(record(("number", "int")), [{"number": 1}, {"number": 2}]))
    world.put("2.avro", written(record(("id", "long"), ("note", ["null", "string"])), [
        {"id": 10 + at, "note": note} for at, note in enumerate(notes)
    ]))  # fmt: skip
    world.put("3.avro", written(record(("id", "string")), [{"id": "5"}]))
    report = world.run_task(attempt=attempt)
    rows = [(row["id"], row["note"], row["_source_line"]) for row in world.rows(report)]
    assert rows == [(1, "-", 1), (2, "-", 2), (10, "x", 1), (12, "y", 3)]
    [letter] = world.letters(report)
    row, unreadable = json.loads(letter["raw"])
    assert (letter["line"], row) == (2, {"id": 11, "note": None})
    assert unreadable == {"note": {"error": letter["error"], "stored": None}}
    failed = by_path(report)["3.avro"]
    assert (failed.outcome, failed.stage) == ("quarantined", "parse")
    assert failed.error == (
        "the file's Avro schema does not fit avro_schema: field 'id' is string in the file, not"
        " long"
    )


def test_comparing_schemas_takes_limited_time() -> None:
    theirs = [record(("x", "string"), name=f"n{at}") for at in range(4900)]
    ours = [record(("x", "int"), name=f"m{at}") for at in range(200)]
    started = time.process_time()
    with pytest.raises(FileFailed, match=r"in more than 100,000 steps"):
        parsed_of(container(one(theirs), []), specs(c="json"), options(one(ours)))
    assert time.process_time() - started < 20


PRIMITIVES: dict[str, tuple[Any, list[str]]] = {
    "int": (lambda draw: draw.randint(-9, 9), ["int", "long", "float", "double"]),
    "long": (lambda draw: draw.randint(-(2**40), 2**40), ["long", "double"]),
    "float": (lambda draw: draw.randint(0, 8) / 8, ["float", "double"]),
    "double": (lambda draw: draw.random(), ["double"]),
    "string": (lambda draw: "é" * draw.randint(0, 3), ["string"]),
    "boolean": (lambda draw: draw.random() < 0.5, ["boolean"]),
}


def drawn(draw: random.Random, depth: int, names: list[int]) -> tuple[Any, Any, Any]:
    """Return a type, a function for its values, and a type that reads it."""
    kind = draw.choice([*PRIMITIVES, "array", "map", "record", "null"][: None if depth < 3 else 6])
    if kind in PRIMITIVES:
        make, readers = PRIMITIVES[kind]
        return kind, make, draw.choice(readers)
    inner, make, reader = drawn(draw, depth + 1, names)
    if kind == "array":
        return (
            {"type": "array", "items": inner},
            lambda draw: [make(draw) for _ in range(draw.randint(0, 3))],
            {"type": "array", "items": reader},
        )
    if kind == "map":
        return (
            {"type": "map", "values": inner},
            lambda draw: {f"k{at}": make(draw) for at in range(draw.randint(0, 2))},
            {"type": "map", "values": reader},
        )
    if kind == "null" and not isinstance(inner, list):
        return (
            ["null", inner],
            lambda draw: None if draw.random() < 0.3 else make(draw),
            draw.choice([["null", reader], [reader, "null"]]),
        )
    names.append(0)
    own = f"n{len(names)}"
    writer = record(("a", inner), ("b", "int"), name=own)
    fields = [
        {"name": "renamed", "type": reader, "aliases": ["a"]},
        {"name": "new", "type": ["null", "string"], "default": None},
        {"name": "b", "type": "long"},
    ]
    draw.shuffle(fields)
    return (
        writer,
        lambda draw: {"a": make(draw), "b": draw.randint(0, 9)},
        record(*fields, name=own),
    )


@pytest.mark.parametrize("seed", range(80))
def test_random_schemas_are_resolved_as_by_fastavro(seed: int) -> None:
    draw = random.Random(seed)
    type_, make, reader = drawn(draw, 0, [])
    rows = [{"c": {"v": make(draw)}} for _ in range(20)]
    writer, reader = (one(record(("v", kind), name="around")) for kind in (type_, reader))
    data = written(writer, rows)
    expected = [row["c"] for row in fastavro.reader(io.BytesIO(data), reader)]
    found = rows_of(writer, rows, reader, specs(c="json"))
    assert [json.loads(row["c"]) for row in found] == expected


def test_the_columns_of_files_are_those_of_the_reader() -> None:
    reader = record(("new", "long"), {"name": "more", "type": "string", "default": ""})
    form = format_of(options(reader))
    data = written(record(("new", "int"), ("gone", "int")), [{"new": 1, "gone": 2}])
    [piece] = form.pieces(MemoryFile(data), RowSchema(()))
    decoder = form.decoder(RowSchema(()), tolerant=True, fast=True)
    assert isinstance(decoder, AvroDecoder)
    assert isinstance(piece, Piece)
    assert decoder.columns(piece) == {"new": pa.int64(), "more": pa.string()}

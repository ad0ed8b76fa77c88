"""Avro object container files: every type, codec and limit, damage, and whole ingest tasks."""

from __future__ import annotations

import bz2
import datetime as dt
import io
import itertools
import json
import lzma
import random
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.limits import AVRO_BLOCK_BYTES, AVRO_COLUMNS, AVRO_LEVELS, AVRO_SCHEMA_BYTES
from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.load import load_config
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.formats.avro import records as avro
from blizzard_py.formats.avro.schema import record_type
from blizzard_py.formats.avro.walk import record_ends
from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import BadLine, Parsed
from blizzard_py.job import FieldSpec, FileLimits, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from tests.support.avro_files import AVRO, SYNC, container, parsed_of, varint, written
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.memory_file import MemoryFile

ID = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "l", "type": {"type": "array", "items": "int"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "double"]}},
    ],
}
EVENT_FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    *specs(s="string"),
    FieldSpec("l", "list", nullable=True, children=specs(element="int32")),
    FieldSpec("m", "map", nullable=True, children=specs(value="float64")),
)


def events(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "s": None if number % 3 == 0 else f"é{number}",
            "l": list(range(number % 4)),
            "m": {f"k{at}": None if at else number / 7 for at in range(number % 3)},
        }
        for number in range(count)
    ]


def pieces_of(
    data: bytes, fields: tuple[FieldSpec, ...], block: int = 1 << 20
) -> list[Piece | RefusedRecord]:
    return list(format_of(AVRO).pieces(MemoryFile(data, block), RowSchema(fields)))


def rows_of(data: bytes, fields: tuple[FieldSpec, ...], **options: Any) -> list[Any]:
    parsed = parsed_of(data, fields, **options)
    assert not [bad for each in parsed for bad in each.bad]
    return [row for each in parsed for row in each.table.to_pylist(maps_as_pydicts="strict")]


def failure(data: bytes, fields: tuple[FieldSpec, ...] = specs(id="int64")) -> str:
    with pytest.raises(FileFailed) as caught:
        parsed_of(data, fields)
    assert caught.value.outcome == "quarantined"
    return caught.value.reason


def one(type_: Any, value: Any) -> bytes:
    return written(
        {"type": "record", "name": "r", "fields": [{"name": "v", "type": type_}]}, [{"v": value}]
    )


def logical(name: str, base: Any, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


INSTANT = dt.datetime(2024, 5, 6, 12, 30, 0, 123000, tzinfo=dt.UTC)
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
INNER = {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "int"}]}
MONEY = FieldSpec("v", "decimal", nullable=True, precision=20, scale=2)
VALUES: list[tuple[Any, Any, FieldSpec | str, Any]] = [
    ("boolean", True, "boolean", True),
    ("int", -(1 << 31), "int32", -(1 << 31)),
    ("int", 7, "int64", 7),
    ("long", (1 << 63) - 1, "int64", (1 << 63) - 1),
    ("long", -(1 << 63), "string", str(-(1 << 63))),
    ("float", 1.5, "float64", 1.5),
    ("double", 1 / 3, "float64", 1 / 3),
    ("double", float("inf"), "float32", float("inf")),
    ("bytes", b"\x00\xff", "binary", b"\x00\xff"),
    ("string", "zażółć\u0000", "string", "zażółć\u0000"),
    (["null", "string"], None, "string", None),
    (["string", "null"], "x", "string", "x"),
    (["string"], "x", "string", "x"),
    ("null", None, "string", None),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "string", "B"),
    ({"type": "fixed", "name": "f", "size": 3}, b"abc", "binary", b"abc"),
    (logical("uuid", "string"), UUID, "string", str(UUID)),
    (
        {"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"},
        UUID.bytes,
        "string",
        str(UUID),
    ),
    (logical("date", "int"), dt.date(2024, 5, 6), "date", dt.date(2024, 5, 6)),
    (logical("date", "int"), dt.date(1, 1, 1), "date", dt.date(1, 1, 1)),
    (logical("time-millis", "int"), dt.time(1, 2, 3), "string", "01:02:03.000"),
    (logical("time-micros", "long"), dt.time(1, 2, 3, 4), "string", "01:02:03.000004"),
    (logical("timestamp-millis", "long"), INSTANT, "timestamp", INSTANT),
    (logical("timestamp-micros", "long"), INSTANT, "timestamp", INSTANT),
    (
        logical("timestamp-nanos", "long"),
        1_000,
        "timestamp",
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC),
    ),
    (logical("local-timestamp-millis", "long"), INSTANT.replace(tzinfo=None), "timestamp", INSTANT),
    (logical("local-timestamp-micros", "long"), INSTANT.replace(tzinfo=None), "timestamp", INSTANT),
    (
        logical("decimal", "bytes", precision=20, scale=2),
        Decimal("-123456789012345678.91"),
        MONEY,
        Decimal("-123456789012345678.91"),
    ),
    (
        {
            "type": "fixed",
            "name": "f",
            "size": 9,
            "logicalType": "decimal",
            "precision": 20,
            "scale": 2,
        },
        Decimal("0.05"),
        MONEY,
        Decimal("0.05"),
    ),
    (logical("decimal", "bytes", precision=0), b"ab", "binary", b"ab"),
    (logical("nobody-knows", "long"), 5, "int64", 5),
    (["null", "long", "string"], "a", "json", '"a"'),
    (["null", "long", "string"], 5, "json", "5"),
    (["null", "long", "string"], None, "json", None),
    (["long", INNER], {"a": 1}, "json", '{"a":1}'),
    (
        ["double", logical("timestamp-millis", "long")],
        INSTANT,
        "json",
        '"2024-05-06T12:30:00.123000Z"',
    ),
    (
        INNER,
        {"a": 1},
        FieldSpec("v", "struct", nullable=True, children=specs(a="int64", b="string")),
        {"a": 1, "b": None},
    ),
    (
        ["null", INNER],
        None,
        FieldSpec("v", "struct", nullable=True, children=specs(a="int64")),
        None,
    ),
    (INNER, {"a": 1}, "json", '{"a":1}'),
    (
        {"type": "array", "items": ["null", "string"]},
        ["a", None],
        FieldSpec("v", "list", nullable=True, children=specs(element="string")),
        ["a", None],
    ),
    (
        {"type": "map", "values": INNER},
        {"k": {"a": 2}},
        FieldSpec(
            "v",
            "map",
            nullable=True,
            children=(
                FieldSpec("value", "struct", nullable=True, children=specs(a="int32", z="date")),
            ),
        ),
        {"k": {"a": 2, "z": None}},
    ),
    ({"type": "map", "values": "long"}, {"k": 2}, "json", '{"k":2}'),
]


@pytest.mark.parametrize(("type_", "value", "spec", "expected"), VALUES)
def test_every_type_becomes_its_column(type_: Any, value: Any, spec: Any, expected: Any) -> None:
    fields = (spec,) if isinstance(spec, FieldSpec) else specs(v=spec)
    assert rows_of(one(type_, value), fields) == [{"v": expected}]


BAD_VALUES: list[tuple[Any, Any, str, str, str]] = [
    ("long", 1 << 40, "int32", "not in range", '{"v": 1099511627776}'),
    ("string", "x", "int64", "x is no int64", '{"v": "x"}'),
    (["null", "long"], None, "int64", "is required", '{"v": null}'),
    (
        logical("timestamp-nanos", "long"),
        1_001,
        "timestamp",
        "lose data",
        "00.000001001",
    ),
    (logical("date", "int"), 2_147_483_647, "date", "outside the years", "2147483647"),
    (
        logical("time-millis", "int"),
        2_147_483_647,
        "string",
        "no time of a day",
        '"stored": 2147483647}}]',
    ),
]


@pytest.mark.parametrize(("type_", "value", "kind", "reason", "raw"), BAD_VALUES)
def test_a_value_that_does_not_fit_is_a_bad_record(
    type_: Any, value: Any, kind: Any, reason: str, raw: str
) -> None:
    plain = type_["type"] if isinstance(type_, dict) else type_
    data = one(plain, value)
    if isinstance(type_, dict):
        text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "v", "type": type_}]})
        [piece] = pieces_of(data, specs(v=kind))
        assert isinstance(piece, Piece)
        data = container(text.encode(), [(1, piece.data[16:])])
    fields = (FieldSpec("v", kind, nullable=False),)
    [parsed] = parsed_of(data, fields)
    [bad] = parsed.bad
    assert (bad.index, bad.offset, bad.length) == (0, -1, len(bad.head))
    assert reason in bad.reason
    assert raw in bad.head.decode()
    assert parsed.table.num_rows == 0
    form = format_of(AVRO)
    strict = form.decoder(RowSchema(fields), tolerant=False, fast=True)
    with pytest.raises(BadLine, match=reason):
        strict.decode(next(iter(form.pieces(MemoryFile(data), RowSchema(fields)))))  # type: ignore[arg-type]


def test_nanoseconds_are_cut_where_that_is_allowed() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "v", "type": logical("timestamp-nanos", "long")}],
    }
    data = container(schema, [(2, varint(1_999) + varint(-1))])
    options = AvroOptions(type="avro", nanoseconds="cut")
    found = [row["v"] for row in rows_of(data, specs(v="timestamp"), options=options)]
    assert found == [
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ]


def test_unions_may_be_texts() -> None:
    options = AvroOptions(type="avro", union="string")
    union = ["null", "long", "string"]
    for value, expected in (("a", "a"), (5, "5"), (None, None)):
        assert rows_of(one(union, value), specs(v="string"), options=options) == [{"v": expected}]


def test_text_that_is_no_utf_8_is_a_bad_record() -> None:
    data = container(
        {"type": "record", "name": "r", "fields": [{"name": "v", "type": "string"}]},
        [(3, b"\x02a\x02\xff\x02b")],
    )
    [parsed] = parsed_of(data, specs(v="string"))
    assert parsed.table["v"].to_pylist() == ["a", "b"]
    assert [bad.index for bad in parsed.bad] == [1]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_every_codec_of_fastavro_is_read(codec: str) -> None:
    rows = events(3000)
    assert rows_of(written(EVENT, rows, codec), EVENT_FIELDS) == rows


def packed_events(codec: str, rows: Sequence[Any]) -> bytes:
    """Return a file with a codec for which fastavro lacks its library."""
    blocks = []
    for piece in pieces_of(written(EVENT, rows), EVENT_FIELDS):
        assert isinstance(piece, Piece)
        for count, block in avro.blocks_of(piece.data):
            packed = pa.compress(block, codec, asbytes=True)
            crc = zlib.crc32(block).to_bytes(4, "big") if codec == "snappy" else b""
            blocks.append((count, packed + crc))
    return container(EVENT, blocks, {"zstd": b"zstandard"}.get(codec, codec.encode()))


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_codecs_with_blocks_of_other_writers_are_read(codec: str) -> None:
    rows = events(3000)
    data = packed_events(codec, rows)
    assert rows_of(data, EVENT_FIELDS) == rows


def test_the_checksum_of_snappy_is_compared() -> None:
    data = bytearray(packed_events("snappy", events(10)))
    data[-len(SYNC) - 1] ^= 1
    assert "the checksum does not match" in failure(bytes(data), EVENT_FIELDS)


def test_deflate_of_old_fastavro_has_bytes_of_a_checksum() -> None:
    block = varint(1)
    data = container(ID, [(1, zlib.compress(block)[2:-1])], b"deflate")
    assert rows_of(data, specs(id="int64")) == [{"id": 1}]
    assert "complete stream" in failure(container(ID, [(1, deflated(block) + b"x")], b"deflate"))
    assert "complete stream" in failure(container(ID, [(1, deflated(block)[:-1])], b"deflate"))
    assert "none of null" in failure(container(ID, [], b"lzo"))


def verdicts(parsed: Sequence[Parsed]) -> tuple[list[Any], list[Any]]:
    rows, bad, number = [], [], 0
    for each in parsed:
        rows += list(zip((each.rows_at + number).tolist(), each.table.to_pylist(), strict=True))
        bad += [(b.index + number, b.offset, b.head, b.reason) for b in each.bad]
        number += each.lines
    return rows, bad


def test_verdicts_do_not_depend_on_pieces_or_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = events(300)
    for number in (0, 13, 150, 299):
        rows[number]["s"] = "x"
        rows[number]["id"] = 1 << 40
    fields = (FieldSpec("id", "int32", nullable=False), *EVENT_FIELDS[1:])
    data = written(EVENT, rows, block_bytes=300)
    expected = verdicts(parsed_of(data, fields))
    assert len(expected[0]) == 296
    assert [index for index, *_ in expected[1]] == [0, 13, 150, 299]
    form = format_of(AVRO)
    decoder = form.decoder(RowSchema(fields), tolerant=True, fast=True)
    for cells, size in ((1, 1), (40, 1 << 20)):
        monkeypatch.setattr(avro, "_PIECE_CELLS", cells)
        monkeypatch.setattr(avro, "CHUNK_BYTES", size)
        for block in (1, 4096):
            pieces = [p for p in pieces_of(data, fields, block) if isinstance(p, Piece)]
            assert verdicts([decoder.decode(piece) for piece in pieces]) == expected
    monkeypatch.undo()
    [piece] = pieces_of(data, fields)
    assert isinstance(piece, Piece)
    with ChildProcess() as nursery:
        child = IsolatedDecoder(nursery, form, RowSchema(fields), tolerant=True)
        assert verdicts([child.decode(piece)]) == expected
    for index, _, head, _ in expected[1]:
        assert decoder.records(piece)[index][:2] == (-1, head)
    pending, single = [piece], []
    while pending:
        halves = decoder.halves(pending.pop())
        if halves is None:
            continue
        for half in reversed(halves):
            (pending if half.lines > 1 else single).append(half)
    assert sum(half.lines for half in single) == 300
    assert all(decoder.decode(half).lines == 1 for half in single[:50])


def test_walking_finds_the_ends_of_all_records() -> None:
    rows = events(200)
    [piece] = pieces_of(written(EVENT, rows, block_bytes=1 << 20), EVENT_FIELDS)
    assert isinstance(piece, Piece)
    [(count, data)] = avro.blocks_of(piece.data)
    starts = [0, *(end for end, _ in record_ends(record_type(json.dumps(EVENT)), count, data))]
    found = [
        fastavro.schemaless_reader(io.BytesIO(data[start:end]), EVENT, None)
        for start, end in itertools.pairwise(starts)
    ]
    assert found == rows


# --- schemas ----------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    found: Any = "long"
    for _ in range(levels):
        found = {"type": "array", "items": found}
    return {"type": "record", "name": "r", "fields": [{"name": "id", "type": found}]}


def field_of(type_: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": "id", "type": type_}]}


def doubled(levels: int) -> Any:
    """Return a schema of a few lines that has more types with each level, by name."""
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]
    found: Any = {"type": "record", "name": "n0", "fields": fields}
    for level in range(levels):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"n{level}"}]
        found = {"type": "record", "name": f"n{level + 1}", "fields": fields}
    return field_of(found)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (nested(AVRO_LEVELS + 1), "deeper than 24 levels"),
        (
            b'{"type":"array","items":' * 100_000 + b'"long"' + b"}" * 100_000,
            "longer than|JSON|header",
        ),
        (b'{"type":["null",' * 30_000, "not JSON"),
        (field_of({**ID, "name": "x", "doc": "d" * AVRO_SCHEMA_BYTES}), "longer than"),
        (
            field_of(
                {
                    "type": "record",
                    "name": "w",
                    "fields": [{"name": f"c{n}", "type": "int"} for n in range(AVRO_COLUMNS)],
                }
            ),
            "more than 10,000 types",
        ),
        (doubled(15), "more than 10,000 types"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "r"]}]},
            "recursive: 'r' contains itself",
        ),
        (
            field_of({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}),
            "duration",
        ),
        (field_of({"type": "array", "items": "null"}), "values without bytes"),
        (
            field_of({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}),
            "values without bytes",
        ),
        ("long", "no record, but long"),
        ({"type": "array", "items": "long"}, "no record, but array"),
        (field_of("missing"), "without a definition"),
        (field_of([]), "a union is empty"),
        (field_of(5), "invalid"),
        (field_of({"type": "record", "name": "r"}), "defined twice"),
        (field_of({"type": "fixed", "name": "f", "size": -1}), "size of"),
        (field_of({"type": "enum", "name": "e"}), "no list of texts"),
        (field_of(logical("decimal", "bytes", precision=77)), "77 digits"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}] * 2},
            "occurs twice",
        ),
        (b'{"type":"record","name":"r","fields":[{"name":"\\ud800","type":"int"}]}', "not Unicode"),
    ],
)
def test_a_schema_beyond_a_limit_is_refused(schema: Any, reason: str) -> None:
    began = time.process_time()
    with pytest.raises(FileFailed, match=reason):
        pieces_of(container(schema, []), specs(id="int64"))
    assert time.process_time() - began < 5


def test_a_named_type_may_be_used_again() -> None:
    outer = {"type": "record", "name": "o", "fields": [{"name": "i", "type": INNER}]}
    names = [("x", outer), ("y", "o"), ("z", ["null", "inner"])]
    fields = [{"name": name, "type": type_} for name, type_ in names]
    row = {"x": {"i": {"a": 1}}, "y": {"i": {"a": 2}}, "z": {"a": 3}}
    data = written({"type": "record", "name": "r", "fields": fields}, [row])
    found = rows_of(data, specs(x="json", y="json", z="json"))
    assert found == [{"x": '{"i":{"a":1}}', "y": '{"i":{"a":2}}', "z": '{"a":3}'}]


def test_names_of_any_kind_are_read() -> None:
    schema = {"type": "record", "name": "a-b", "fields": [{"name": "é x", "type": "long"}]}
    assert rows_of(container(schema, [(1, varint(5))]), specs(**{"é x": "int64"})) == [{"é x": 5}]


def test_a_column_that_the_schema_lacks_is_null() -> None:
    data = written(ID, [{"id": 1}])
    assert rows_of(data, specs(id="int64", s="string")) == [{"id": 1, "s": None}]
    required = (*specs(id="int64"), FieldSpec("s", "string", nullable=False))
    assert "'s': is required" in failure(data, required)
    assert "none of the columns, but id" in failure(data, specs(s="string"))
    assert "cannot be date" in failure(data, specs(id="date"))


def test_unexpected_fields_follow_their_rule() -> None:
    extra = {
        "type": "record",
        "name": "x",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "double"}],
    }
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "st", "type": ["null", extra]},
            {"name": "more", "type": "string"},
        ],
    }
    data = written(
        schema,
        [
            {"id": 1, "st": {"a": 1, "b": float("nan")}, "more": "é"},
            {"id": 2, "st": None, "more": ""},
        ],
    )
    fields = (
        *specs(id="int64"),
        FieldSpec("st", "struct", nullable=True, children=specs(a="int64")),
    )
    [ignored] = parsed_of(data, fields)
    assert ignored.unexpected == {"st.b", "more"}
    [captured] = parsed_of(data, fields, unexpected_fields="capture")
    assert [json.loads(text) for text in captured.table["_rescued"].to_pylist()] == [
        {"st": {"b": "NaN"}, "more": "é"},
        {"more": ""},
    ]
    with pytest.raises(FileFailed, match=r"unexpected field 'st\.b'"):
        parsed_of(data, fields, unexpected_fields="fail")
    form = format_of(AVRO)
    [piece] = form.pieces(MemoryFile(data), RowSchema(fields))
    assert isinstance(piece, Piece)
    evolving = form.decoder(RowSchema(fields, evolves=True), tolerant=True, fast=True)
    lines = evolving.as_lines(piece).splitlines()
    assert [json.loads(line)["more"] for line in lines] == ["é", ""]


def test_every_field_of_many_is_captured() -> None:
    names = [f"c{number}" for number in range(100)]
    fields = [{"name": name, "type": "int"} for name in names]
    row = dict.fromkeys(names, 1)
    data = written({"type": "record", "name": "r", "fields": fields}, [row])
    [captured] = parsed_of(data, specs(c0="int32"), unexpected_fields="capture")
    [text] = captured.table["_rescued"].to_pylist()
    assert json.loads(text) == dict.fromkeys(names[1:], 1)
    evolving = format_of(AVRO).decoder(RowSchema((), evolves=True), tolerant=True, fast=False)
    [piece] = pieces_of(data, ())
    assert isinstance(piece, Piece)
    assert json.loads(evolving.as_lines(piece)) == row


# --- hostile files ----------------------------------------------------------------------------


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


EMPTY = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "null"}]}
LIST = field_of({"type": "array", "items": "int"})
TEXT = field_of("string")
HOSTILE: dict[str, tuple[Any, list[tuple[int, bytes]], str]] = {
    "more records than bytes": (ID, [(1 << 60, b"\0")], "records in 1 bytes"),
    "no records in bytes": (ID, [(0, b"\0")], "0 records in 1 bytes"),
    "bytes in records without": (EMPTY, [(1, b"\0")], "without bytes"),
    "negative count": (ID, [(-1, b"")], "-1 records"),
    "huge list": (LIST, [(1, varint(1 << 40) + b"\0" * 9)], "EOFError|IndexError"),
    "list of a negative count": (LIST, [(1, varint(-5) + varint(1) + b"\0" * 3)], "damaged"),
    "lowest count": (LIST, [(1, varint(-(1 << 63)) + varint(1) + b"\0" * 3)], "damaged"),
    "huge text": (TEXT, [(1, varint(1 << 40) + b"x")], "damaged"),
    "text of a negative size": (TEXT, [(1, varint(-5) + b"xxxxx")], "damaged"),
    "no such branch": (field_of(["null", "long"]), [(1, varint(2) + b"\0")], "damaged"),
    "no such symbol": (
        field_of({"type": "enum", "name": "e", "symbols": ["A"]}),
        [(1, varint(7))],
        "no such symbol",
    ),
    "bytes after the records": (ID, [(1, b"\2\0")], "do not end"),
    "a number without an end": (ID, [(1, b"\xff" * 20)], "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_block_quarantines_its_file(name: str) -> None:
    schema, blocks, reason = HOSTILE[name]
    began = time.process_time()
    kind = (
        "string"
        if "symbol" in name or schema in (TEXT, EMPTY)
        else "json"
        if schema is LIST
        else "int64"
    )
    with pytest.raises(FileFailed, match=reason):
        parsed_of(container(schema, blocks), specs(id=kind))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_a_block_is_unpacked_up_to_a_limit(codec: str) -> None:
    size = AVRO_BLOCK_BYTES + 1
    plain = bytes(size)
    packed = {
        "deflate": lambda: deflated(plain),
        "bzip2": lambda: bz2.compress(plain),
        "xz": lambda: lzma.compress(plain, preset=0),
        "zstandard": lambda: pa.compress(plain, "zstd", asbytes=True),
        "snappy": lambda: pa.compress(plain, "snappy", asbytes=True) + bytes(4),
    }[codec]()
    reason = failure(container(ID, [(size, packed)], codec.encode()))
    assert "more than 67,108,864 bytes" in reason


def test_blocks_count_as_expansion(tmp_path: Path) -> None:
    block = (100, deflated((varint(1 << 17) + bytes(1 << 17)) * 100))
    limits = FileLimits(expansion=2)
    harness = IngestJobHarness(tmp_path, specs(id="string"), format=AVRO, limits=limits)
    harness.put("a.avro", container(TEXT, [block] * 5, b"deflate"))
    [found] = harness.run_task().files
    assert (found.outcome, found.stage) == ("quarantined", "decompress")
    assert "max_expansion" in found.error


def test_records_without_bytes_are_limited(tmp_path: Path) -> None:
    harness = IngestJobHarness(tmp_path, specs(id="string"), format=AVRO)
    harness.put("a.avro", container(EMPTY, [(1 << 60, b"")]))
    harness.put("b.avro", container(EMPTY, [(1000, b"")]))
    found = by_path(harness.run_task())
    assert "max_expansion" in found["a.avro"].error
    assert found["b.avro"].rows == 1000


def test_a_record_of_too_many_values_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "AVRO_RECORD_VALUES", 1000)
    monkeypatch.setattr(avro, "_PIECE_CELLS", 500)
    rows = [{"id": [1] * size} for size in (3, 2000, 4)]
    items = FieldSpec("id", "list", nullable=True, children=specs(element="int64"))
    harness = IngestJobHarness(tmp_path, (items,), format=AVRO)
    harness.put("a.avro", written(LIST, rows))
    report = harness.run_task()
    assert [len(row["id"]) for row in harness.rows(report)] == [3, 4]
    [letter] = harness.letters(report)
    assert (letter["line"], letter["offset"], letter["truncated"]) == (2, -1, True)
    assert "more than 1,000 values" in letter["error"]


def test_a_cut_file_is_quarantined_or_ends_after_a_block() -> None:
    rows = events(30)
    data = written(EVENT, rows, block_bytes=120)
    ends = set()
    for end in range(len(data)):
        try:
            found = rows_of(data[:end], EVENT_FIELDS)
        except FileFailed:
            continue
        # Avro does not say how many blocks a file has.
        assert data[:end].endswith(SYNC)
        assert found == rows[: len(found)]
        ends.add(len(found))
    assert len(ends) > 3


def test_random_changes_do_no_harm() -> None:
    rows = events(60)
    plain = written(EVENT, rows, block_bytes=300)
    packed = written(EVENT, rows, "deflate", block_bytes=300)
    chance = random.Random(36)
    began = time.process_time()
    other = 0
    for number in range(600):
        data = bytearray(packed if number % 2 else plain)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            parsed = parsed_of(bytes(data), EVENT_FIELDS)
        except FileFailed:
            continue
        # Without a checksum values may change, but each block has its number of records.
        assert sum(each.table.num_rows + len(each.bad) for each in parsed) == sum(
            each.lines for each in parsed
        )
        other += [row for each in parsed for row in each.table.to_pylist()] != rows
    assert time.process_time() - began < 60
    assert other


# --- ingest tasks -----------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_ingests_files_of_two_schemas(tmp_path: Path, attempt: int, threads: int) -> None:
    harness = IngestJobHarness(
        tmp_path,
        (FieldSpec("id", "int32", nullable=False), *specs(s="string")),
        format=AVRO,
        metadata=("_source_file", "_source_line"),
    )
    harness.put("a.avro", written(ID, [{"id": 1}, {"id": 1 << 40}, {"id": 3}], "deflate"))
    harness.put("b.avro", written(ID, [{"id": 4}]))
    harness.put("c.avro", written(EVENT, events(5)))
    harness.put("d.avro", b"")
    harness.put("e.avro", b'{"id":1}\n')
    harness.put("f.avro", written(ID, []))
    harness.put("g.avro", written(EVENT, events(5))[:-3])
    report = harness.run_task(attempt=attempt, threads=threads)
    found = by_path(report)
    assert {path: (each.outcome, each.rows, each.bad_rows) for path, each in found.items()} == {
        "a.avro": ("ingested", 2, 1),
        "b.avro": ("ingested", 1, 0),
        "c.avro": ("ingested", 5, 0),
        "d.avro": ("quarantined", 0, 0),
        "e.avro": ("quarantined", 0, 0),
        "f.avro": ("ingested", 0, 0),
        "g.avro": ("quarantined", 0, 0),
    }
    rows = [(row["id"], row["s"], row["_source_line"]) for row in harness.rows(report)]
    expected = [(row["id"], row["s"], row["id"] + 1) for row in events(5)]
    assert rows == [(1, None, 1), (3, None, 3), (4, None, 1), *expected]
    [letter] = harness.letters(report)
    assert letter["path"].endswith("a.avro")
    assert (letter["line"], letter["offset"], letter["truncated"]) == (2, -1, False)
    assert json.loads(letter["raw"]) == {"id": 1 << 40}


def test_letters_of_several_pieces_have_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "CHUNK_BYTES", 100)
    harness = IngestJobHarness(tmp_path, (FieldSpec("id", "int32", nullable=False),), format=AVRO)
    rows = [{"id": number if number % 100 else 1 << 40} for number in range(1000)]
    harness.put("a.avro", written(ID, rows, block_bytes=50))
    report = harness.run_task(threads=2)
    letters = harness.letters(report)
    assert [letter["line"] for letter in letters] == list(range(1, 1001, 100))
    assert {letter["offset"] for letter in letters} == {-1}


def test_letters_come_again_as_rows_of_a_mended_schema(tmp_path: Path) -> None:
    harness = IngestJobHarness(tmp_path, EVENT_FIELDS[:1] + EVENT_FIELDS[2:], format=AVRO)
    rows = events(4)
    rows[2]["l"] = [1 << 30]
    wide = json.loads(json.dumps(EVENT).replace('"int"', '"long"'))
    rows[3]["l"] = [1 << 40]
    harness.put("a.avro", written(wide, rows))
    form = format_of(AVRO)
    [content] = form.replay_contents(harness.dead_letters(harness.run_task()))
    mended = (
        *EVENT_FIELDS[:2],
        FieldSpec("l", "list", nullable=True, children=specs(element="int64")),
        EVENT_FIELDS[3],
    )
    again = IngestJobHarness(tmp_path / "again", mended, format=form.replay_settings())
    again.put("a.ndjson", content)
    [row] = again.rows(again.run_task())
    assert {**row, "m": dict(row["m"])} == rows[3]


def test_a_letter_holds_all_of_a_long_row(tmp_path: Path) -> None:
    harness = IngestJobHarness(tmp_path, specs(id="int32", s="string"), format=AVRO)
    harness.put("a.avro", written(EVENT, [{**events(1)[0], "id": 1 << 40, "s": "x" * 200_000}]))
    [letter] = harness.letters(harness.run_task())
    assert not letter["truncated"]
    assert len(json.loads(letter["raw"])["s"]) == 200_000


CONFIG = """\
pipelines:
  orders:
    sources:
      orders:
        source_uri: {root}/raw
        format: {{ type: avro, nanoseconds: cut }}
    sink: {{ table_uri: {root}/table }}
    schema: {{ fields: [{{ name: id, type: int64 }}] }}
"""


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(root=tmp_path))
    config = load_config(path, {})
    pipeline = config.pipelines["orders"]
    source = pipeline.sources["orders"]
    assert ingest_settings(pipeline, source).format == AvroOptions(type="avro", nanoseconds="cut")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install 'blizzard-penguin\[avro\]'"):
        format_of(AVRO)
    assert ingest_settings(pipeline, source).format.type == "avro"  # state is read without it

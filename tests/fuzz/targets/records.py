"""Parsing of lines to rows on both paths, and inference of a schema from a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SchemaConflict
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.protocol import BadLine, Parsed
from blizzard_py.job import FieldSpec
from blizzard_py.schema.inference import Inference, Rules
from tests.fuzz.mutate import behind, json_lines
from tests.fuzz.target import Target, hold
from tests.support import corpus

# Lines that are parsed again alone: each costs what a chunk costs.
_ALONE = 24


def _spec(name: str, kind: Any, *children: FieldSpec, **more: Any) -> FieldSpec:
    return FieldSpec(name, kind, more.pop("nullable", True), tuple(children), **more)


@cache
def _schemas() -> tuple[RecordSchema, ...]:
    number = _spec("v", "int64")
    nested = (
        _spec("o", "struct", number, _spec("w", "list", _spec("element", "float64"))),
        _spec("l", "list", _spec("element", "struct", _spec("x", "string", nullable=False))),
        _spec("m", "map", _spec("value", "int32")),
    )
    converted = (
        _spec("t", "timestamp", unit="ms"),
        _spec("d", "decimal", precision=9, scale=2),
        _spec("b", "binary"),
        _spec("s", "string", coerce=True),
        _spec("j", "json"),
        _spec("day", "date"),
    )
    return (
        RecordSchema(corpus.FIELDS),
        RecordSchema(nested),
        RecordSchema(converted),
        RecordSchema(corpus.FIELDS, "capture"),
        RecordSchema((number, _spec("j", "json")), "fail"),
    )


def records(data: bytes) -> None:
    """Read each line as a row, bad or blank: alone, among others, and on either path."""
    if len(data) < 2:
        return
    chunk = data[1:] + b"\n" * (not data.endswith(b"\n"))
    schema = _schemas()[data[0] % len(_schemas())]
    strict = LineParser(schema)
    parsed = LineParser(schema, tolerant=True).parse(chunk)
    lines = chunk.split(b"\n")[:-1]
    rows = {int(line): row for row, line in enumerate(parsed.rows_at)}
    bad = {record.index: record for record in parsed.bad}
    hold("lines are counted", parsed.lines == len(lines), parsed)
    hold("there are as many rows as lines of rows", len(rows) == parsed.table.num_rows)
    hold("the schema is the table's", parsed.table.schema.equals(schema.table))
    hold("no line is a row and bad", rows.keys().isdisjoint(bad))
    for index, line in enumerate(lines):
        blank = not line.strip(b" \t\r")
        hold("a line that is not blank is a row or bad", blank != (index in rows or index in bad))
    for record in parsed.bad:
        place = chunk[record.offset : record.offset + record.length]
        hold("a bad record is where it says", place == lines[record.index] == record.head)
    first = _first_bad(strict, chunk)
    hold("both ways agree on the first bad line", first == min(bad, default=None), (first, bad))
    for index in list(rows | bad)[:_ALONE]:
        alone = _alone(strict, lines[index] + b"\n")
        hold("a line is bad if it fails alone", (alone is None) == (index in bad), lines[index])
        if alone is not None:
            row = parsed.table.slice(rows[index], 1)
            same = alone.table.equals(row) or str(alone.table) == str(row)  # NaN is not itself
            hold("a row is the same alone", same, lines[index])


def _alone(parser: LineParser, line: bytes) -> Parsed | None:
    try:
        return parser.parse(line)
    except BadLine:
        return None


def _first_bad(parser: LineParser, chunk: bytes) -> int | None:
    try:
        parser.parse(chunk)
    except BadLine as error:
        return error.index
    return None


def inference(data: bytes) -> None:
    """Infer columns that can read the records, or report a conflict."""
    found = Inference(Rules(coerce_conflicts=data[:1] != b"\0", timestamps=data[:1] != b"\1"))
    lines = data[1:].split(b"\n")
    for number, line in enumerate(lines):
        found.add(line, f"a:{number}")
    try:
        inferred = found.result()
    except SchemaConflict:
        return
    told = inferred.records + inferred.skipped_lines
    hold("each line is a record or skipped", told == sum(1 for line in lines if line.strip()))
    schema = RecordSchema(inferred.fields)
    hold("the columns are a table's", isinstance(schema.table, pa.Schema))
    if inferred.fields:
        LineParser(schema, tolerant=True).parse(b"".join(line + b"\n" for line in lines))


def _record_seeds() -> Iterator[bytes]:
    for case in corpus.LINES:
        if not case.suffix:
            yield b"\0" + b'{"id":-1}\n' + case.data + b'\n{"id":-2}\n'
    yield b"\1" + b'{"o":{"v":1,"w":[1,2.5,null]},"l":[{"x":"a"}],"m":{"k":1}}\n{"m":{}}\n'
    yield (
        b'\2{"t":1706450400000,"d":"12.34","b":"AA==","s":{"a":[1]},"j":[1,{"a":null}],'
        b'"day":"2024-01-28"}\n{"d":1.5}\n'
    )
    yield b"\3" + b'{"id":1,"other":{"a":1}}\n \t\r\n{"id":2}\r\n'
    yield b"\4" + b'{"v":1,"j":null}\n{"v":1,"z":2}\n{"v":2}{"v":3}\n{"v":\n4}\nnull\n'


def _sample_seeds() -> Iterator[bytes]:
    yield b"\2" + b'{"a":1,"b":"2024-01-28T00:00:00Z","c":{"d":[1,2.5]}}\n{"a":"x"}\nnope\n'
    yield b"\2" + json.dumps({"x\u2028": 1, "A": 1, "a": 10**30, "": {}}).encode()
    yield b"\0" + b'{"a":[[{"b":1}],[]],"c":null,"d":true}\n{"a":[[{"b":null}]]}'


TARGETS = (
    Target("records", records, _record_seeds, behind(1, json_lines)),
    Target("inference", inference, _sample_seeds, behind(1, json_lines), max_bytes=8192),
)

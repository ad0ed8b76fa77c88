"""Records: the parser's verdict on one line, with a good line before and after."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.lines import NdjsonFormat
from blizzard_py.formats.ndjson.parse import LineParser, record_lines
from blizzard_py.formats.protocol import BadLine
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece
from tests.support.ingest_job_harness import specs

pytestmark = pytest.mark.usefixtures("both_paths")

FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    *specs(
        s="string",
        i="int32",
        f="float64",
        g="float32",
        b="boolean",
        t="timestamp",
        d="date",
    ),
)
SCHEMA = RecordSchema(FIELDS)
GOOD = b'{"id":0}\n'

# What else is accepted is in `tests/support/corpus.py`.
ACCEPTED: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"id":1}', {"id": 1, "s": None, "d": None}),
    (b'{"id":1,"t":"0001-01-01T02:00:00+02:00"}', {"t": dt.datetime.min.replace(tzinfo=dt.UTC)}),
    (
        b'{"id":1,"t":"9999-12-31T18:59:59.999999-05:00"}',
        {"t": dt.datetime.max.replace(tzinfo=dt.UTC)},
    ),
]

REFUSED: list[tuple[bytes, str]] = [
    (b"{}", "required field was absent"),
    (b'{"id":null}', "required field was null"),
    (b'{"id":"1"}', "changed from number to string"),
    (b'{"id":1.5}', "couldn't parse"),
    (b'{"id":1e3}', "couldn't parse"),
    (b'{"id":9223372036854775808}', "couldn't parse"),
    (b'{"id":true}', "changed from number to boolean"),
    (b'{"id":1,"id":2}', "specified twice"),
    (b'{"id":01}', "Missing a comma"),
    (b'{"id":1,"i":2147483648}', "int32"),
    (b'{"id":1,"s":1}', "changed from string to number"),
    (b'{"id":1,"s":true}', "changed from string to boolean"),
    (b'{"id":1,"s":{"a":1}}', "changed from string to object"),
    (b'{"id":1,"s":["a"]}', "changed from string to array"),
    (b'{"id":1,"s":"\\ud800"}', "surrogate"),
    (b'{"id":1,"s":"\\udc00"}', "surrogate"),
    (b'{"id":1,"s":"tab\there"}', "Invalid encoding"),
    (b'{"id":1,"s":"\xff\xfe"}', "invalid UTF-8"),
    (b'{"id":1,"other":"caf\xe9"}', "invalid UTF-8"),
    (b'{"id":1,"f":"1"}', "changed from number to string"),
    (b'{"id":1,"f":1e400}', "too big"),
    (b'{"id":1,"b":1}', "changed from boolean to number"),
    (b'{"id":1,"b":"true"}', "changed from boolean to string"),
    (b'{"id":1,"t":1700000000}', "changed from string to number"),
    (b'{"id":1,"t":""}', "couldn't parse"),
    (b'{"id":1,"t":"yesterday"}', "couldn't parse"),
    (b'{"id":1,"t":"2024-05-06T12:00:00.123456789Z"}', "couldn't parse"),
    (b'{"id":1,"t":"9999-12-31T23:59:59-05:00"}', "column 't': the time lies outside the years"),
    (b'{"id":1,"t":"0001-01-01T00:00:00+02:00"}', "column 't': the time lies outside the years"),
    (b'{"id":1,"t":"0000-12-31T23:59:59Z"}', "column 't': the time lies outside the years"),
    (b'{"id":1,"d":"2024-02-30"}', "2024-02-30"),
    (b'{"id":1,"d":"2024-05-06T12:00:00Z"}', "date32"),
    (b'{"id":1,"d":""}', "date32"),
    (b'{"id":1,}', "Missing a name"),
    (b'{"id":1', "does not end with"),
    (b"{'id':1}", "Missing a name"),
    (b"{id:1}", "Missing a name"),
    (b'{"id":1}{"id":2}', "more than one JSON object"),
    (b'{"id":1} {"id":2} {"id":3}', "more than one JSON object"),
    (b'{"id":1}null', "does not end with"),
    (b'{"id":1}null{"id":2}', "required field was null"),
    (b"null", "does not start with"),
    (b"1", "does not start with"),
    (b'"text"', "does not start with"),
    (b'[{"id":1}]', "does not start with"),
    (b'{"id":1}]', "does not end with"),
    (b'{"id":1}#', "does not end with"),
    (b'// note {"id":1}', "does not start with"),
    (b'{"id":1}\x00', "does not end with"),
    (b"\x00", "does not start with"),
    (b'\x00{"id":1}', "does not start with"),
    (b"id,s", "does not start with"),
    (b"}", "does not start with"),
    (b"{", "does not end with"),
]


@pytest.fixture(scope="module")
def parser() -> LineParser:
    return LineParser(SCHEMA)


@pytest.mark.parametrize(("line", "expected"), ACCEPTED)
def test_a_record_is_accepted(parser: LineParser, line: bytes, expected: dict[str, Any]) -> None:
    parsed = parser.parse(GOOD + line + b"\n" + GOOD)
    assert parsed.lines == 3
    assert parsed.table.schema == SCHEMA.table
    row = parsed.table.to_pylist()[1]
    assert {name: row[name] for name in expected} == expected
    parsed.table.validate(full=True)


@pytest.mark.parametrize(("line", "reason"), REFUSED)
def test_anything_else_is_refused_with_its_line(
    parser: LineParser, line: bytes, reason: str
) -> None:
    for before, after in ((2, 2), (0, 1), (1, 0), (0, 0), (700, 300)):
        with pytest.raises(BadLine) as caught:
            parser.parse(GOOD * before + line + b"\n" + GOOD * after)
        assert caught.value.index == before
        assert reason in caught.value.reason


def test_the_first_of_several_bad_lines_is_named(parser: LineParser) -> None:
    with pytest.raises(BadLine) as caught:
        parser.parse(GOOD * 5 + b'{"id":"x"}\n' + GOOD + b"null\n" + b'{"id":\n')
    assert caught.value.index == 5


def test_an_object_over_two_lines_is_refused(parser: LineParser) -> None:
    with pytest.raises(BadLine) as caught:
        parser.parse(GOOD + b'{"id":\n1}\n')
    assert caught.value.index == 1


def test_rows_that_compensate_for_each_other_are_refused(parser: LineParser) -> None:
    # Three rows in three lines, but not one in each.
    with pytest.raises(BadLine) as caught:
        parser.parse(b'{"id":1}{"id":2}\n{"id":3,\n"s":""}\n')
    assert caught.value.index == 0
    with pytest.raises(BadLine) as caught:
        parser.parse(b'{"id":3,"x":{}\n{"id":1}}{"id":2}\n')
    assert caught.value.index == 0


def test_blank_lines_are_lines_without_rows(parser: LineParser) -> None:
    parsed = parser.parse(b'\n  \n{"id":1}\n\r\n\t\n{"id":2}\r\n\n')
    assert parsed.table.column("id").to_pylist() == [1, 2]
    assert parsed.lines == 7
    with pytest.raises(BadLine) as caught:
        parser.parse(b'\n\n{"id":1}\n\noops\n')
    assert caught.value.index == 4


@pytest.mark.parametrize("chunk", [b"", b"\n", b"\r\n \n"])
def test_no_records_is_no_error(parser: LineParser, chunk: bytes) -> None:
    parsed = parser.parse(chunk)
    assert parsed.table.num_rows == 0
    assert parsed.lines == chunk.count(b"\n")


def test_reason_is_truncated_for_a_long_line(parser: LineParser) -> None:
    with pytest.raises(BadLine) as caught:
        parser.parse(b'{"id":1,"t":"' + b"x" * 100_000 + b'"}\n')
    assert len(caught.value.reason) <= 200


def test_lines_are_counted_alike_on_the_fast_and_the_slow_path() -> None:
    fast = GOOD * 1000

    def counted(chunk: bytes) -> tuple[int, int]:
        rows_at, lines = record_lines(chunk)
        return len(rows_at), lines

    assert counted(fast) == (1000, 1000)
    assert counted(fast + b"\n") == (1000, 1001)
    assert counted(fast.replace(b"\n", b"\r\n")) == (1000, 1000)


WIDE = RecordSchema(
    (
        *FIELDS,
        FieldSpec("j", "json", nullable=True),
        FieldSpec("m", "map", nullable=True, children=specs(value="int64")),
        FieldSpec("l", "list", nullable=True, children=specs(item="int32")),
        FieldSpec("o", "struct", nullable=True, children=specs(a="int64", b="date")),
        FieldSpec("n", "decimal", nullable=True, precision=9, scale=2),
        FieldSpec("y", "binary", nullable=True),
    ),
    "capture",
)
WIDE_LINE = (
    b'{"id":%d,"j":{"a": [1]},"m":{"k":1},"l":[1,null],"o":{"a":1,"b":"2024-01-01"},'
    b'"n":"1.25","y":"AAE=","extra":{"z":%d}}\n'
)
WIDE_BAD = (
    b'{"id":1,"j":{"a":}}\n',
    b'{"id":1,"m":{"k":"x"}}\n',
    b'{"id":1,"m":3}\n',
    b'{"id":1,"l":["x"]}\n',
    b'{"id":1,"o":{"b":"2024-13-01"}}\n',
    b'{"id":1,"n":"1.255"}\n',
    b'{"id":1,"y":"?"}\n',
)


@pytest.mark.parametrize("isolated", [False, True])
def test_the_exact_path_separates_good_and_bad_of_every_type(isolated: bool) -> None:
    good = [WIDE_LINE % (n, n) for n in range(300)]
    fast = LineParser(WIDE).parse(b"".join(good))
    mixed = list(good)
    for number, line in enumerate(WIDE_BAD):
        mixed.insert(40 * number, line)
    with ChildProcess() as nursery:
        form, rows = NdjsonFormat(), RowSchema(WIDE.fields, WIDE.unexpected)
        decoder = (
            IsolatedDecoder(nursery, form, rows, tolerant=True)
            if isolated
            else form.decoder(rows, tolerant=True, fast=False)
        )
        found = decoder.decode(Piece(b"".join(mixed), 0))
    assert found.table.equals(fast.table)
    assert [bad.head + b"\n" for bad in found.bad] == list(WIDE_BAD)
    assert [bad.index for bad in found.bad] == [40 * n for n in range(len(WIDE_BAD))]
    for bad in found.bad:
        with pytest.raises(BadLine) as caught:
            LineParser(WIDE).parse(bad.head + b"\n")
        assert caught.value.reason == bad.reason


def test_a_name_that_the_prefilter_lacks_changes_no_verdict() -> None:
    parser = LineParser(RecordSchema(specs(id="int64", **{'q"q': "string"})), tolerant=True)
    parsed = parser.parse(b'{"id":1,"q\\"q":"x"}\n{"id":"x"}\n{"id":3}\n')
    assert parsed.table.to_pylist() == [{"id": 1, 'q"q': "x"}, {"id": 3, 'q"q': None}]
    assert [bad.index for bad in parsed.bad] == [1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('"ts":"2018-01-01"', "column 'ts': The string '2018-01-01' is not a valid decimal128"),
        ('"o.p":1', "JSON parse error: Column(/o.p) changed from boolean to number"),
        ('"l":["a"]', "JSON parse error: Column(/l/[]) changed from number to string"),
        ('"m":{"a":"x"}', "Column(/m[]) changed from number to string"),
        ('"st":{"x":"y"}', "changed from number to string"),
    ],
)  # fmt: skip
def test_reason_names_the_column_and_its_type(value: str, reason: str) -> None:
    whole = FieldSpec("element", "int64", nullable=True)
    declared = {
        "ts": ("timestamp", {"unit": "ms"}, "timestamp, unit: ms"),
        "o.p": ("boolean", {}, "boolean"),
        "l": ("list", {"children": (whole,)}, "list of int64"),
        "m": ("map", {"children": (whole,)}, "map of int64"),
        "st": ("struct", {"children": (FieldSpec("x", "int64", nullable=True),)}, ""),
    }
    fields = [
        FieldSpec(name, kind, nullable=True, **more)  # type: ignore[arg-type]  # of the table above
        for name, (kind, more, _) in declared.items()
    ]
    [bad] = LineParser(RecordSchema(fields), tolerant=True).parse(f"{{{value}}}\n".encode()).bad
    told = declared[value.split('"')[1]][2]
    assert reason in bad.reason
    assert bad.reason.endswith(f" (declared: {told})") == bool(told)

"""CSV: the verdict on each record, whatever the blocks, the pieces and the neighbours."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from blizzard_core.limits import CSV_HEADER_BYTES
from blizzard_core.settings.formats import CsvOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.csv.dialect import Dialect
from blizzard_py.formats.csv.files import CsvFormat
from blizzard_py.formats.csv.framing import CsvFraming
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.protocol import BadLine, Parsed
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from tests.support.ingest_job_harness import specs
from tests.support.memory_file import MemoryFile

FIELDS = specs(a="string", b="int64")
PIECES = [b"a", b"1", b",", b",", b'"', b'"', b"\n", b"\r\n", b"\r", b" ", b"\xff", "é".encode(),
          b'""', b"x,y\n", b'"q",2\n', b'"m\nn",3\n', b"7,8\n", b"#", b"\\"]  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The rows, bad records and refused ones of a file, each with its line and offset."""

    rows: list[tuple[int, dict[str, Any]]]
    bad: list[tuple[int, int, bytes, str]]
    names: frozenset[str] = frozenset()

    @property
    def values(self) -> list[dict[str, Any]]:
        return [row for _, row in self.rows]


def options(**given: Any) -> CsvOptions:
    return CsvOptions.model_validate({"type": "csv", **given})


def read(
    data: bytes,
    fields: tuple[FieldSpec, ...] = FIELDS,
    *,
    block: int = 1 << 20,
    path: str = "x.csv",
    schema: RowSchema | None = None,
    **given: Any,
) -> Found:
    form = CsvFormat(options(**given))
    rows = schema or RowSchema(fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blizzard_py.formats.csv.framing.LEAST_BLOCK", min(block, 1 << 16))
        items = iter(list(form.pieces(MemoryFile(data, block, path), rows)))
    return collected(form, items, rows)


def collected(form: CsvFormat, items: Iterator[Piece | RefusedRecord], schema: RowSchema) -> Found:
    decoder = form.decoder(schema, tolerant=True, fast=True)
    rows: list[tuple[int, dict[str, Any]]] = []
    bad: list[tuple[int, int, bytes, str]] = []
    names: frozenset[str] = frozenset()
    line = 0
    for item in items:
        line += item.skipped
        if isinstance(item, RefusedRecord):
            bad.append((line + 1, item.offset, item.head, item.reason))
            line += 1
            continue
        parsed: Parsed = decoder.decode(item)
        numbers = (parsed.rows_at + line + 1).tolist()
        rows += zip(numbers, parsed.table.to_pylist(), strict=True)
        bad += [(line + e.index + 1, item.offset + e.offset, e.head, e.reason) for e in parsed.bad]
        names |= parsed.unexpected
        line += parsed.lines
    return Found(rows, bad, names)


def framed(data: bytes, block: int, target: int, dialect: Dialect) -> Found:
    framing = CsvFraming(dialect, 2, header=False, target=target, limit=1 << 20, least=1)
    form = CsvFormat(options(header=False, escape=dialect.escape.decode()))
    items = framing.pieces(MemoryFile(data, block).blocks())
    return collected(form, items, RowSchema(FIELDS))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_depends_on_blocks_and_pieces(seed: int) -> None:
    for number in range(150):
        chance = random.Random(1000 * seed + number)  # no secret
        data = b"".join(chance.choices(PIECES, k=chance.randrange(1, 60)))
        escape = b"\\" if number % 4 == 0 else b""
        dialect = Dialect(b",", b'"', escape, b"")
        whole = framed(data, len(data), 1 << 20, dialect)
        parts = framed(data, chance.randrange(1, 9), chance.randrange(1, 20), dialect)
        assert parts == whole, data
        for _, offset, raw, _ in whole.bad:
            # A mark at the start is dropped, and offsets count it.
            assert data[offset : offset + len(raw)] == raw, data
        is_closed = not any("never closed" in reason for *_, reason in whole.bad)
        if is_closed and not escape and data.strip(b"\r\n"):
            assert len(whole.rows) + len(whole.bad) == arrows_records(data), data


def arrows_records(data: bytes) -> int:
    """Return how many records pyarrow finds in the whole, or -1 if it fails."""
    bad: list[Any] = []

    def refused(row: Any) -> str:
        bad.append(row.number)
        return "skip"

    data = data.replace(b"\xff", b"?")
    table = pacsv.read_csv(
        io.BytesIO(data if data.endswith((b"\n", b"\r")) else data + b"\n"),
        read_options=pacsv.ReadOptions(column_names=["a", "b"], use_threads=False),
        parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=refused),
        convert_options=pacsv.ConvertOptions(column_types={"a": pa.binary(), "b": pa.binary()}),
    )
    return int(table.num_rows) + len(bad)


def test_an_unclosed_quote_loses_no_other_record() -> None:
    found = read(b'a,b\nx,1\n"y,2\nz,3\nw,4\n')
    assert found.rows == [
        (2, {"a": "x", "b": 1}),
        (4, {"a": "z", "b": 3}),
        (5, {"a": "w", "b": 4}),
    ]
    assert found.bad == [(3, 8, b'"y,2', "a quote in it is never closed")]


def test_line_is_where_a_record_begins() -> None:
    found = read(b'a,b\n\n"x\ny",1\nz,oops\n\n"p\r\nq",2\n')
    assert found.rows == [(3, {"a": "x\ny", "b": 1}), (7, {"a": "p\r\nq", "b": 2})]
    assert [(line, raw) for line, _, raw, _ in found.bad] == [(5, b"z,oops")]


@pytest.mark.parametrize(
    ("data", "given", "rows"),
    [
        (b"b,a\n1,x\n", {}, [("x", 1)]),
        (b"\xef\xbb\xbf a , b \nx,1\n", {}, [("x", 1)]),
        (b"a,b,c\nx,1,more\n", {}, [("x", 1)]),
        (b"a\nx\n", {}, [("x", None)]),
        (b"a,b\nx, 1\n", {}, [("x", 1)]),
        (b"a,b\n x ,1\n", {}, [(" x ", 1)]),
        (b"a,b\n x ,1\n", {"ignore_leading_white_space": True}, [("x ", 1)]),
        (b'a,b\n"",1\n,2\n', {}, [("", 1), (None, 2)]),
        (b"a,b\nNULL,NULL\n", {"null_value": "NULL"}, [(None, None)]),
        (b'a;b\n"x;1";"2"\n', {"delimiter": ";"}, [("x;1", 2)]),
        (b"x,1\n", {"header": False}, [("x", 1)]),
        (b"1,x\n", {"header": False, "columns": ["b", "a"]}, [("x", 1)]),
        (b"title\n\na,b\nx,1\n", {"skip_rows": 1}, [("x", 1)]),
        (b'#no\na,b\n#,9\nx,1\n# "\ny,2\n', {"comment": "#"}, [("x", 1), ("y", 2)]),
        (b"a,b\nx\ny,2,,\nz,3,4\n", {"ragged_rows": "pad"}, [("x", None), ("y", 2)]),
        (b'a,b\n"x\\"y",1\n', {"escape": "\\"}, [('x"y', 1)]),
        (b'a,b\n5" disk,1\n"x"1,2\n', {}, [('5" disk', 1), ("x1", 2)]),
        (b'a,b\n"x,1\n', {"quote": ""}, [('"x', 1)]),
        ("a,b\nä,1\n".encode("cp1252"), {"encoding": "cp1252"}, [("ä", 1)]),
        ("a,b\nä,1\n".encode("utf-16"), {"encoding": "utf-16"}, [("ä", 1)]),
        ("a,b\n表,1\n".encode("shift_jis"), {"encoding": "shift_jis"}, [("表", 1)]),
        (b"a,b\rx,1\ry,2", {}, [("x", 1), ("y", 2)]),
        (b"a,b\n", {}, []),
        (b"", {}, []),
        (b"\n\n", {}, []),
    ],
)  # fmt: skip
def test_files_of_every_form(data: bytes, given: dict[str, Any], rows: list[Any]) -> None:
    for block in (1, 3, 1 << 20):
        assert [tuple(row.values()) for row in read(data, block=block, **given).values] == rows


def test_values_follow_the_options() -> None:
    fields = specs(n="float64", d="date", t="timestamp", f="boolean")
    found = read(
        b"n;d;t;f\n1.234,5;31.12.2024;31.12.2024 13:00;ja\n",
        fields,
        delimiter=";", decimal=",", thousands=".", date_format="%d.%m.%Y",
        timestamp_format="%d.%m.%Y %H:%M", time_zone="Europe/Berlin",
        true_values="ja", false_values="nein",
    )  # fmt: skip
    assert [str(value) for value in found.values[0].values()] == [
        "1234.5", "2024-12-31", "2024-12-31 12:00:00+00:00", "True",
    ]  # fmt: skip


def test_tab_is_the_delimiter_of_tsv_files() -> None:
    assert read(b"a\tb\nx\t1\n", path="d=1/x.tsv.gz").values == [{"a": "x", "b": 1}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"y,2,3", "3 fields instead of 2"),
        (b"y", "1 fields instead of 2"),
        (b"y,0x1F", "column 'b'"),
        (b"y,1.5", "column 'b'"),
        (b"caf\xe9,2", "not valid UTF-8"),
        (b"\xff", "not valid UTF-8"),
        (b'"m\nn",oops', "column 'b'"),
    ],
)
def test_a_bad_record_leaves_its_neighbours_alone(record: bytes, reason: str) -> None:
    found = read(b"a,b\nx,1\n" + record + b"\nz,3\n")
    assert [row["a"] for row in found.values] == ["x", "z"]
    [(line, offset, raw, why)] = found.bad
    assert (line, offset, raw) == (3, 8, record)
    assert reason in why


@pytest.mark.parametrize(
    ("data", "given", "reason"),
    [
        (b"a;b\nx;1\n", {}, 'set format.delimiter: ";"'),
        (b"A,B\nx,1\n", {}, "names must be written alike"),
        (b"p,q\nx,1\n", {}, "correct schema.fields, or set format.header: false"),
        (b"a,b,a\nx,1,y\n", {}, "the header has a twice"),
        ("a,b\nx,1\n".encode("utf-16"), {}, "format.encoding: utf-16"),
        ("a,ä\nx,1\n".encode("cp1252"), {}, "the header is not UTF-8"),
        (b'a,"b\nx,1\n', {}, "the header has a quote that is never closed"),
        ("a,b\nx,1\n".encode("utf-16")[:-1], {"encoding": "utf-16"}, "is not utf-16"),
    ],
)
def test_a_header_that_cannot_be_used_fails_the_file(
    data: bytes, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FileFailed) as caught:
        read(data, **given)
    assert reason in caught.value.reason
    assert caught.value.outcome == "quarantined"


def test_a_required_column_must_be_in_the_header() -> None:
    fields = (FieldSpec("a", "string", nullable=False), *specs(b="int64"))
    with pytest.raises(FileFailed, match=r"the header lacks a, which schema\.fields requires"):
        read(b"b,c\n1,2\n", fields)


def test_columns_that_are_not_declared_follow_the_schema() -> None:
    data = b"a,b,c,d\nx,1,more,\ny,2,,7\n"
    assert read(data).names == {"c", "d"}
    captured = read(data, schema=RowSchema(FIELDS, "capture"))
    assert [row["_rescued"] for row in captured.values] == ['{"c": "more"}', '{"d": "7"}']
    with pytest.raises(FileFailed, match="unexpected columns in the header: c, d"):
        read(data, schema=RowSchema(FIELDS, "fail"))


def test_new_columns_get_values_as_they_look() -> None:
    form = CsvFormat(options())
    schema = RowSchema(FIELDS, evolves=True)
    data = b'a,b,c\nx,1,7\n"y\n",2,text\nz,3,007\nw,4,true\nv,5,\n'
    [piece] = form.pieces(MemoryFile(data), RowSchema(FIELDS))
    assert isinstance(piece, Piece)
    lines = form.decoder(schema, tolerant=True, fast=True).as_lines(piece).split(b"\n")
    assert lines == [
        b'{"c":7}', b'{"c":"text"}', b"", b'{"c":"007"}', b'{"c":true}', b'{"c":null}', b"",
    ]  # fmt: skip


def test_a_child_process_gives_the_same_as_a_thread() -> None:
    data = b'a,b\nx,1\ny,oops\n"m\nn",3\n\xff,4\n'
    form, schema = CsvFormat(options()), RowSchema(FIELDS)
    [piece] = form.pieces(MemoryFile(data), RowSchema(FIELDS))
    assert isinstance(piece, Piece)
    with ChildProcess() as children:
        isolated = IsolatedDecoder(children, form, schema, tolerant=True).decode(piece)
    direct = form.decoder(schema, tolerant=True, fast=True).decode(piece)
    assert isolated.table.equals(direct.table)
    assert isolated.bad == direct.bad
    assert np.array_equal(isolated.rows_at, direct.rows_at)


def test_halves_together_give_all_records() -> None:
    data = b"a,b\n" + b"".join(b'"r\n%d",%d\n' % (n, n) for n in range(9))
    form, schema = CsvFormat(options()), RowSchema(FIELDS)
    decoder = form.decoder(schema, tolerant=True, fast=True)
    [piece] = form.pieces(MemoryFile(data), RowSchema(FIELDS))
    assert isinstance(piece, Piece)
    halves = decoder.halves(piece)
    assert b"".join(half.data for half in halves) == piece.data
    whole, parts = decoder.decode(piece), [decoder.decode(half) for half in halves]
    assert pa.concat_tables([part.table for part in parts]).equals(whole.table)
    assert sum(part.lines for part in parts) == whole.lines


def test_without_tolerance_the_first_bad_record_is_raised() -> None:
    form = CsvFormat(options())
    [piece] = form.pieces(MemoryFile(b"a,b\nx,1\ny,oops\nz,q\n"), RowSchema(FIELDS))
    assert isinstance(piece, Piece)
    with pytest.raises(BadLine) as caught:
        form.decoder(RowSchema(FIELDS), tolerant=False, fast=True).decode(piece)
    assert caught.value.index == 1


def test_pieces_have_no_more_values_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.formats.csv.framing.CHUNK_CELLS", 100)
    form = CsvFormat(options())
    data = b"a,b\n" + b"x,1\n" * 50
    pieces = [p for p in form.pieces(MemoryFile(data), RowSchema(FIELDS)) if isinstance(p, Piece)]
    assert len(pieces) > 5
    assert max(piece.cells for piece in pieces) <= 100
    assert len(read(data).rows) == 50


@pytest.mark.parametrize("block", [1, 7, 60])
@pytest.mark.parametrize(
    ("long", "raw"),
    [
        (b'"' + b"y\n" * 100 + b'",2', b'"y'),
        (b"z" * 300 + b",5", b"z" * 300 + b",5"),
        (b'"' + b"z" * 300 + b'",5', b'"' + b"z" * 300 + b'",5'),
    ],
)
def test_a_record_above_the_limit_is_refused_by_its_first_line(
    long: bytes, raw: bytes, block: int
) -> None:
    for before in (b"", b"x,1\n", b"x,1\n" * 30):
        dialect = Dialect(b",", b'"', b"", b"")
        framing = CsvFraming(dialect, 2, limit=100, target=20, least=1)
        data = b"a,b\n" + before + long + b"\nw,3\n"
        form = CsvFormat(options())
        found = collected(form, framing.pieces(MemoryFile(data, block).blocks()), RowSchema(FIELDS))
        line = 2 + before.count(b"\n")
        assert found.bad[0][:2] == (line, 4 + len(before))
        assert raw.startswith(found.bad[0][2])
        assert "longer than 100 bytes" in found.bad[0][3]
        assert found.rows[-1] == (data.count(b"\n"), {"a": "w", "b": 3})
        assert {row["a"] for row in found.values} == {"w", *(["x"] if before else [])}


def test_a_header_that_is_too_long_fails_the_file() -> None:
    for data in (b"a," + b"n" * CSV_HEADER_BYTES + b"\nx,1\n", b'a,"b' + b"\n" * (2 << 20)):
        with pytest.raises(FileFailed, match="is longer than 524,288 bytes"):
            read(data)


def test_quotes_that_are_never_closed_cost_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"a,b\n" + b'5,a","b\n' * 200
    found = read(data)
    assert len(found.rows) + len(found.bad) == 200
    monkeypatch.setattr("blizzard_py.formats.csv.framing.CSV_REREAD_BYTES", 20_000)
    with pytest.raises(FileFailed, match=r"is in too many records; set format\.quote"):
        read(data)


def test_record_of_many_lines_is_lexed_once() -> None:
    data = b"a,b\n" + b'"' + b'"",\n' * 1_000_000 + b'",1\n'
    assert [row["b"] for row in read(data).values] == [1]


def test_carriage_return_at_the_end_of_a_file_is_a_line_end() -> None:
    [piece] = CsvFormat(options()).pieces(MemoryFile(b"a,b\nx,1\r"), RowSchema(FIELDS))
    assert isinstance(piece, Piece)
    assert piece.data == b"x,1\n"


def test_mark_within_a_file_is_text() -> None:
    data = b"a,b\n\xef\xbb\xbfx,1\n\xef\xbb\xbfy,2\n"
    for block in (1, 1 << 20):
        assert [row["a"] for row in read(data, block=block).values] == ["\ufeffx", "\ufeffy"]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a\n1\n,\n3\n", [(2, "1"), (3, None), (4, "3")]),
        (b'a\n1\n"x",\n3\n', [(2, "1"), (3, "x"), (4, "3")]),
    ],
)
def test_padding_keeps_records_separate(data: bytes, rows: list[Any]) -> None:
    found = read(data, specs(a="string"), ragged_rows="pad")
    assert [(line, row["a"]) for line, row in found.rows] == rows


def test_padding_with_escapes_changes_no_other_record() -> None:
    found = read(b"a,b\r\nx,1,y\\,\r\nC:\\\r\n\r\nz,3\r\n", ragged_rows="pad", escape="\\")
    assert found.values == [{"a": "C:\r", "b": None}, {"a": "z", "b": 3}]
    assert [raw for _, _, raw, _ in found.bad] == [b"x,1,y\\,"]


def test_padded_fields_are_null_whatever_null_is() -> None:
    found = read(b"a,b\nx\ny,2,\n", ragged_rows="pad", null_value="NULL")
    assert found.values == [{"a": "x", "b": None}, {"a": "y", "b": 2}]


def test_bytes_of_a_record_end_before_its_line_end() -> None:
    found = read(b"a,b\nx,a\\\n\ny,1\n", escape="\\")
    assert [(line, raw) for line, _, raw, _ in found.bad] == [(2, b"x,a\\\n")]
    assert found.values == [{"a": "y", "b": 1}]


def test_empty_lines_are_no_values_of_a_wide_file() -> None:
    names = [f"c{number}" for number in range(5000)]
    header, row = ",".join(names).encode(), b"," * 4999
    form = CsvFormat(options())
    items = list(
        form.pieces(MemoryFile(header + b"\n" + b"\n" * 20_000 + row + b"\n"), RowSchema(FIELDS))
    )
    assert sum(item.cells for item in items if isinstance(item, Piece)) == 5000


def test_a_header_is_checked_where_all_records_are_refused() -> None:
    with pytest.raises(FileFailed, match="none of the columns"):
        read(b'p,q\n1,"open\n')


@pytest.mark.parametrize("encoding", ["ascii", "cp1253", "iso8859-7", "big5", "euc_kr"])
def test_bytes_that_are_no_text_never_become_text(encoding: str) -> None:
    odd = [bytes([one, two]) for one in range(0xC2, 0xE0) for two in range(0x80, 0xC0)]
    odd = [pair for pair in odd if not _decodes(pair, encoding)]
    found = read(b"a,b\n" + b"".join(pair + b",1\n" for pair in odd), encoding=encoding)
    assert (len(found.rows), len(found.bad)) == (0, len(odd))


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


MARK = b"\xef\xbb\xbf"


def test_letters_with_open_quotes_have_files_of_their_own() -> None:
    form = CsvFormat(options())
    letters = [
        DeadLetter("file:///a.csv", "", "parse", "", line=n, raw=raw, header=b"a,b")
        for n, raw in enumerate([b'x,"open', b"y,bad", b'"z",q"', b'w,"open"'])
    ]
    assert form.replay_contents(letters) == [
        MARK + b'a,b\ny,bad\n"z",q"\nw,"open"\n', MARK + b'a,b\nx,"open',
    ]  # fmt: skip


def test_names_that_no_column_can_have_are_read_under_another() -> None:
    data = b"Order ID,Net (EUR),x y,x_y,,\n1,2,3,4,5,\n"
    schema = RowSchema(specs(Order_ID="int64", Net_EUR="int64", x_y="int64"))
    form = CsvFormat(options())
    [piece] = form.pieces(MemoryFile(data), schema)
    assert isinstance(piece, Piece)
    decoder = form.decoder(schema, tolerant=True, fast=False)
    assert decoder.decode(piece).table.to_pylist() == [{"Order_ID": 1, "Net_EUR": 2, "x_y": 4}]
    new = form.decoder(RowSchema((), evolves=True), tolerant=True, fast=False)
    assert b'"Order_ID":1,"Net_EUR":2,"x y":3,"x_y":4' in new.as_lines(piece)

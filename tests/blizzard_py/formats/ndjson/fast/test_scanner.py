"""The integration of the fast path: loading, limits, switching it off, and failures."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
import wasmtime

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.formats.ndjson import parse
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.fast import layout, sandbox, scanner
from blizzard_py.formats.ndjson.fast.sandbox import Broken, Bytes, Machine, SandboxedProgram
from blizzard_py.formats.ndjson.fast.scanner import PAUSE, Scanner
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.job import FieldSpec
from tests.blizzard_py.formats.ndjson.fast import build
from tests.blizzard_py.formats.ndjson.fast.differential import Pair, comparable
from tests.blizzard_py.formats.ndjson.fast.nasty import Chunk
from tests.support.ingest_job_harness import specs

FIELDS = specs(id="int64", s="string")
LINE = b'{"id":%d,"s":"text"}\n'


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a process that has not compiled anything."""
    sandbox.compiled.cache_clear()
    scanner.scanner.cache_clear()
    yield
    sandbox.compiled.cache_clear()
    scanner.scanner.cache_clear()


def compare(data: bytes, fields: tuple[FieldSpec, ...] = FIELDS) -> tuple[int, int]:
    """Rows that were certain, and lines that were handed over."""
    tally = Pair().compare(Chunk(fields, "ignore", tolerant=True, data=data))
    return tally.certain, tally.handed_over


@pytest.mark.usefixtures("fresh")
def test_lines_are_read_without_it_if_it_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b", "c"):
            parser = LineParser(RecordSchema(specs(id="int64", **{name: "string"})))
            assert parser.parse(LINE % 1).table.num_rows == 1
    [record] = caplog.records
    assert "the fast path cannot be loaded" in record.getMessage()


def test_parser_skips_the_scanner_when_fast_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(parse, "scanner", never)
    assert LineParser(RecordSchema(FIELDS), fast=False).parse(LINE % 1).table.num_rows == 1
    with pytest.raises(AssertionError):
        LineParser(RecordSchema(FIELDS))


NESTED = (
    *FIELDS,
    FieldSpec("place", "struct", nullable=True, children=specs(city="string", code="int64")),
    FieldSpec("tags", "list", nullable=True, children=specs(element="string")),
    FieldSpec("counts", "map", nullable=True, children=specs(value="int64")),
)
NEST = (
    b'{"id":%d,"s":"longer text than what is nested, with room for more of it, and some more",'
    b'"place":{"city":"x","code":7},"tags":["a", null],"counts":{"b" : 2}}\n'
)


@pytest.fixture
def never_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_parser: LineParser, chunk: bytes) -> None:
        raise AssertionError(chunk[:200])

    monkeypatch.setattr(LineParser, "_parse_all", refused)


def is_tried_next(parser: LineParser) -> bool:
    """Return whether the next chunk will be tried."""
    found = parser._scanner  # noqa: SLF001  # no other way to see it
    return found is not None and found._pause == 0  # noqa: SLF001  # see above


@pytest.fixture
def nested(fresh: None) -> LineParser:  # noqa: ARG001  # a scanner that nobody has made pause
    return LineParser(RecordSchema(NESTED), tolerant=True)


@pytest.mark.usefixtures("never_exact")
def test_only_the_text_of_nested_columns_is_read_twice(
    nested: LineParser,
) -> None:
    parsed = nested.parse(NEST % 1 + LINE % 2 + b'{"id":3,"s":"x","place":null,"tags":[]}\n' * 2)
    assert parsed.table.select(["place", "tags", "counts"]).to_pylist() == [
        {"place": {"city": "x", "code": 7}, "tags": ["a", None], "counts": [("b", 2)]},
        {"place": None, "tags": None, "counts": None},
        *[{"place": None, "tags": [], "counts": None}] * 2,
    ]


def test_chunks_of_which_a_part_is_nested_are_tried(nested: LineParser) -> None:
    nested.parse(NEST % 1 * 5)
    assert is_tried_next(nested)


@pytest.mark.usefixtures("never_exact")
def test_scanner_reports_unexpected_fields_in_structs(nested: LineParser) -> None:
    line = b'{"id":1,"s":"%s","more":1,"place":{"city":"x","street":"y"}}\n' % (b"x" * 99)
    parsed = nested.parse(line)
    assert parsed.unexpected == {"more", "place.street"}


@pytest.mark.usefixtures("never_exact", "fresh")
def test_scanner_captures_unexpected_fields_in_structs() -> None:
    parser = LineParser(RecordSchema(NESTED, "capture"), tolerant=True)
    parsed = parser.parse(NEST % 1 + b'{"id":2,"s":"x","place":{"street":"y"}}\n')
    assert parsed.table["_rescued"].to_pylist() == [None, '{"place":{"street":"y"}}']


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b'{"tags":"text"}', "tags"), (b'{"place":[]}', "place"), (b'{"counts":{"a":"x"}}', "counts")],
)
def test_a_nested_value_of_another_type_has_the_exact_verdict(
    nested: LineParser, value: bytes, reason: str
) -> None:
    data = NEST % 1 + b'{"id":2,"s":"x",' + value[1:] + b"\n" + NEST % 3
    exact = LineParser(RecordSchema(NESTED), tolerant=True, fast=False)
    parsed = nested.parse(data)
    assert comparable(parsed) == comparable(exact.parse(data))
    [bad] = parsed.bad
    assert reason in bad.reason
    assert not is_tried_next(nested)


@pytest.mark.usefixtures("fresh")
def test_an_unexpected_field_in_a_struct_fails_its_line_alone() -> None:
    parser = LineParser(RecordSchema(NESTED, "fail"), tolerant=True)
    parsed = parser.parse(NEST % 1 + b'{"id":2,"s":"x","place":{"street":"y"}}\n' + NEST % 3)
    assert parsed.rows_at.tolist() == [0, 2]
    assert "place.street" in parsed.bad[0].reason


def test_chunks_that_are_nearly_all_nested_are_not_tried(nested: LineParser) -> None:
    line = b'{"id":1,"s":"","tags":[%s]}\n' % b",".join([b'"text"'] * 50)
    assert nested.parse(line * 9).table.num_rows == 9
    assert not is_tried_next(nested)
    assert nested.parse(line).table["tags"].to_pylist() == [["text"] * 50]


@pytest.mark.usefixtures("fresh")
def test_long_names_of_nested_columns_are_not_in_each_line() -> None:
    fields = (
        *FIELDS,
        *(
            FieldSpec(f"{number}".ljust(2100, "x"), "list", True, specs(element="int64"))
            for number in range(8)
        ),
    )
    parser = LineParser(RecordSchema(fields), tolerant=True)
    assert parser.parse(b'{"id":1}\n' * 130_000).table.num_rows == 130_000
    assert not is_tried_next(parser)


@pytest.mark.usefixtures("fresh")
def test_scanner_is_skipped_after_a_chunk_of_long_lines() -> None:
    fields = tuple(FieldSpec(f"c{n}", "string", nullable=True) for n in range(1000))
    parser = LineParser(RecordSchema(fields), tolerant=True)
    data = b'{"c1":"%s"}\n' % (b"x" * 20_000) * 90
    assert parser.parse(data).table.num_rows == 90
    assert not is_tried_next(parser)


@pytest.mark.parametrize(
    "child",
    [
        FieldSpec("a", "date", True),
        FieldSpec("a", "float32", True),
        FieldSpec("a", "decimal", True, (), 9, 2),
        FieldSpec("a", "json", True),
    ],
    ids=lambda spec: spec.type,
)
def test_pieces_put_together_have_the_same_buffers(child: FieldSpec) -> None:
    value = b'"2024-01-01"' if child.type == "date" else b"1"
    fields = (FieldSpec("v", "struct", True, (child,)), *specs(t="date"))
    good = b'{"v":{"a":%s},"t":"2024-01-01"}\n' % value
    for odd in (b'{"v":null,"t":"2024-02-30"}\n', b'{"v":null,"\\u0074":"2024-01-01"}\n'):
        compare(good * 20 + odd + good * 20, fields)
        tables = [
            LineParser(RecordSchema(fields), tolerant=True, fast=fast).parse(odd + good * 20).table
            for fast in (True, False)
        ]
        cut = [pa.concat_tables([t.slice(0, 9), t.slice(9)]).combine_chunks() for t in tables]
        assert cut[0].nbytes == cut[1].nbytes


@pytest.mark.parametrize("unexpected", ["ignore", "capture", "fail"])
def test_nested_rows_next_to_left_lines_equal_the_exact_path(
    unexpected: UnexpectedFields,
) -> None:
    data = b"".join(
        (NEST % n) + (b'{"id":1e1,"tags":["late"]}\n' if n % 7 == 0 else b"\n") for n in range(50)
    )
    for rows in (data, data + b'{"id":1,"place":{"code":2,"x":1}}\n'):
        Pair().compare(Chunk(NESTED, unexpected, tolerant=True, data=rows))


def test_a_schema_without_room_has_no_fast_path() -> None:
    many = tuple(FieldSpec(f"c{n}", "int64", nullable=True) for n in range(1025))
    assert scanner.scanner(many, "ignore") is None
    assert scanner.scanner(many[:-1], "ignore") is not None
    long = (
        FieldSpec("n" * (1 << 16), "int64", nullable=True),
        FieldSpec("a", "int64", True),
    )  # nullable
    assert scanner.scanner(long, "ignore") is None


def test_a_chunk_larger_than_the_window_is_one_table() -> None:
    data = b"".join(LINE % n for n in range(400_000))
    assert len(data) > 2 * layout.WINDOW_BYTES
    assert compare(data) == (400_000, 0)


def test_a_line_longer_than_the_window_is_handed_over() -> None:
    long = b'{"id":1,"s":"' + b"x" * layout.WINDOW_BYTES + b'"}\n'
    assert compare(LINE % 1 + long + LINE % 2 + long) == (2, 2)


def test_columns_that_are_full_begin_another_piece_or_hand_over() -> None:
    # 300 columns of text have some 100 kB of room each.
    fields = tuple(FieldSpec(f"c{n}", "string", nullable=True) for n in range(300))
    data = b'{"c1":"%s"}\n' % (b"x" * 1500) * 400
    assert compare(data, fields) == (400, 0)
    assert compare(data + b'{"c1":"%s"}\n' % (b"x" * 200_000) + data, fields) == (800, 1)


def test_more_rows_than_there_is_room_for_are_several_pieces() -> None:
    fields = tuple(FieldSpec(f"c{n}", "decimal", True, (), 38, 2) for n in range(300))  # nullable
    assert compare(b"{}\n" * 20_000, fields) == (20_000, 0)
    assert compare(b"{}\n" * 600_000) == (600_000, 0)


def test_more_left_lines_than_fit_make_several_pieces() -> None:
    assert compare((LINE % 1 + b'{"id":1e3}\n\n') * 40_000, specs(id="float64")) == (40_000, 40_000)


def test_where_most_is_handed_over_the_next_chunks_are_not_tried() -> None:
    program = sandbox.compiled()
    assert program is not None
    found = Scanner(program, FIELDS, "ignore")
    assert found.scan(b'{"id":1e3}\n' * 9, utf8=True) is not None
    assert [found.scan(LINE % 1, utf8=True) for _ in range(PAUSE)] == [None] * PAUSE
    assert found.scan(LINE % 1, utf8=True) is not None


class Liar:
    """A machine whose answer, counts or offsets are spoilt by what it was given."""

    def __init__(self, machine: Machine, where: str, at: int, value: int) -> None:
        self._machine = machine
        self._spoilt = where, at, value

    def call(self, name: str, *arguments: int) -> int:
        answer = self._machine.call(name, *arguments)
        where, at, value = self._spoilt
        if name != "scan" or where == "answer":
            return value if name == "scan" else answer
        if where == "offsets":
            offsets = int(self.buffer("schema", 64).view("<u4")[7])  # `data` of the first field
            self.buffer("cells", offsets + 64)[offsets:].view("<u4")[at] = value
        else:
            self.buffer(where, 64).view("<u4")[at] = value
        return answer

    def buffer(self, name: str, size: int) -> Bytes:
        return self._machine.buffer(name, size)


@pytest.mark.parametrize(
    ("where", "at", "value"),
    [
        ("answer", 0, 0),
        ("answer", 0, 2**32 - 1),
        ("found", 0, 2**31),
        ("found", 1, 1),
        ("found", 2, 2**31),
        ("offsets", 0, 7),
        ("offsets", 1, 2**31),
        ("offsets", 2, 2**30),
    ],
)
def test_scanner_fails_on_impossible_program_output(
    caplog: pytest.LogCaptureFixture, where: str, at: int, value: int
) -> None:
    program = sandbox.compiled()

    class FaultyProgram:
        def machine(self) -> Machine:
            return Liar(program.machine(), where, at, value)

    lying = Scanner(FaultyProgram(), specs(s="string"), "ignore")
    with caplog.at_level(logging.WARNING):
        assert lying.scan(b'{"s":"a"}\n{"s":"b"}\n', utf8=True) is None
    assert "the fast path has failed" in caplog.text


def test_a_call_that_the_sandbox_ends_is_broken() -> None:
    module = wasmtime.wat2wasm(
        '(module (memory (export "memory") 1) (global (export "found") i32 (i32.const 0))'
        ' (func (export "scan") (result i32) (i32.load (i32.const 70000))))'
    )
    machine = SandboxedProgram(wasmtime, bytes(module)).machine()
    with pytest.raises(Broken, match="out of bounds"):
        machine.call("scan")


def test_bytes_that_are_no_program_are_no_fast_path(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.raises(wasmtime.WasmtimeError):
        SandboxedProgram(wasmtime, tmp_path_factory.mktemp("x").name.encode())


PROGRAM = """
import os, sys
from tests.blizzard_py.formats.ndjson.fast.test_scanner import FIELDS, LINE
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser

def rows():
    parser = LineParser(RecordSchema(FIELDS))
    assert parser._scanner is not None
    return parser.parse(LINE % 1 * 1000).table.num_rows
"""


def run(program: str, limit: int | None = None) -> None:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=limited,  # no threads here
        timeout=120,
        check=True,
    )


def test_a_fork_of_a_process_that_has_compiled_compiles_as_well() -> None:
    run(
        """
assert rows() == 1000
child = os.fork()
if not child:
    from blizzard_py.formats.ndjson.fast import sandbox, scanner
    ok = rows() == 1000
    scanner.scanner.cache_clear(); sandbox.compiled.cache_clear()
    os._exit(0 if ok and rows() == 1000 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_a_limited_address_space_is_enough() -> None:
    run("assert rows() == 1000\n", limit=3 << 30)


def test_the_table_does_not_depend_on_the_path() -> None:
    data = b"".join((LINE % n) + (b'{"id":1e1}\n' if n % 7 == 0 else b"\n") for n in range(100))
    fast, exact = (LineParser(RecordSchema(FIELDS), tolerant=True, fast=f) for f in (True, False))
    assert comparable(fast.parse(data)) == comparable(exact.parse(data))


def test_the_artefact_has_the_sizes_that_the_layout_has() -> None:
    text = build.SOURCE.read_text()
    for line in (
        "WINDOW = 4 << 20", "CELLS = 24 << 20", "CHARS = 32 << 20", "ROWS = 1 << 18",
        "LEFT = 1 << 14", "FIELDS = 1024", "NAMES = 1 << 16",
    ):  # fmt: skip
        assert line in text
    assert layout.WINDOW_BYTES == 4 << 20

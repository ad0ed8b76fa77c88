"""What surrounds the fast path: how it is loaded, bounded, switched off, and what if it fails."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
import wasmtime

from blizzard_py.job import FieldSpec
from blizzard_py.kernels.decode import parse
from blizzard_py.kernels.decode.columns import RecordSchema
from blizzard_py.kernels.decode.parse import LineParser
from blizzard_py.kernels.fast import layout, sandbox, scanner
from blizzard_py.kernels.fast.sandbox import Broken, Bytes, Machine, SandboxedProgram
from blizzard_py.kernels.fast.scanner import PAUSE, Scanner
from tests.blizzard_py.kernels.fast import build
from tests.blizzard_py.kernels.fast.differential import Pair, told
from tests.blizzard_py.kernels.fast.nasty import Chunk
from tests.support.ingest_world import specs

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
def test_where_it_cannot_be_loaded_lines_are_read_without_it_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b", "c"):
            parser = LineParser(RecordSchema(specs(id="int64", **{name: "string"})))
            assert parser.parse(LINE % 1).table.num_rows == 1
    [record] = caplog.records
    assert "the fast path cannot be loaded" in record.getMessage()


def test_it_is_not_asked_where_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(parse, "scanner", never)
    assert LineParser(RecordSchema(FIELDS), fast=False).parse(LINE % 1).table.num_rows == 1
    with pytest.raises(AssertionError):
        LineParser(RecordSchema(FIELDS))


@pytest.mark.parametrize("kind", ["struct", "list", "map"])
def test_nested_columns_have_no_fast_path(kind: str) -> None:
    inner = specs(a="int64")
    nested = FieldSpec("n", kind, nullable=True, children=inner)  # type: ignore[arg-type]
    assert scanner.scanner((*FIELDS, nested), "ignore") is None
    assert scanner.scanner(FIELDS, "ignore") is not None


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
    data = b"".join(b'{"c1":"%s"}\n' % (b"x" * 60_000) for _ in range(40))
    assert compare(data, fields) == (40, 0)
    assert compare(data + b'{"c1":"%s"}\n' % (b"x" * 200_000) + data, fields) == (80, 1)


def test_more_rows_than_there_is_room_for_are_several_pieces() -> None:
    fields = tuple(FieldSpec(f"c{n}", "decimal", True, (), 38, 2) for n in range(300))  # nullable
    assert compare(b"{}\n" * 20_000, fields) == (20_000, 0)
    assert compare(b"{}\n" * 600_000) == (600_000, 0)


def test_more_lines_than_can_be_handed_over_at_once_are_several_pieces() -> None:
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
def test_what_cannot_be_is_not_given_to_arrow(
    caplog: pytest.LogCaptureFixture, where: str, at: int, value: int
) -> None:
    program = sandbox.compiled()
    assert program is not None

    class Lying:
        def machine(self) -> Machine:
            return Liar(program.machine(), where, at, value)

    lying = Scanner(Lying(), specs(s="string"), "ignore")
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
from tests.blizzard_py.kernels.fast.test_scanner import FIELDS, LINE
from blizzard_py.kernels.decode.columns import RecordSchema
from blizzard_py.kernels.decode.parse import LineParser

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
    from blizzard_py.kernels.fast import sandbox, scanner
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
    assert told(fast.parse(data)) == told(exact.parse(data))


def test_the_artefact_has_the_sizes_that_the_layout_has() -> None:
    text = build.SOURCE.read_text()
    for line in (
        "WINDOW = 4 << 20", "CELLS = 24 << 20", "CHARS = 32 << 20", "ROWS = 1 << 18",
        "LEFT = 1 << 14", "FIELDS = 1024", "NAMES = 1 << 16",
    ):  # fmt: skip
        assert line in text
    assert layout.WINDOW_BYTES == 4 << 20

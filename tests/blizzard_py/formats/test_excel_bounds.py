"""Hostile and damaged workbooks: limits of memory and time, and damage at every byte."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blizzard_py.formats.excel import records, sheet, workbook
from blizzard_py.formats.names import format_of
from blizzard_py.job import RowSchema
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from tests.support.ingest_job_harness import specs
from tests.support.memory_file import MemoryFile
from tests.support.workbooks import (
    SHEET,
    Written,
    failure,
    inline,
    named,
    numbered,
    options,
    row,
)

ID = specs(id="int64")
ONE = named("id") + row('<c r="A2"><v>1</v></c>', number=2)


def test_too_many_cells_fail_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "EXCEL_CELLS", 100)
    assert "more than 100 cells; split it" in failure(bytes(Written(ONE + row("<c/>" * 99))))


def test_one_cell_far_away_costs_nothing() -> None:
    far = row('<c r="XFD1048576"><v>5</v></c>', number=1_048_576)
    began = time.process_time()
    rows, _ = numbered(bytes(Written(ONE + far)), specs(id="int64", column_XFD="int64"))
    assert [at for at, _ in rows] == [2, 1_048_576]
    assert rows[1][1] == {"id": None, "column_XFD": 5}
    assert time.process_time() - began < 5


def test_a_wide_sheet_is_read() -> None:
    cells = "".join("<c><v>1</v></c>" for _ in range(16_384))
    rows, _ = numbered(bytes(Written(named("id") + row(cells) * 9)), ID)
    assert [found["id"] for _, found in rows] == [1] * 9


@pytest.mark.parametrize("unexpected", ["ignore", "capture"])
def test_a_wide_header_costs_its_rows_nothing(unexpected: str) -> None:
    names = [f"n{at}" for at in range(16_000)]
    cells = row("<c><v>1</v></c>") * 1999 + row(inline("x"))
    data = bytes(Written(named("id", *names) + cells))
    began = time.process_time()
    rows, bad = numbered(data, ID, unexpected_fields=unexpected)
    assert (len(rows), list(bad)) == (1999, [2001])
    assert time.process_time() - began < 8  # it was 20


def test_a_row_that_is_too_long_is_a_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sheet, records):
        monkeypatch.setattr(module, "EXCEL_ROW_BYTES", 1000)
    long = inline("x" * 600)
    texts = f"<si><t>{'y' * 1001}</t></si>"
    shared = '<c t="s"><v>0</v></c>'
    rows = ONE + row(long, long) + row(inline("4")) + row(shared) + row(inline("z" * 5000))
    found, bad = numbered(bytes(Written(rows + row(inline("7")), texts)), ID)
    assert [at for at, _ in found] == [2, 4, 7]
    assert bad == dict.fromkeys((3, 5, 6), "longer than 1,000 characters")
    assert "its header has more than 1,000" in failure(bytes(Written(row(long, long))))


def test_shared_texts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "EXCEL_TEXT_BYTES", 1 << 20)
    many = f"<si><t>{'x' * 1000}</t></si>" * 1100
    assert "shared texts of more than 1 MiB" in failure(bytes(Written(ONE, many)))
    long = f"<si><t>{'x' * (2 << 20)}</t></si>"
    assert "a text of more than 1 MiB" in failure(bytes(Written(ONE, long)))
    monkeypatch.setattr(workbook, "EXCEL_CELLS", 100)
    assert "or more than 100" in failure(bytes(Written(ONE, "<si/>" * 101)))


def test_other_parts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "EXCEL_PART_BYTES", 100_000)
    styles = '<cellXfs><xf numFmtId="0"/></cellXfs>' + " " * 100_000
    reason = failure(bytes(Written(ONE, styles=styles)))
    assert reason == "the part 'xl/styles.xml' has more than 100,000 bytes"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<a>" * 100_000, "elements of more than 64 levels"),
        (f"<a b='{'x' * (3 << 20)}'/>", "a tag of more than 1,048,576 bytes"),
        ("<!--" + "x" * (3 << 20) + "-->", "a tag of more than 1,048,576 bytes"),
        ("".join(f"<a{at}/>" for at in range(60_000)), "more than 20,000 names"),
        ("<a>&lol;</a>", "undefined entity"),
        ("\0", "is damaged"),
    ],
)
def test_odd_xml_is_refused(content: str, reason: str) -> None:
    began = time.process_time()
    assert reason in failure(bytes(Written(content)))
    assert reason in failure(bytes(Written(ONE, content)))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "dtd",
    [
        '<!DOCTYPE a [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd">',
    ],
)
def test_dtds_are_refused(dtd: str) -> None:
    assert f"the part {SHEET!r} has a DTD" in failure(bytes(Written(ONE, before=dtd)))


def test_a_bomb_is_stopped_by_the_size_of_the_file() -> None:
    bomb = bytes(Written(named("id") + " " * (200 << 20)))
    text = f"<si><t>{'x' * 30_000}</t></si>"
    repeated = bytes(Written(named("id") + row('<c t="s"><v>0</v></c>') * 20_000, text))
    for data in (bomb, repeated):
        file = MemoryFile(data, expansion=Expansion(len(data), 256))
        with pytest.raises(FileFailed, match="more than 256 times") as caught:
            list(format_of(options()).pieces(file, RowSchema(ID)))
        assert caught.value.stage == "decompress"


_HOSTILE = """
import resource, sys
from pathlib import Path
from tests.support.memory_file import MemoryFile
from tests.support.workbooks import options
from blizzard_py.formats.names import format_of
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.expansion import Expansion
schema = RowSchema((FieldSpec("id", "int64", nullable=True),))
form = format_of(options())
decoder = form.decoder(schema, tolerant=True, fast=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = Path(sys.argv[1]).read_bytes()
try:
    for piece in form.pieces(MemoryFile(data, expansion=Expansion(1 << 30, 256)), schema):
        decoder.decode(piece)
except FileFailed as error:
    print(error.reason)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("shape", ["texts", "small texts", "one text", "numbers", "names", "wide"])
def test_memory_is_bounded_whatever_a_workbook_holds(tmp_path: Path, shape: str) -> None:
    rows, texts = ONE, ""
    if shape == "texts":
        texts = f"<si><t>{'x' * 1000}</t></si>" * 200_000
    elif shape == "small texts":
        texts = "<si><t>x</t></si>" * 1_000_000
    elif shape == "one text":
        texts = f"<si><t>{'x' * (8 << 20)}</t></si>"
        rows = named("id") + row('<c t="s"><v>0</v></c>') * 32
    elif shape == "numbers":
        rows = named("id") + "".join(
            row(f"<c><v>{at}{'1' * (8 << 20)}</v></c>") for at in range(32)
        )
    elif shape == "names":
        rows = named("id") + "".join(f"<a{at} b{at}='1'/>" for at in range(300_000))
    else:
        rows = named("id") + row("<c><v>1</v></c>" * 16_384) * 40
    (tmp_path / "a.xlsx").write_bytes(bytes(Written(rows, texts)))
    found = subprocess.run(  # our own module
        [sys.executable, "-c", _HOSTILE, str(tmp_path / "a.xlsx")],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert int(found.stdout.split()[-1]) < 200, found.stdout


def test_damage_at_any_byte_gives_the_rows_or_refuses_the_file() -> None:
    texts = "<si><t>one</t></si><si><t>two</t></si>"
    cells = ['<c t="s"><v>0</v></c>', '<c s="1"><v>45418</v></c>']
    good = bytes(Written(named("s", "d") + row(*cells) + row('<c t="s"><v>1</v></c>'), texts))
    fields = specs(s="string", d="date")
    expected = numbered(good, fields)
    assert len(expected[0]) == 2
    refused = 0
    for at, bit in itertools.product(range(len(good)), (0, 5)):
        data = bytearray(good)
        data[at] ^= 1 << bit
        try:
            assert numbered(bytes(data), fields) == expected, f"byte {at}"
        except FileFailed:
            refused += 1
    assert refused > len(good)
    for end in range(len(good)):
        with pytest.raises(FileFailed):
            numbered(good[:end], fields)

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.formats.ndjson.parse import row_shape
from blizzard_py.job import FieldSpec
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.portions import RowShape, portions
from tests.support.ingest_job_harness import specs

LIST = RowShape(columns=1, inner=10)


def found(data: bytes, shape: RowShape, most: int, line: int = 1000) -> list[Any]:
    return list(portions([Piece(data, 7)], shape, most, line))


def test_chunks_of_many_rows_are_cut() -> None:
    data = b"{}\n" * 10
    assert found(data, RowShape(4), most=40) == [Piece(data, 7, 40)]
    assert found(data, RowShape(4), most=39) == [
        Piece(b"{}\n" * 9, 7, 36),
        Piece(b"{}\n", 7 + 27, 4),
    ]
    assert [len(item.data) for item in found(data, RowShape(100), most=99)] == [3] * 10


def test_a_line_of_too_many_values_is_passed_over() -> None:
    wide = b'{"l":[%s]}' % b",".join([b"{}"] * 200)
    data = b'{"l":[{}]}\n' + wide + b"\n" + b"{}\n"
    first, long, last = found(data, LIST, most=100, line=1000)
    assert (first, last) == (
        Piece(b'{"l":[{}]}\n', 7, 21),
        Piece(b"{}\n", len(data) + 4, 11),
    )
    assert long == RefusedRecord(7 + 11, len(wide), wide, "may become more than 1,000 values")
    assert found(data, RowShape(1), most=100) == [Piece(data, 7, 3)]


def test_a_line_that_was_passed_over_already_stays_so() -> None:
    item = RefusedRecord(3, 9, b"x", "long")
    assert list(portions([item], RowShape(1))) == [item]


@given(
    lines=st.lists(st.sampled_from([b"", b"{}", b'{"l":[{},{}]}', b"{" * 30, b"x"]), max_size=40),
    most=st.integers(1, 200),
    inner=st.sampled_from([0, 3]),
)
def test_portions_are_the_chunk(lines: list[bytes], most: int, inner: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    items = found(data, RowShape(2, inner), most, line=80)
    at, whole = 7, b""
    for item in items:
        assert item.offset == at
        piece = item.data if isinstance(item, Piece) else item.head + b"\n"
        at += len(piece)
        whole += piece
        if isinstance(item, Piece):
            cells = piece.count(b"\n") * 2 + piece.count(b"{") * inner
            assert item.cells == cells
            assert cells <= most or piece.count(b"\n") == 1
        else:
            assert item.length == len(item.head)
    assert whole == data


STRUCT = FieldSpec("s", "struct", True, specs(a="int64", b="string", c="json"))


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        (specs(id="int64"), RowShape(16)),
        (specs(**{f"c{n}": "int64" for n in range(30)}), RowShape(30)),
        (specs(**{f"c{n}": "json" for n in range(30)}), RowShape(240)),
        ((FieldSpec("l", "list", True, specs(e="int64")),), RowShape(16)),
        ((FieldSpec("l", "list", True, (STRUCT,)),), RowShape(16, 10)),
        (
            (STRUCT, FieldSpec("s", "struct", True, (FieldSpec("m", "map", True, (STRUCT,)),))),
            RowShape(18, 10),
        ),
    ],
)
def test_row_shape_is_derived_from_the_columns(
    fields: tuple[FieldSpec, ...], shape: RowShape
) -> None:
    assert row_shape(fields) == shape

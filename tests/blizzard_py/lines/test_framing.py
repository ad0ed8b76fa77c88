from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.limits import RAW_BYTES
from blizzard_py.lines.framing import Piece, RefusedRecord, framed

BOM = b"\xef\xbb\xbf"
REASON = "longer than 1000 bytes"


def data_of(items: Iterable[Piece | RefusedRecord]) -> list[bytes]:
    """The data of chunks, among which there is no line above the limit."""
    chunks = list(items)
    assert all(isinstance(chunk, Piece) for chunk in chunks)
    return [chunk.data for chunk in chunks if isinstance(chunk, Piece)]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in blocks of the given sizes, over and over."""
    blocks, start, turn = [], 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        blocks.append(data[start : start + size])
        start, turn = start + size, turn + 1
    return blocks


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=40),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
    st.integers(1, 200),
    st.booleans(),
)
def test_chunks_are_the_lines_and_end_at_line_ends(
    lines: list[bytes], sizes: list[int], target: int, final_newline: bool
) -> None:
    data = b"\n".join(lines) + (b"\n" if final_newline else b"")
    chunks = data_of(framed(cut(data, sizes), target=target, limit=10**6))
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    expected = data.removeprefix(BOM)
    if expected and not expected.endswith(b"\n"):
        expected += b"\n"
    assert b"".join(chunks) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 60))
def test_a_byte_order_mark_is_dropped_once(sizes: list[int], target: int) -> None:
    data = BOM + b'{"a":1}\n' + BOM + b"x\n"
    # Blocks of real streams are longer than a mark.
    chunks = data_of(framed(cut(data, [size + 8 for size in sizes]), target=target))
    assert b"".join(chunks) == data[3:]


def test_chunks_have_about_the_target_size() -> None:
    blocks = [b'{"a":1}\n' * 128] * 64  # 1 KiB each
    chunks = data_of(framed(blocks, target=8 << 10))
    assert [len(chunk) for chunk in chunks] == [8 << 10] * 8


def test_a_long_line_grows_its_chunk() -> None:
    long_line = b"x" * 5000 + b"\n"
    chunks = data_of(framed(cut(b"a\n" + long_line + b"b\n", [100]), target=200, limit=6000))
    assert b"".join(chunks) == b"a\n" + long_line + b"b\n"


@pytest.mark.parametrize("block", [10, 100, 900])
@pytest.mark.parametrize("end", [b"", b"\n", b"\nc\n" * 200, b"\n" + b"y" * 3000 + b"\nz"])
def test_a_line_above_the_limit_is_passed_over(block: int, end: bytes) -> None:
    data = BOM + b"a\nb\n" + b"x" * 2000 + end
    items = list(framed(cut(data, [block]), target=500, limit=1000))
    assert items[0] == Piece(b"a\nb\n", 3)
    assert isinstance(items[1], RefusedRecord)
    assert items[1] == RefusedRecord(7, 2000, items[1].head, REASON)
    assert 1000 < len(items[1].head) <= 2000
    # What is left out is exactly what long lines say they are.
    seen = bytearray(data)
    for item in items:
        held = item.data if isinstance(item, Piece) else b"?" * item.length
        if isinstance(item, Piece):
            assert data[item.offset : item.offset + len(held)] in (held, held[:-1])
        seen[item.offset : item.offset + len(held)] = b"." * len(held)
    assert set(bytes(seen).removeprefix(BOM).replace(b"\n", b"")) <= {ord(".")}


def test_a_first_line_above_the_limit_starts_behind_the_mark() -> None:
    items = list(framed([BOM + b"x" * 1500, b"x" * 500 + b"\na"], target=500, limit=1000))
    assert items == [RefusedRecord(3, 2000, b"x" * 1500, REASON), Piece(b"a\n", 2004)]


def test_of_a_line_above_the_limit_only_the_start_is_held() -> None:
    blocks = itertools.chain([b"a\n"], itertools.repeat(b"x" * 1000, 500), [b"\nb\n"])
    items = list(framed(blocks, limit=100_000))
    assert [type(item) for item in items] == [Piece, RefusedRecord, Piece]
    assert isinstance(items[1], RefusedRecord)
    assert (items[1].length, len(items[1].head)) == (500_000, RAW_BYTES)


def test_nothing_in_nothing_out() -> None:
    assert list(framed([])) == []
    assert list(framed([BOM])) == []

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.kernels.framing import LineTooLong, framed

BOM = b"\xef\xbb\xbf"


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
    chunks = list(framed(cut(data, sizes), target=target, limit=10**6))
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    expected = data.removeprefix(BOM)
    if expected and not expected.endswith(b"\n"):
        expected += b"\n"
    assert b"".join(chunks) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 60))
def test_a_byte_order_mark_is_dropped_once(sizes: list[int], target: int) -> None:
    data = BOM + b'{"a":1}\n' + BOM + b"x\n"
    # Blocks of real streams are longer than a mark.
    chunks = list(framed(cut(data, [size + 8 for size in sizes]), target=target))
    assert b"".join(chunks) == data[3:]


def test_chunks_have_about_the_target_size() -> None:
    blocks = [b'{"a":1}\n' * 128] * 64  # 1 KiB each
    chunks = list(framed(blocks, target=8 << 10))
    assert [len(chunk) for chunk in chunks] == [8 << 10] * 8


def test_a_long_line_grows_its_chunk() -> None:
    long_line = b"x" * 5000 + b"\n"
    chunks = list(framed(cut(b"a\n" + long_line + b"b\n", [100]), target=200, limit=6000))
    assert b"".join(chunks) == b"a\n" + long_line + b"b\n"


@pytest.mark.parametrize("block", [10, 100, 5000])
def test_a_line_above_the_limit_fails_after_the_lines_before_it(block: int) -> None:
    data = b"a\nb\n" + b"x" * 2000
    seen: list[bytes] = []
    chunks = framed(cut(data, [block]), target=500, limit=1000)
    with pytest.raises(LineTooLong):
        seen.extend(iter(lambda: next(chunks), None))
    assert b"".join(seen) == b"a\nb\n"


def test_nothing_in_nothing_out() -> None:
    assert list(framed([])) == []
    assert list(framed([BOM])) == []

"""Bodies are unpacked within their limit, and a cut one is not taken for a whole one."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.connections.http.decompression import (
    Damaged,
    TooLong,
    UnknownEncoding,
    body,
    json_body,
)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@given(st.binary(max_size=5000), st.integers(1, 700), st.booleans(), st.booleans())
def test_body_is_complete_for_any_piece_size(
    data: bytes, size: int, packed: bool, twice: bool
) -> None:
    sent = gzip.compress(data) if packed else data
    if packed and twice:
        sent = gzip.compress(data[:100]) + gzip.compress(data[100:])
    assert body(pieces(sent, size), "gzip" if packed else "", len(data)) == data


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 700), st.data())
def test_truncated_gzip_body_raises_damaged(data: bytes, size: int, drawn: st.DataObject) -> None:
    sent = gzip.compress(data)
    cut = drawn.draw(st.integers(1, len(sent) - 1))
    with pytest.raises(Damaged):
        body(pieces(sent[:cut], size), "gzip", 10_000)


def test_broken_gzip_body_raises_damaged() -> None:
    with pytest.raises(Damaged, match="not gzip, as its Content-Encoding says"):
        body([b"no gzip at all"], "gzip", 100)
    with pytest.raises(Damaged, match="is cut or changed"):
        body([gzip.compress(b"x" * 90) + b"\x1f\x8b\x08 and no more"], "gzip", 100)


@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_a_member_may_begin_between_two_pieces(size: int) -> None:
    sent = b"".join(gzip.compress(part) for part in (b"[1,", b"2,", b"3]"))
    assert body(pieces(sent, size), "gzip", 100) == b"[1,2,3]"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_json_body_unpacks_gzip_regardless_of_its_header(size: int) -> None:
    packed = gzip.compress(b"[1]")
    assert json_body(pieces(packed, size), "", 100) == b"[1]"
    assert json_body(pieces(gzip.compress(packed), size), "gzip", 100) == b"[1]"
    assert json_body(pieces(b"[1]", size), "", 100) == b"[1]"
    with pytest.raises(Damaged):
        json_body(pieces(packed[:-1], size), "", 100)


def test_padding_after_the_last_member_is_nothing() -> None:
    assert body([gzip.compress(b"[]"), b"\0\0\0"], "x-gzip", 100) == b"[]"
    assert body([gzip.compress(b"[]") + b"\0\0\0"], "GZIP", 100) == b"[]"


def test_an_empty_body_is_empty() -> None:
    assert body([], "gzip", 1) == b""
    assert body([b""], "identity", 0) == b""


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_the_limit_is_of_what_is_unpacked(encoding: str) -> None:
    sent = gzip.compress(b"x" * 101) if encoding else b"x" * 101
    assert len(body([sent], encoding, 101)) == 101
    with pytest.raises(TooLong):
        body([sent], encoding, 100)


def test_a_bomb_costs_a_megabyte_or_two() -> None:
    bomb = gzip.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(TooLong):
            body(pieces(bomb, 65536), "gzip", 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd", "\x1b[1m"])
def test_other_packings_are_refused(encoding: str) -> None:
    with pytest.raises(UnknownEncoding) as caught:
        body([b"x"], encoding, 100)
    assert "\x1b" not in str(caught.value)

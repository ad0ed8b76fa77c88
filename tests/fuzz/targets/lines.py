"""Framing and decompression of an object's bytes to lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

from blizzard_py.job import JobFile
from blizzard_py.lines.codec_names import ZIP_MAGICS, codec_of
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed
from blizzard_py.lines.framing import Piece, framed
from tests.fuzz.target import Target, hold
from tests.support.memory_store import MemoryStorage
from tests.support.packing import PACKERS

_BOM = b"\xef\xbb\xbf"
_MOST = 64 << 20
_KINDS = tuple(PACKERS)
_HEADER_ONLY = {"unknown header flags set", "header crc mismatch"}


def framing(data: bytes) -> None:
    """Every byte of a stream is in one line, wherever blocks, chunks and limits cut it."""
    if len(data) < 3:
        return
    step, target, limit, body = data[0] % 61 + 1, data[1], data[2] % 97 + 16, data[3:]
    blocks = [body[start : start + step] for start in range(0, len(body), step)]
    at = len(_BOM) if body.startswith(_BOM) else 0
    for piece in framed(iter(blocks), target, limit):
        hold("offsets count every byte", piece.offset == at, (piece, at))
        if isinstance(piece, Piece):
            hold("a chunk ends with a line", piece.data.endswith(b"\n"), piece)
            end = at + len(piece.data)
            hold("a chunk is what was read", (body + b"\n")[at:end] == piece.data, piece)
            longest = max(map(len, piece.data.split(b"\n")))
            hold("a line is not longer than the limit and a block", longest <= limit + step, piece)
            at = end
        else:
            line = body[at : at + piece.length]
            hold("a long line is one line", b"\n" not in line, piece)
            hold("a long line begins as it does", line.startswith(piece.head), piece)
            marked = len(_BOM) if at == len(_BOM) and body.startswith(_BOM) else 0
            hold("a long line is longer than the limit", piece.length + marked > limit, piece)
            hold("a newline follows", body[at + piece.length :][:1] in {b"\n", b""}, piece)
            at += piece.length + 1
    hold("no byte is left out", at >= len(body), (at, len(body)))


def _blocks(name: str, data: bytes) -> bytes | FileFailed:
    store = MemoryStorage()
    store.objects[name] = (data, 0.0)
    found = bytearray()
    try:
        with opened(store, JobFile(name, len(data))) as blocks:
            for block in blocks:
                hold("no block is empty or too large", 0 < len(block) <= BLOCK_BYTES, len(block))
                found += block
                if len(found) > _MOST:
                    break
    except FileFailed as failed:
        hold("the file is at fault, not the store", failed.outcome == "quarantined", failed)
        return failed
    return bytes(found)


def decompression(data: bytes) -> None:
    """Read a stream as its library does, or report damage; a cut stream is damaged."""
    if len(data) < 2:
        return
    (is_made, kind), cut, body = divmod(data[0] % (2 * len(_KINDS)), len(_KINDS)), data[1], data[2:]
    if is_made:
        _made(body, cut, _KINDS[kind])
    elif kind == 0:
        _foreign_gzip(body)
    else:
        _blocks(f"a.{_KINDS[kind]}", body)


def _foreign_gzip(body: bytes) -> None:
    if codec_of(body) != "gzip":
        return
    found = _blocks("a.gz", body)
    if isinstance(found, bytes) and len(found) < _MOST:
        expected = b"".join(_members(body))
        if codec_of(expected) is not None:
            return
        hold("gzip is what zlib makes of it", found.startswith(expected), (found, expected))


def _members(body: bytes) -> Iterator[bytes]:
    while body:
        member = zlib.decompressobj(31)
        try:
            yield member.decompress(body)
            hold("what zlib takes for cut is damaged", member.eof)
        except zlib.error as error:
            # The checksum of the data holds all the same.
            told = str(error).rpartition(": ")[2]
            hold("what zlib takes for damaged is", told in _HEADER_ONLY, error)
            return
        body = member.unused_data.lstrip(b"\0 \t\r\n")


def _made(body: bytes, cut: int, kind: str) -> None:
    """Two members of what the bytes are, whole and cut short."""
    if codec_of(body) is not None or body.startswith(ZIP_MAGICS) or not body:
        return  # two empty streams of Hadoop's are zeros, which may be lost bytes
    half = len(body) // 2
    first, second = PACKERS[kind](body[:half]), PACKERS[kind](body[half:])
    whole = first + second
    hold("what was compressed comes back", _blocks(f"a.{kind}", whole) == body)
    short = whole[: cut * len(whole) // 256]
    # At the end of a member nothing shows that there was another.
    if short and short != first:
        found = _blocks(f"a.{kind}", short)
        hold("what is cut short is damaged", isinstance(found, FileFailed), len(short))


def _framing_seeds() -> Iterator[bytes]:
    yield b"\x05\x10\x08" + _BOM + b'{"a":1}\n{"a":2}\n\n{"aaaaaaaaaaaaaaaaaaa":3}\n{"a":4}'
    yield b"\x3c\x00\x60a\r\nb\n" + b"x" * 200 + b"\ny"
    yield b"\x00\xff\x01" + _BOM + b"\n"
    yield b"\x09\x09\x09" + b"\n" * 30


def _compressed_seeds() -> Iterator[bytes]:
    text = b'{"a":1}\n' * 20
    packed = gzip.compress(text, mtime=0)
    yield b"\0\0" + packed + packed + b"\0\0\0"
    yield b"\0\0" + packed[:-9]
    for number, kind in enumerate(_KINDS):
        yield bytes([number, 0]) + PACKERS[kind](text) * 2
        yield bytes([number, 0]) + PACKERS[kind](b"\0" * 100_000)
        yield bytes([number + len(_KINDS), 0x40]) + text


TARGETS = (
    Target("framing", framing, _framing_seeds, max_bytes=600),
    Target("decompression", decompression, _compressed_seeds),
)

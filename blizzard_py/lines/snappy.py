"""Decompression of snappy: its framing format with checksums, and Hadoop's form without.

The framing format is chunks of at most 64 KiB; the format is at
https://github.com/google/snappy/blob/main/framing_format.txt. Two things are refused that it lets
readers skip, because a changed bit would lose rows silently: chunks of unknown kinds, and padding
that is not zeros.

Hadoop writes the length of a block, then chunks until the block is complete; all lengths have four
bytes. It has no magic number and no checksum, so its name must end with ``.snappy``, and changed
bytes are found only where lengths show them.

Neither has a mark at the end. A stream that ends between two chunks looks complete; its last line
is then almost always cut, which is a bad record.
"""

from __future__ import annotations

from collections.abc import Iterator

import google_crc32c
import pyarrow as pa

from blizzard_py.lines.byte_reader import ByteReader
from blizzard_py.lines.codec_names import SNAPPY
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed, damaged

_FRAME_BYTES = 1 << 16
# Hadoop's default is 256 KiB, with the key io.compression.codec.snappy.buffersize.
_HADOOP_BYTES = 16 << 20
_CHECKSUM_BYTES = 4
_COMPRESSED, _UNCOMPRESSED, _PADDING, _IDENTIFIER = 0x00, 0x01, 0xFE, 0xFF
_LENGTH_BYTES = 5  # of 32 bits, 7 in a byte
_CODEC = pa.Codec("snappy")


def read_snappy(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of limited size; the first bytes decide which of the two forms it is."""
    reader = ByteReader(blocks, _cut())
    return _framed(reader) if reader.ahead(len(SNAPPY)) == SNAPPY else _hadoop(reader)


def begins_hadoop(head: bytes) -> bool:
    """Return whether these can be the first bytes of an object in Hadoop's form."""
    if head[:4] == bytes(4) or len(head) < 8 + _LENGTH_BYTES:
        return head[:1] == b"\0"
    whole, size = _number(head[:4]), _number(head[4:8])
    plain = _plain_bytes(head[8 : 8 + _LENGTH_BYTES])
    return 0 < size <= _most(_HADOOP_BYTES) and 0 <= plain <= min(whole, _HADOOP_BYTES)


def _framed(reader: ByteReader) -> Iterator[bytes]:
    is_empty = True
    while header := reader.take(4):
        kind, size = header[0], int.from_bytes(header[1:], "little")
        if len(header) < 4:
            raise _cut()
        if kind in {_COMPRESSED, _UNCOMPRESSED}:
            is_empty = False
            if block := _chunk(reader, kind, size):
                yield block
        else:
            is_empty |= kind == _IDENTIFIER
            _skip_chunk(reader, kind, size)
    if is_empty:
        raise damaged("snappy", "the stream ends after its identifier")


def _chunk(reader: ByteReader, kind: int, size: int) -> bytes:
    """Return the content of a chunk of the framing format."""
    if not _CHECKSUM_BYTES <= size <= _CHECKSUM_BYTES + _most(_FRAME_BYTES):
        raise damaged("snappy", f"a chunk has {size:,} bytes")
    checksum, block = reader.take_all(_CHECKSUM_BYTES), reader.take_all(size - _CHECKSUM_BYTES)
    if kind == _COMPRESSED:
        block = unpack_snappy(block, _FRAME_BYTES)
    if len(block) > _FRAME_BYTES or _checksum(block) != checksum:
        raise damaged("snappy", "the checksum of a chunk does not match")
    return block


def _skip_chunk(reader: ByteReader, kind: int, size: int) -> None:
    """Pass a chunk without data of the framing format."""
    if kind == _IDENTIFIER:
        if size != len(SNAPPY) - 4 or reader.take_all(size) != SNAPPY[4:]:
            raise damaged("snappy", "a stream identifier does not match")
    elif kind != _PADDING:
        raise damaged("snappy", f"a chunk has the unknown kind {kind:02x}")
    elif reader.take_all(size).strip(b"\0"):
        raise damaged("snappy", "padding is not zeros")


def _hadoop(reader: ByteReader) -> Iterator[bytes]:
    follows_empty = False
    while header := reader.take(4):
        if len(header) < 4:
            raise _cut()
        whole = _number(header)
        # Empty streams have one such length, and some writers end with one. More are lost bytes.
        if not whole and follows_empty:
            raise damaged("snappy", "zeros where a block should be")
        follows_empty = not whole
        while whole:
            size = _number(reader.take_all(4))
            if not 0 < size <= _most(_HADOOP_BYTES):
                raise damaged("snappy", f"a chunk has {size:,} bytes")
            block = unpack_snappy(reader.take_all(size), min(whole, _HADOOP_BYTES))
            whole -= len(block)
            for start in range(0, len(block), BLOCK_BYTES):
                yield block[start : start + BLOCK_BYTES]
            del block  # before the next one is there


def unpack_snappy(data: bytes, limit: int) -> bytes:
    """Return the content of a chunk, of at most ``limit`` bytes."""
    size = _plain_bytes(data)
    if not 0 <= size <= limit:
        raise damaged("snappy", f"a chunk is not snappy, or has more than {limit:,} bytes")
    try:
        return bytes(_CODEC.decompress(data, size, asbytes=True))
    except (OSError, ValueError) as error:
        raise damaged("snappy", str(error)) from error


def _plain_bytes(data: bytes) -> int:
    """Return the decompressed size, with which a chunk begins; -1 if it does not."""
    size = 0
    for place, byte in enumerate(data[:_LENGTH_BYTES]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    return -1


def _most(plain: int) -> int:
    """Return the largest compressed size of so many bytes."""
    return 32 + plain + plain // 6


def _checksum(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _cut() -> FileFailed:
    return damaged("snappy", "the stream ends in the middle of a chunk")

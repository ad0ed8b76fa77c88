"""Streams of each codec with checksums, as common writers make them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Mapping

import google_crc32c
import pyarrow as pa
import zstandard

SNAPPY_IDENTIFIER = b"\xff\x06\0\0sNaPpY"
_MASK = 0xFFFFFFFF
_LZ4_BLOCK = 64 << 10
_HADOOP_BLOCK = 200 << 10
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def gzipped(data: bytes) -> bytes:
    """Without the time in it: cases are named by their bytes, alike in each process."""
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def lz4(data: bytes) -> bytes:
    """Return a frame of independent blocks with a checksum of the content, as the program does."""
    descriptor = bytes([0x64, 0x40])
    parts = [b"\x04\x22\x4d\x18", descriptor, bytes([_xxh32(descriptor) >> 8 & 0xFF])]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        packed = pa.compress(block, "lz4_raw", asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | 1 << 31).to_bytes(4, "little"), block]
    return b"".join([*parts, bytes(4), _xxh32(data).to_bytes(4, "little")])


def snappy(data: bytes) -> bytes:
    """Return the framing format."""
    blocks = [data[start : start + 65536] for start in range(0, len(data), 65536)] or [b""]
    return SNAPPY_IDENTIFIER + b"".join(map(snappy_chunk, blocks))


def snappy_chunk(block: bytes) -> bytes:
    packed = pa.compress(block, "snappy", asbytes=True)
    is_packed = len(packed) < len(block)
    body = snappy_checksum(block) + (packed if is_packed else block)
    return bytes([not is_packed]) + len(body).to_bytes(3, "little") + body


def snappy_checksum(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK).to_bytes(4, "little")


def hadoop_snappy(data: bytes) -> bytes:
    """Return lengths and blocks, as Hadoop and Spark write them."""
    parts = []
    for start in range(0, len(data), _HADOOP_BLOCK):
        block = data[start : start + _HADOOP_BLOCK]
        packed = pa.compress(block, "snappy", asbytes=True)
        parts += [len(block).to_bytes(4, "big"), len(packed).to_bytes(4, "big"), packed]
    return b"".join(parts) or bytes(4)


def _xxh32(data: bytes) -> int:
    """Return the checksum of lz4's frames, with the seed 0."""
    one, two, three, four, five = _PRIMES
    at = 0
    if len(data) >= 16:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while at + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at + 4 * lane : at + 4 * lane + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * two, 13) * one & _MASK
            at += 16
        found = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    else:
        found = five
    found += len(data)
    while at + 4 <= len(data):
        found = _rotate(found + int.from_bytes(data[at : at + 4], "little") * three, 17) * four
        at += 4
    for byte in data[at:]:
        found = _rotate(found + byte * five, 11) * one
    found &= _MASK
    found = (found ^ found >> 15) * two & _MASK
    found = (found ^ found >> 13) * three & _MASK
    return found ^ found >> 16


def _rotate(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> 32 - bits) & _MASK


# By the endings of names, without the dot.
WITH_CHECKSUM: Mapping[str, Callable[[bytes], bytes]] = {
    "gz": gzipped,
    "zst": zstd,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "lz4": lz4,
    "snappy": snappy,
}
# In which changed bytes become rows.
WITHOUT_CHECKSUM: Mapping[str, Callable[[bytes], bytes]] = {
    "hadoop.snappy": hadoop_snappy,
    "plain.lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
    "plain.xz": lambda data: lzma.compress(data, check=lzma.CHECK_NONE, preset=0),
}
PACKERS = {**WITH_CHECKSUM, **WITHOUT_CHECKSUM}

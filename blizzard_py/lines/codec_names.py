"""Names, endings and first bytes of the codecs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

Codec = Literal["gzip", "zstd", "bzip2", "xz", "lz4", "snappy", "zip"]

CODEC_ENDINGS: Mapping[Codec, str] = {
    "gzip": ".gz",
    "zstd": ".zst",
    "bzip2": ".bz2",
    "xz": ".xz",
    "lz4": ".lz4",
    "snappy": ".snappy",
}
# An archive has members, and is not read as one stream.
ZIP_ENDING = ".zip"
# Of the first member, and of an archive without one.
ZIP_MAGICS = (b"PK\3\4", b"PK\5\6")
GZIP = b"\x1f\x8b"
BZIP2 = b"BZh"
XZ = b"\xfd7zXZ\0"
SNAPPY = b"\xff\x06\0\0sNaPpY"
_LZ4 = b"\x04\x22\x4d\x18"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # of lz4 and zstd, after a byte from 50 to 5f
# The digit is the block size. The first block follows, or the end of an empty stream.
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
_MAGICS: Mapping[Codec, bytes] = {
    "gzip": GZIP,
    "zstd": _ZSTD,
    "bzip2": BZIP2,
    "xz": XZ,
    "lz4": _LZ4,
    "snappy": SNAPPY,
}
# So many bytes show each codec.
MAGIC_BYTES = 10


def codec_of(head: bytes) -> Codec | None:
    """Return the codec of a stream that begins with ``head``; None if it is not compressed."""
    after = _skip_frames(head)
    if head.startswith(_LZ4, after):
        return "lz4"
    if after:
        return "zstd"
    if head.startswith(BZIP2):  # which are letters: the file may be text
        return "bzip2" if head[3:4] in b"123456789" and head[4:10] in _BZIP2_BLOCKS else None
    return next((codec for codec, magic in _MAGICS.items() if head.startswith(magic)), None)


def is_cut_magic(head: bytes) -> bool:
    """Return whether a whole object is less than the magic number of a codec."""
    return any(magic.startswith(head) for magic in (*_MAGICS.values(), *ZIP_MAGICS))


def first_blocks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield as many blocks as a magic number needs."""
    size = 0
    while size < MAGIC_BYTES and (block := next(blocks, b"")):
        size += len(block)
        yield block


def _skip_frames(head: bytes) -> int:
    """Return the position after the skippable frames with which ``head`` begins."""
    at = 0
    while head[at + 1 : at + 4] == _SKIPPABLE and head[at] >> 4 == 5:
        at += 8 + int.from_bytes(head[at + 4 : at + 8], "little")
    return at

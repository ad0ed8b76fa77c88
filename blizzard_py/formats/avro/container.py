"""Object container files: header, blocks, codecs, sync markers, all of limited size.

fastavro would do it, but not within limits: a block's codec may make gigabytes of a megabyte. Avro
has no checksum, except in blocks of snappy and xz, and no count of blocks. A changed value or a
file that ends between two blocks cannot be noticed.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from blizzard_core.limits import AVRO_BLOCK_BYTES, AVRO_SCHEMA_BYTES
from blizzard_py.formats.avro.walk import damaged_block, read_long
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.lines.byte_reader import ByteReader
from blizzard_py.lines.codec_names import Codec
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.frame_codecs import read_frames
from blizzard_py.lines.member_codecs import read_members
from blizzard_py.lines.snappy import unpack_snappy

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_VARINT_BYTES = 10
# Of the metadata with the schema.
_HEADER_BYTES = 2 * AVRO_SCHEMA_BYTES
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Header:
    """The schema of a file's records as JSON text, and the codec of its blocks."""

    schema: str
    codec: str


class Container:
    """A file that is read forward. Raises `FileFailed` for damage."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._bytes = ByteReader(file.blocks(), _cut())
        self._sync = b""

    def header(self) -> Header:
        """Return the header; call it first."""
        if (head := self._bytes.take(len(MAGIC))) != MAGIC:
            what = f"begins with {head.hex(' ')}" if head else "is empty"
            raise FileFailed("parse", f"no Avro object container: it {what}")
        found = self._metadata()
        self._sync = self._bytes.take_all(_SYNC_BYTES)
        codec = found.get(b"avro.codec", b"null").decode("utf-8", "replace")
        if codec not in _CODECS:
            known = ", ".join(_CODECS)
            raise FileFailed("decompress", f"the codec {bounded(codec, 40)!r} is none of {known}")
        try:
            return Header(found[b"avro.schema"].decode(), codec)
        except (KeyError, UnicodeDecodeError) as error:
            raise FileFailed("parse", "the Avro header has no schema in UTF-8") from error

    def blocks(self, codec: str) -> Iterator[tuple[int, bytes]]:
        """Yield each block's number of records and their bytes, decompressed."""
        unpack = _CODECS[codec]
        while self._bytes.ahead(1):
            count, size = self._long(), self._long()
            if count < 0 or not 0 <= size <= AVRO_BLOCK_BYTES:
                raise damaged_block(
                    f"{count:,} records in {size:,} bytes, of at most {AVRO_BLOCK_BYTES:,}"
                )
            data = self._bytes.take_all(size)
            if self._bytes.take_all(_SYNC_BYTES) != self._sync:
                raise damaged_block("no sync marker follows it")
            if unpack is not None:
                data = unpack(data)
                self._file.count_unpacked(len(data))
            yield count, data

    def _metadata(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        room = _HEADER_BYTES
        while number := self._long():
            if number < 0:
                self._long()
            for _ in range(abs(number)):
                pair = []
                for _ in range(2):
                    size = self._long()
                    room -= size + 1
                    if size < 0 or room < 0:
                        raise FileFailed(
                            "parse", f"the Avro header has more than {_HEADER_BYTES:,} bytes"
                        )
                    pair.append(self._bytes.take_all(size))
                found.setdefault(*pair)
        return found

    def _long(self) -> int:
        """Return the next number."""
        data = self._bytes.ahead(_VARINT_BYTES)
        if not data:
            raise _cut()
        value, size = read_long(data, 0)
        self._bytes.take(size)
        return value


def _cut() -> FileFailed:
    return FileFailed("parse", "the Avro file ends in the middle of its header or of a block")


def _deflate(data: bytes) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = stream.decompress(data, AVRO_BLOCK_BYTES + 1)
    except zlib.error as error:
        raise damaged_block(f"deflate: {error}") from error
    _check_size(len(found))
    # Old releases of fastavro cut a byte too few from the end of zlib's format.
    rest = zlib.adler32(found).to_bytes(4, "big")
    if not stream.eof or not rest.startswith(stream.unused_data):
        raise damaged_block("not one complete stream of deflate")
    return found


def _snappy(data: bytes) -> bytes:
    if len(data) < _CRC_BYTES:
        raise damaged_block("snappy without a checksum")
    found = unpack_snappy(data[:-_CRC_BYTES], AVRO_BLOCK_BYTES)
    if binascii.crc32(found).to_bytes(_CRC_BYTES, "big") != data[-_CRC_BYTES:]:
        raise damaged_block("the checksum does not match")
    return found


def _streamed(
    read: Callable[[Codec, Iterator[bytes]], Iterator[bytes]], codec: Codec
) -> Callable[[bytes], bytes]:
    def unpack(data: bytes) -> bytes:
        if not data:
            raise damaged_block(f"no bytes of {codec}")
        parts, size = [], 0
        for part in read(codec, iter([data])):
            size += len(part)
            _check_size(size)
            parts.append(part)
        return b"".join(parts)

    return unpack


def _check_size(size: int) -> None:
    if size > AVRO_BLOCK_BYTES:
        raise FileFailed(
            "decompress", f"a block of the Avro file has more than {AVRO_BLOCK_BYTES:,} bytes"
        )


_CODECS: dict[str, Callable[[bytes], bytes] | None] = {
    "null": None,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _streamed(read_frames, "zstd"),
    "bzip2": _streamed(read_members, "bzip2"),
    "xz": _streamed(read_members, "xz"),
}

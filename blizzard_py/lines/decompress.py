"""Bytes of a source object, decompressed as a stream of blocks of limited size.

An object's first bytes decide how it is decompressed. Stores and their clients compress and
decompress on the way (``Content-Encoding``), so the ending of its name may be wrong. No line of
JSON or CSV begins like gzip or zstd. An object may be compressed twice, once by its writer and once
in transit.

Gzip may have several members, with zeros or white space after each, and zstd several frames. Both
must end where a member or frame ends. Everything else is damage: a truncated file would otherwise
lose rows silently.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from isal import igzip_lib

from blizzard_core.storage.protocol import Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.source import ObjectStream

Codec = Literal["gzip", "zstd"]

BLOCK_BYTES = 1 << 20
MOST_LAYERS = 3
_ENDINGS: dict[str, Codec] = {".gz": "gzip", ".zst": "zstd"}
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte from 50 to 5f
_PADDING = b"\0 \t\r\n"
# Text contains only a few of these.
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\v\f\r")
_TEXT_BYTES = 4096
_SHOWN_BYTES = 4
# isal leaves the upper halves of vector registers in use. All code in the older encoding (numpy's
# comparisons, counting) then takes up to five times as long, until they are cleared. numpy
# functions that are compiled for wide registers clear them at their end.
_CLEARING = np.arange(64)


class Readable(Protocol):
    """Any object that is read forward."""

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""


@contextmanager
def opened(
    storage: Storage, file: JobFile, expansion: Expansion | None = None
) -> Iterator[Iterator[bytes]]:
    """Yield the blocks of a file as `decompressed` does; its stream is closed at the end.

    Raises `FileFailed`, here and while they are read, also if ``expansion`` is exceeded.
    """
    with closing(ObjectStream(storage, file)) as stream:
        yield decompressed(stream, file.path, expansion)


def decompressed(
    stream: ObjectStream, path: str, expansion: Expansion | None = None
) -> Iterator[bytes]:
    """Return non-empty blocks of at most 1 MiB, whatever the compression ratio.

    ``path`` says how the object should be compressed; it is used if the bytes do not show it.
    Raises `FileFailed` at stage ``decompress`` for anything but complete streams. An object of 0
    bytes is an empty plain file, but neither a gzip nor a zstd stream.
    """
    head = stream.read(BLOCK_BYTES)
    codec = _codec(head, path)
    if codec is None:
        return _blocks(head, stream)
    blocks = _blocks(head, stream)
    for _ in range(MOST_LAYERS):
        blocks = _unpacked(codec, blocks)
        if expansion is not None:
            blocks = _counted(blocks, stream, expansion)
        first_blocks = list(_first(blocks))
        blocks = chain(first_blocks, blocks)
        codec = codec_of(b"".join(first_blocks))
        if codec is None:
            return blocks
    raise FileFailed("decompress", f"packed more than {MOST_LAYERS} times; store it unpacked")


def codec_of(head: bytes) -> Codec | None:
    """Return the codec of a stream that begins with ``head``; None if it is not compressed."""
    if head.startswith(_GZIP):
        return "gzip"
    skippable = head[1:4] == _ZSTD_SKIPPABLE and head[0] >> 4 == 5  # a skippable frame
    return "zstd" if head.startswith(_ZSTD) or skippable else None


def _codec(head: bytes, path: str) -> Codec | None:
    """Return the codec as `codec_of`, for a whole object's bytes.

    Raises `FileFailed` if the bytes cannot be those of the object.
    """
    ending = next((end for end in _ENDINGS if path.endswith(end)), None)
    codec = codec_of(head)
    if ending is None:
        # A bad first line of a plain file may begin like that; only that line is lost.
        return None if codec == "gzip" and not _begins_gzip(head) else codec
    if codec is not None:
        return codec
    if not head:
        raise _damaged(_ENDINGS[ending], "an object of 0 bytes")
    if not _is_text(head) or _ZSTD.startswith(head):
        raise FileFailed(
            "decompress",
            f"its name ends with {ending}, but it begins with {_hex(head)}, which is neither gzip"
            " (1f 8b) nor zstd (28 b5 2f fd) nor text; store it again",
        )
    return None


def _begins_gzip(head: bytes) -> bool:
    try:
        igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP).decompress(head, 1)
    except igzip_lib.IsalError:  # type: ignore[misc]  # typed as an instance
        return False
    return True


def _is_text(head: bytes) -> bool:
    """Return whether it is UTF-8 without control characters; the last character may be cut."""
    part = head[:_TEXT_BYTES]
    try:
        getincrementaldecoder("utf-8")().decode(part)
    except UnicodeDecodeError:
        return False
    return _CONTROLS.isdisjoint(part)


def _hex(data: bytes) -> str:
    return data[:_SHOWN_BYTES].hex(" ")


def _blocks(head: bytes, stream: Readable) -> Iterator[bytes]:
    """Return the blocks of a stream that began with ``head``."""
    rest = iter(lambda: stream.read(BLOCK_BYTES), b"")
    return chain([head], rest) if head else rest


def _first(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield as many blocks as a magic number needs."""
    size = 0
    while size < len(_ZSTD) and (block := next(blocks, b"")):
        size += len(block)
        yield block


def _counted(
    blocks: Iterator[bytes], stream: ObjectStream, expansion: Expansion
) -> Iterator[bytes]:
    for block in blocks:
        expansion.add(len(block), stream.bytes_read)
        yield block


def _unpacked(codec: Codec, blocks: Iterator[bytes]) -> Iterator[bytes]:
    return _gunzip(blocks) if codec == "gzip" else _unzstd(blocks)


def _gunzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    data = next(blocks)
    while data:
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        while not member.eof:
            if member.needs_input and not data:
                data = next(blocks, b"")
                if not data:
                    raise _damaged("gzip", "the stream ends in the middle of a member")
            try:
                block = member.decompress(data, BLOCK_BYTES)
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # typed as an instance
                raise _damaged("gzip", str(error)) from error
            data = b""
            _CLEARING.max()
            if block:
                yield block
        data = _next_member(member.unused_data, blocks)


def _next_member(data: bytes, blocks: Iterator[bytes]) -> bytes:
    """Return the bytes after a member: ``b""``, or the beginning of the next one.

    Archivers pad the last member with zeros, and people append a line break.
    """
    data = data.lstrip(_PADDING)
    while not data and (more := next(blocks, b"")):
        data = more.lstrip(_PADDING)
    if not data.startswith(_GZIP) and not _GZIP.startswith(data):
        raise FileFailed(
            "decompress",
            f"a complete gzip stream, followed by other bytes ({_hex(data)}); store it again"
            " without them, if they are not rows",
        )
    return data


def _unzstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    # pyarrow's reader limits each block and notices a truncated frame; the zstandard package
    # offers one or the other. It reads into our own block: it never frees its own if the
    # stream is damaged.
    reader = pa.CompressedInputStream(pa.PythonFile(_File(blocks), mode="r"), "zstd")
    block = bytearray(BLOCK_BYTES)
    while True:
        try:
            size = reader.readinto(block)
        except OSError as error:  # errors of the store come as FileFailed
            raise _unzstd_failed(str(error)) from error
        if not size:
            break
        yield bytes(memoryview(block)[:size])


def _unzstd_failed(text: str) -> FileFailed:
    """Translate the library's messages for two common mistakes."""
    if "too much memory" in text:
        return FileFailed(
            "decompress",
            "zstd with a window of more than 128 MiB, for which a task has no memory; compress it"
            " again without --long, or with --long=27 at most",
        )
    if "Unknown frame descriptor" in text:  # not the first: that was checked
        return FileFailed(
            "decompress",
            "a complete zstd frame, followed by other bytes; store it again without them,"
            " if they are not rows",
        )
    return _damaged("zstd", text)


class _File:
    """Blocks as the file object that pyarrow requires."""

    closed = False

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        data = self._rest or next(self._blocks, b"")
        self._rest = data[size:]
        return data[:size]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the opener closes the blocks."""


def _damaged(codec: Codec, what: str) -> FileFailed:
    return FileFailed("decompress", f"not a complete {codec} stream: {what}")

"""Bytes of a source object, decompressed as a stream of bounded blocks.

Gzip may have several members and zero padding, zstd several frames; both must
end where a member or frame ends. Everything else is damage, because a file cut
short would otherwise lose rows in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

import numpy as np
import pyarrow as pa
from isal import igzip_lib

from blizzard_core.settings.sources import SourceCompression
from blizzard_core.storage.protocol import Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.source import SourceStream

Codec = Literal["gzip", "zstd", "none"]

READ_BYTES = 256 << 10
BLOCK_BYTES = 1 << 20
# isal leaves the upper halves of vector registers in use, and all code in the older encoding
# (numpy's comparisons, counting) then takes up to five times as long, until somebody clears
# them. What numpy has compiled for wide registers does so at its end.
_CLEARING = np.arange(64)


def codec_of(path: str, compression: SourceCompression) -> Codec:
    """The codec to read ``path`` with; ``auto`` goes by the extension."""
    if compression != "auto":
        return compression
    if path.endswith(".gz"):
        return "gzip"
    return "zstd" if path.endswith(".zst") else "none"


@contextmanager
def opened(
    storage: Storage,
    file: JobFile,
    compression: SourceCompression,
    expansion: Expansion | None = None,
) -> Iterator[Iterator[bytes]]:
    """The blocks of a file, as `decompressed` gives them; its stream is closed in the end.

    Raises `FileFailed`, here and while they are read, also for those that are too many by
    ``expansion``, if there is one.
    """
    with closing(SourceStream(storage, file)) as stream:
        blocks = decompressed(stream, codec_of(file.path, compression))
        yield blocks if expansion is None else _counted(blocks, stream, expansion)


def _counted(
    blocks: Iterator[bytes], stream: SourceStream, expansion: Expansion
) -> Iterator[bytes]:
    for block in blocks:
        expansion.add(len(block), stream.bytes_read)
        yield block


def decompressed(stream: SourceStream, codec: Codec) -> Iterator[bytes]:
    """Non-empty blocks of at most 1 MiB, whatever the compression ratio.

    Raises `FileFailed` at stage ``decompress`` for anything but a complete
    stream. An object of 0 bytes is an empty plain file, but neither a gzip nor
    a zstd stream.
    """
    match codec:
        case "gzip":
            return _gunzip(stream)
        case "zstd":
            return _unzstd(stream)
        case "none":
            return iter(lambda: stream.read(BLOCK_BYTES), b"")


def _gunzip(stream: SourceStream) -> Iterator[bytes]:
    data = stream.read(READ_BYTES)
    if not data:
        raise _damaged("gzip", "an object of 0 bytes")
    while data:
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        while not member.eof:
            if member.needs_input and not data:
                data = stream.read(READ_BYTES)
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
        # Archivers may pad the last member with zeros.
        data = member.unused_data.lstrip(b"\0")
        while not data and (more := stream.read(READ_BYTES)):
            data = more.lstrip(b"\0")


def _unzstd(stream: SourceStream) -> Iterator[bytes]:
    # pyarrow's reader bounds each block and notices a frame that is cut short;
    # the zstandard package offers one or the other. It reads into a block of ours: one of its
    # own it never frees where the stream is damaged.
    reader = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
    block = bytearray(BLOCK_BYTES)
    while True:
        try:
            size = reader.readinto(block)
        except OSError as error:  # errors of the store come as FileFailed
            raise _damaged("zstd", str(error)) from error
        if not size:
            break
        yield bytes(memoryview(block)[:size])
    if stream.bytes_read == 0:
        raise _damaged("zstd", "an object of 0 bytes")


def _damaged(codec: Codec, what: str) -> FileFailed:
    return FileFailed("decompress", f"not a complete {codec} stream: {what}")

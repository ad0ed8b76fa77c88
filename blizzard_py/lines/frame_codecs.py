"""Decompression of zstd and lz4: frames, which pyarrow reads one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from blizzard_py.lines.codec_names import Codec
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed, damaged, followed_by

# The libraries' words for bytes that begin no frame. The first frame was checked.
_NO_FRAME = ("Unknown frame descriptor", "ERROR_frameType_unknown")


def read_frames(codec: Codec, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of limited size from all frames of a stream."""
    # pyarrow's reader limits each block and notices a truncated frame; the zstandard package
    # offers one or the other. It reads into our own block: it never frees its own if the
    # stream is damaged.
    reader = pa.CompressedInputStream(pa.PythonFile(_File(blocks), mode="r"), codec)
    block = bytearray(BLOCK_BYTES)
    while True:
        try:
            size = reader.readinto(block)
        except OSError as error:  # errors of the store come as FileFailed
            raise _failed(codec, str(error)) from error
        if not size:
            break
        yield bytes(memoryview(block)[:size])


def _failed(codec: Codec, text: str) -> FileFailed:
    """Translate the libraries' messages for two common mistakes."""
    if "too much memory" in text:
        return FileFailed(
            "decompress",
            "zstd with a window of more than 128 MiB, for which a task has no memory; compress it"
            " again without --long, or with --long=27 at most",
        )
    if any(words in text for words in _NO_FRAME):
        return followed_by(codec)
    return damaged(codec, text)


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

"""Bytes of a source object, decompressed as a stream of blocks of limited size.

An object's first bytes decide how it is decompressed. Stores and their clients compress and
decompress on the way (``Content-Encoding``), so the ending of its name may be wrong. No line of
JSON or CSV begins like a codec. An object may be compressed twice, once by its writer and once in
transit. Only Hadoop's form of snappy has no magic number and is expected by name.

Streams may have several members or frames, with zeros or white space after those of gzip, and zeros
after those of xz. They must end where a member or frame ends. Everything else is damage: a
truncated file would otherwise lose rows silently.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import Protocol

from blizzard_core.storage.protocol import Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.codec_names import (
    BZIP2,
    CODEC_ENDINGS,
    ZIP_ENDING,
    ZIP_MAGICS,
    Codec,
    codec_of,
    first_blocks,
    is_cut_magic,
)
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import BLOCK_BYTES, ArchiveFound, FileFailed, damaged, first_bytes
from blizzard_py.lines.frame_codecs import read_frames
from blizzard_py.lines.member_codecs import begins_gzip, read_members
from blizzard_py.lines.snappy import begins_hadoop, read_snappy
from blizzard_py.lines.source import ObjectStream

MOST_LAYERS = 3
# Text contains only a few of these.
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\v\f\r")
_TEXT_BYTES = 4096


class Readable(Protocol):
    """Any object that is read forward."""

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""


def _ignore(_codec: Codec) -> None:
    """Take a codec that nobody asks for."""


@contextmanager
def opened(
    storage: Storage,
    file: JobFile,
    expansion: Expansion | None = None,
    note_codec: Callable[[Codec], object] = _ignore,
) -> Iterator[Iterator[bytes]]:
    """Yield the blocks of a file as `decompressed` does; its stream is closed at the end.

    Raises `FileFailed`, here and while they are read, also if ``expansion`` is exceeded.
    """
    with closing(ObjectStream(storage, file)) as stream:
        yield decompressed(stream, file.path, expansion, note_codec)


def decompressed(
    stream: ObjectStream,
    path: str,
    expansion: Expansion | None = None,
    note_codec: Callable[[Codec], object] = _ignore,
) -> Iterator[bytes]:
    """Return non-empty blocks of at most 1 MiB, whatever the compression ratio.

    ``path`` says how the object should be compressed; it is used if the bytes do not show it.
    ``note_codec`` gets each codec, the outer one first.
    Raises `FileFailed` at stage ``decompress`` for anything but complete streams, `ArchiveFound`
    for a zip archive. An object of 0 bytes is an empty plain file, but no stream of a codec.
    """
    head = stream.read(BLOCK_BYTES)
    if head.startswith(ZIP_MAGICS):
        raise ArchiveFound
    codec = _codec(head, path)
    if codec is None:
        return _blocks(head, stream)
    blocks = _blocks(head, stream)
    for _ in range(MOST_LAYERS):
        note_codec(codec)
        blocks = _unpacked(codec, blocks)
        if expansion is not None:
            blocks = _counted(blocks, stream, expansion)
        first = list(first_blocks(blocks))
        blocks = chain(first, blocks)
        begin = b"".join(first)
        if begin.startswith(ZIP_MAGICS):
            raise FileFailed("decompress", f"a zip archive in {codec}; store the archive itself")
        codec = codec_of(begin)
        if codec is None:
            return blocks
    raise FileFailed("decompress", f"packed more than {MOST_LAYERS} times; store it unpacked")


def _codec(head: bytes, path: str) -> Codec | None:
    """Return the codec as `codec_of`, for a whole object's bytes.

    Raises `FileFailed` if the bytes cannot be those of the object.
    """
    endings = {**CODEC_ENDINGS, "zip": ZIP_ENDING}
    named = next((each for each, end in endings.items() if path.lower().endswith(end)), None)
    codec = codec_of(head)
    if named is None:
        # A bad first line of a plain file may begin like that; only that line is lost.
        return None if codec == "gzip" and not begins_gzip(head) else codec
    if codec is not None:
        return codec
    if not head:
        raise damaged(named, "an object of 0 bytes")
    is_named = {"bzip2": head.startswith(BZIP2), "snappy": begins_hadoop(head)}
    if is_named.get(named):
        return named
    if not _is_text(head) or is_cut_magic(head):
        raise FileFailed(
            "decompress",
            f"its name ends with {endings[named]}, but it begins with {first_bytes(head)},"
            " which is neither text nor gzip, zstd, bzip2, xz, lz4 frames, snappy or zip;"
            " store it again",
        )
    return None


def _is_text(head: bytes) -> bool:
    """Return whether it is UTF-8 without control characters; the last character may be cut."""
    part = head[:_TEXT_BYTES]
    try:
        getincrementaldecoder("utf-8")().decode(part)
    except UnicodeDecodeError:
        return False
    return _CONTROLS.isdisjoint(part)


def _blocks(head: bytes, stream: Readable) -> Iterator[bytes]:
    """Return the blocks of a stream that began with ``head``."""
    rest = iter(lambda: stream.read(BLOCK_BYTES), b"")
    return chain([head], rest) if head else rest


def _counted(
    blocks: Iterator[bytes], stream: ObjectStream, expansion: Expansion
) -> Iterator[bytes]:
    for block in blocks:
        expansion.add(len(block), stream.bytes_read)
        yield block


def _unpacked(codec: Codec, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if codec == "snappy":
        return read_snappy(blocks)
    return (read_frames if codec in {"zstd", "lz4"} else read_members)(codec, blocks)

"""Decompression of gzip, bzip2 and xz: members, which their libraries read one at a time."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from isal import igzip_lib

from blizzard_py.lines.codec_names import BZIP2, GZIP, XZ, Codec
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed, damaged, followed_by

# A member's library copies what follows the member: many small ones would take minutes a megabyte.
_PIECE_BYTES = 1 << 16
# Of the dictionary; `xz -9` needs 65 MiB.
_XZ_MEMORY_BYTES = 128 << 20
# isal leaves the upper halves of vector registers in use. All code in the older encoding (numpy's
# comparisons, counting) then takes up to five times as long, until they are cleared. numpy
# functions that are compiled for wide registers clear them at their end.
_CLEARING = np.arange(64)


class _Member(Protocol):
    """A decompressor of one member, as `bz2`, `lzma` and `isal` have it."""

    @property
    def eof(self) -> bool:
        """True after the last byte of the member."""

    @property
    def needs_input(self) -> bool:
        """True if more bytes of the stream are needed."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the member."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return up to ``max_length`` bytes; the rest stays compressed."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One codec; ``padding`` are the bytes that may follow a member."""

    codec: Codec
    start: Callable[[], _Member]
    magic: bytes
    errors: tuple[type[Exception], ...]
    padding: bytes = b""


_FORMS = {
    "gzip": _Form(
        "gzip",
        lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
        GZIP,
        (igzip_lib.IsalError,),  # type: ignore[arg-type]  # typed as an instance
        # Archivers pad the last member with zeros, and people append a line break.
        b"\0 \t\r\n",
    ),
    "bzip2": _Form("bzip2", bz2.BZ2Decompressor, BZIP2, (OSError, ValueError)),
    "xz": _Form(
        "xz",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES),
        XZ,
        (lzma.LZMAError,),
        b"\0",
    ),
    # Of a member of an archive, which tells where it ends.
    "zip": _Form(
        "zip",
        lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE),
        b"",
        (igzip_lib.IsalError,),  # type: ignore[arg-type]  # typed as an instance
    ),
}


def begins_gzip(head: bytes) -> bool:
    """Return whether these bytes are the beginning of a gzip member."""
    form = _FORMS["gzip"]
    try:
        form.start().decompress(head, 1)
    except form.errors:
        return False
    return True


def read_members(codec: Codec, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of limited size from all members of a stream."""
    form = _FORMS[codec]
    pieces = _pieces(blocks)
    data = next(pieces, b"")
    while data:
        member = form.start()
        while not member.eof:
            if member.needs_input and not data:
                data = next(pieces, b"")
                if not data:
                    raise damaged(codec, "the stream ends in the middle of a member")
            try:
                block = member.decompress(data, BLOCK_BYTES)
            except form.errors as error:
                raise _failed(codec, str(error)) from error
            data = b""
            _CLEARING.max()
            if block:
                yield block
        data = _next_member(form, member.unused_data, pieces)


def _pieces(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _PIECE_BYTES):
            yield block[start : start + _PIECE_BYTES]


def _next_member(form: _Form, data: bytes, pieces: Iterator[bytes]) -> bytes:
    """Return the bytes after a member: ``b""``, or the beginning of the next one."""
    data = data.lstrip(form.padding)
    while not data and (more := next(pieces, b"")):
        data = more.lstrip(form.padding)
    if not data.startswith(form.magic) and not form.magic.startswith(data):
        raise followed_by(form.codec, data)
    return data


def _failed(codec: Codec, text: str) -> FileFailed:
    """Translate the message for a common mistake."""
    if "Memory usage limit" in text:
        return FileFailed(
            "decompress",
            "xz with a dictionary of more than 128 MiB, for which a task has no memory; compress"
            " it again with -9 at most",
        )
    return damaged(codec, text)

"""The body of an answer, unpacked as it comes and never beyond its limit.

The client's own decoders are not used: they unpack a whole piece from the network at once, however
large it becomes, and take a packed body that ends too early for a complete one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from blizzard_core.text import printable, shortened

# What is asked for, and all that is understood.
ACCEPTED = "gzip"
_PIECE = 1 << 20
_GZIP = zlib.MAX_WBITS | 16
_MAGIC = b"\x1f\x8b"


class TooLong(ValueError):
    """The body is longer than its limit, packed or not."""


class Damaged(ValueError):
    """The packed body is cut or broken; another try may get it whole."""


class UnknownEncoding(ValueError):
    """The body is packed in a way that was not asked for."""


def json_body(pieces: Iterable[bytes], encoding: str, limit: int) -> bytearray:
    """Return the body, unpacked once more where its bytes are still gzip: JSON never begins so.

    A server packs what an application packed before, or a proxy takes the header away. Errors as
    `body` says.
    """
    found = body(pieces, encoding, limit)
    return body([bytes(found)], "gzip", limit) if found.startswith(_MAGIC) else found


def body(pieces: Iterable[bytes], encoding: str, limit: int) -> bytearray:
    """The whole body, of at most ``limit`` bytes; holds a megabyte besides.

    ``encoding`` is the header ``Content-Encoding``. Raises `TooLong`, `Damaged` or
    `UnknownEncoding`.
    """
    name = encoding.strip().lower()
    if name not in {"", "identity", "gzip", "x-gzip"}:
        shown = shortened(printable(name), 40)
        raise UnknownEncoding(f"packed as {shown}, where only gzip was asked for")
    found = bytearray()
    for piece in pieces if name in {"", "identity"} else _unzipped(pieces):
        if len(found) + len(piece) > limit:
            raise TooLong
        found += piece
    return found


def _unzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP)
    begun, left = False, b""
    for piece in pieces:
        rest, left = left + piece, b""
        while rest:
            if unpacker.eof:
                if len(rest) < len(_MAGIC):
                    left = rest  # the next piece says whether another member begins
                    break
                if not rest.startswith(_MAGIC):
                    break  # padding after the last member
                unpacker = zlib.decompressobj(_GZIP)
            try:
                yield unpacker.decompress(rest, _PIECE)
            except zlib.error:
                why = "is broken" if begun else "is not gzip, as its Content-Encoding says"
                raise Damaged(f"the packed answer {why}") from None
            begun = True
            rest = unpacker.unconsumed_tail or unpacker.unused_data
    while not unpacker.eof and (more := unpacker.decompress(b"", _PIECE)):
        yield more
    if begun and not unpacker.eof:
        raise Damaged("the packed answer ends too early")

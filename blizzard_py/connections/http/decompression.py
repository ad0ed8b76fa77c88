"""The body of an answer, decompressed as it arrives and never beyond its limit.

The client's own decoders are not used. They decompress a whole network packet at once, however
large the result, and accept a truncated body as complete.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from blizzard_core.text import printable, shortened

# The only encoding that is requested and understood.
ACCEPTED = "gzip"
_PIECE = 1 << 20
_GZIP = zlib.MAX_WBITS | 16
_MAGIC = b"\x1f\x8b"


class TooLong(ValueError):
    """The body is longer than its limit, compressed or not."""


class Damaged(ValueError):
    """The compressed body is truncated or broken; another attempt may be complete."""


class UnknownEncoding(ValueError):
    """The body has an encoding that was not requested."""


def json_body(pieces: Iterable[bytes], encoding: str, limit: int) -> bytearray:
    """Return the body, decompressed twice if needed: JSON never begins like gzip.

    A server may compress what an application has compressed before, or a proxy may remove the
    header. Errors as in `body`.
    """
    found = body(pieces, encoding, limit)
    return body([bytes(found)], "gzip", limit) if found.startswith(_MAGIC) else found


def body(pieces: Iterable[bytes], encoding: str, limit: int) -> bytearray:
    """Return the whole body of at most ``limit`` bytes; needs one more megabyte of memory.

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
    has_begun, remaining = False, b""
    for piece in pieces:
        rest, remaining = remaining + piece, b""
        while rest:
            if unpacker.eof:
                if len(rest) < len(_MAGIC):
                    remaining = rest  # the next piece says whether another member begins
                    break
                if not rest.startswith(_MAGIC):
                    break  # padding after the last member
                unpacker = zlib.decompressobj(_GZIP)
            try:
                yield unpacker.decompress(rest, _PIECE)
            except zlib.error:
                why = "is broken" if has_begun else "is not gzip, as its Content-Encoding says"
                raise Damaged(f"the packed answer {why}") from None
            has_begun = True
            rest = unpacker.unconsumed_tail or unpacker.unused_data
    while not unpacker.eof and (more := unpacker.decompress(b"", _PIECE)):
        yield more
    if has_begun and not unpacker.eof:
        raise Damaged("the packed answer ends too early")

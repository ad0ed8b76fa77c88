"""The body of an answer, decompressed as it arrives and never beyond its limit.

The client's own decoders are not used. They decompress a whole network packet at once, however
large the result, and accept a truncated body as complete.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.text import printable, shortened
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.member_codecs import read_members

# The only encoding that is requested and understood.
ACCEPTED = "gzip"
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
    is_plain = name in {"", "identity"}
    try:
        for piece in pieces if is_plain else read_members("gzip", iter(pieces)):
            if len(found) + len(piece) > limit:
                raise TooLong
            found += piece
    except FileFailed:
        why = "is cut or changed, or not gzip, as its Content-Encoding says"
        raise Damaged(f"the packed answer {why}") from None
    return found

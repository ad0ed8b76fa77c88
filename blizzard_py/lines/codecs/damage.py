"""The failure of a stream that is not complete, and the size of blocks."""

from __future__ import annotations

from blizzard_py.lines.codecs.names import Codec
from blizzard_py.lines.failure import FileFailed

BLOCK_BYTES = 1 << 20
_SHOWN_BYTES = 4


def damaged(codec: Codec, what: str) -> FileFailed:
    """Return the failure of a stream that is cut short or changed."""
    return FileFailed("decompress", f"not a complete {codec} stream: {what}; store it again")


def followed_by(codec: Codec, data: bytes = b"") -> FileFailed:
    """Return the failure of a complete stream with other bytes after it."""
    shown = f" ({first_bytes(data)})" if data else ""
    return FileFailed(
        "decompress",
        f"a complete {codec} stream, followed by other bytes{shown}; store it again without them,"
        " if they are not rows",
    )


def first_bytes(data: bytes) -> str:
    """Return the first bytes of a stream for a message."""
    return data[:_SHOWN_BYTES].hex(" ")

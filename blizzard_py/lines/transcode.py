"""Text of other encodings as UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from blizzard_py.lines.failure import FileFailed

_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# The handler of bytes that are no text.
_MARKED = "blizzard-marked"


def check_narrow(blocks: Iterator[bytes], remedy: str) -> Iterator[bytes]:
    """Yield a stream of UTF-8. Raises `FileFailed` with the remedy if it begins like UTF-16."""
    first = next(blocks, b"")
    if first.startswith(_WIDE_MARKS):
        raise FileFailed("parse", f"begins like UTF-16; {remedy}")
    if first:
        yield first
    yield from blocks


def to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield a stream in UTF-8.

    Bytes that are no text stay behind a byte that no UTF-8 has, so that only their record is bad
    and no two of them make a character. In UTF-16 and UTF-32 what follows them cannot be known:
    `FileFailed`.
    """
    is_wide = encoding.startswith(("utf-16", "utf-32"))
    decoder = codecs.getincrementaldecoder(encoding)("strict" if is_wide else _MARKED)
    try:
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "surrogateescape")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        raise FileFailed("parse", f"is not {encoding}: {error}") from error


def _mark_bytes(error: UnicodeError) -> tuple[str, int]:
    """Handle bytes that are no text: keep them as lone surrogates, each behind another one."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(
        f"\udcff{chr(0xDC00 + byte) if byte > 127 else chr(byte)}" for byte in bad
    ), error.end


codecs.register_error(_MARKED, _mark_bytes)

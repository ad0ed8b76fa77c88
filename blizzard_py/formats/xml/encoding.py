"""The encoding of an XML file, by its mark, its first bytes or its declaration."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain

from blizzard_core.settings.format_options import known_encoding
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.transcode import to_utf8

_HEAD_BYTES = 1024
_NAME_CHARACTERS = 40
# Longer marks first: that of UTF-32 begins as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED = re.compile(rb"""\s*+<\?xml\s[^>]*?\sencoding\s*+=\s*+["']([^"'>]*+)["']""")


def as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the file in UTF-8. A mark of UTF-8 stays, because offsets count it.

    Raises `FileFailed` for an encoding that is not read, and where UTF-16 or UTF-32 is damaged.
    """
    head = b""
    for block in blocks:
        head += block
        if len(head) >= _HEAD_BYTES:
            break
    encoding = _encoding_of(head[:_HEAD_BYTES])
    stream = chain([head], blocks)
    return stream if encoding == "utf-8" else to_utf8(stream, encoding)


def _encoding_of(head: bytes) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    declared = _DECLARED.match(head)
    if declared is None:
        return "utf-8"
    name = declared[1].decode("ascii", "replace")
    try:
        found = known_encoding(name)
    except ValueError as error:
        shown = bounded(name, _NAME_CHARACTERS)
        raise FileFailed("parse", f"declares the encoding {shown!r}, which {error}") from error
    # The declaration can be read as ASCII, so it was left behind when the file was converted.
    return "utf-8" if found.startswith(("utf-16", "utf-32")) else found

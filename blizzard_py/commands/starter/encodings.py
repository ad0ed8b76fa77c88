"""The encoding of text, proven by its first bytes. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

from blizzard_py.commands.starter.heads import FileHead

_EAST_ASIAN = ("shift_jis", "euc_jp", "gb18030", "euc_kr", "big5")
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CYRILLIC_WORDS = re.compile(
    r"(?:[\u0401\u0410-\u044f\u0451][\u0430-\u044f\u0451]+|[^\W\d_\u0430-\u044f\u0451]|[ -~\s])*"
)
_NEIGHBOURS = re.compile(r"[^\x00-\x7f]{2,}")
_FOREIGN = re.compile(r"[^\x00-\x7f]")


def encoding_of(heads: Sequence[FileHead]) -> tuple[str, tuple[str, ...]]:
    """Return the encoding of the files, and doubts about it."""
    proven = {head.path: _proven_encoding(head) for head in heads}
    wide = next((encoding for encoding in proven.values() if encoding.startswith("utf-16")), "")
    if wide:
        others = [path for path, encoding in proven.items() if encoding != wide]
        return wide, tuple(f"{path} is not {wide}" for path in others[:1])
    legacy = [head for head in heads if not proven[head.path]]
    if not legacy:
        return "utf-8", ()
    if "utf-8" in proven.values():
        return "utf-8", (
            f"{legacy[0].path} is not UTF-8, but others are; its records with other bytes are bad",
        )
    data = b"".join(head.data for head in legacy)
    found = _legacy(data, is_whole=all(head.is_whole for head in legacy))
    return found, (f"the files are not UTF-8; that they are {found} is a guess: check names in it",)


def _proven_encoding(head: FileHead) -> str:
    """Return what the bytes of a file prove: ``ascii`` fits all encodings, "" is none of UTF."""
    if head.data.startswith(_MARKS):
        return "utf-16"
    for encoding, first in (("utf-16-le", 1), ("utf-16-be", 0)):
        if head.data[first:200:2].count(0) > 80 * len(head.data[first:200:2]) // 100:
            return encoding
    if head.data.isascii():
        return "ascii"
    return "utf-8" if _decoded(head.data, "utf-8", is_whole=head.is_whole) is not None else ""


def _legacy(data: bytes, *, is_whole: bool) -> str:
    """Return an encoding of which the bytes are strictly valid, and in which they look like text.

    Cyrillic words have capitals at their beginnings only, and East Asian characters have others
    beside them. The letters with accents of western text stand alone.
    """
    for encoding in ("cp1251", "koi8-r"):
        text = _decoded(data, encoding, is_whole=is_whole)
        if text and _NEIGHBOURS.search(text) and _CYRILLIC_WORDS.fullmatch(text):
            return encoding
    for encoding in _EAST_ASIAN:
        text = _decoded(data, encoding, is_whole=is_whole)
        if text and 2 * sum(map(len, _NEIGHBOURS.findall(text))) > len(_FOREIGN.findall(text)):
            return encoding
    if b"\r" in data and b"\n" not in data:
        return "mac-roman"
    return "cp1252" if _decoded(data, "cp1252", is_whole=is_whole) is not None else "cp850"


def _decoded(data: bytes, encoding: str, *, is_whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return None

"""The format of a source's files, told by their names and first bytes, for ``blizzard init``. Pure.

Names tell JSON from delimited text, and the content tells lines from documents. A record of XML is
the outermost element that repeats. Where a sample does not prove a reading, the one is chosen that
loses no record and no field, and the doubt is noted for the operator.
"""

from __future__ import annotations

import codecs
import contextlib
import pyexpat
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import (
    CsvOptions,
    ExcelOptions,
    FormatSettings,
    NdjsonOptions,
    OrcOptions,
    ParquetOptions,
    XmlOptions,
)
from blizzard_core.settings.sources import SourceSettings
from blizzard_py.commands.starter.delimited import recognize_delimited
from blizzard_py.commands.starter.heads import FileHead, Recognized, TextHead
from blizzard_py.commands.starter.json_root import recognize_json
from blizzard_py.sources.files.file_names import accepts

# A record is rarely deeper.
_LEVELS = 8
_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
Path = tuple[str, ...]


def row_tag_of(text: str) -> str:
    """Return the ``row_tag``: the outermost element that comes several times in its parent.

    Of several such elements it is the one with most inside. Without any it is the first one in the
    root. The root itself is the record if the element has nothing but text and stands beside other
    texts, which would be lost. Empty if there is none, or if the file has entities, which are not
    read.
    """
    if "<!ENTITY" in text:
        return ""
    found = _Elements()
    parser = pyexpat.ParserCreate("utf-8")
    parser.StartElementHandler = found.start
    parser.EndElementHandler = found.end
    with contextlib.suppress(pyexpat.ExpatError):  # what was read up to there counts
        parser.Parse(_DECLARATION.sub("", text, count=1).encode("utf-8", "replace"))
    path = found.record()
    if path is None:
        return ""
    others = (other for other in found.counts if other[: len(path)] != path)
    is_unique = all(path[-1] not in other for other in others)
    try:
        return XmlOptions(type="xml", row_tag="/".join(path[-1 if is_unique else -2 :])).row_tag
    except ValidationError:
        return ""


class _Elements:
    """The paths of elements, how often each comes in one parent, and how many are in it."""

    def __init__(self) -> None:
        self.counts: Counter[Path] = Counter()
        self._repeated: dict[Path, None] = {}
        self._inside: Counter[Path] = Counter()
        self._with_attributes: set[Path] = set()
        self._path: list[str] = []
        self._siblings: list[Counter[str]] = [Counter()]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take a start tag."""
        self._path.append(name)
        if len(self._path) <= _LEVELS:
            path = tuple(self._path)
            self.counts[path] += 1
            if attributes:
                self._with_attributes.add(path)
            self._siblings[-1][name] += 1
            self._siblings.append(Counter())
            if self._siblings[-2][name] == 2:
                self._repeated[path] = None
            for end in range(1, len(path)):
                self._inside[path[:end]] += 1

    def end(self, _name: str) -> None:
        """Take an end tag."""
        if len(self._path) <= _LEVELS:
            self._siblings.pop()
        self._path.pop()

    def record(self) -> Path | None:
        """Return the path of a record."""
        if self._repeated:
            least = min(map(len, self._repeated))
            outermost = [path for path in self._repeated if len(path) == least]
            found = max(outermost, key=lambda path: self._inside[path])
            return found[:1] if self._is_field(found) else found
        inner = [path for path in self.counts if len(path) == 2]
        return max(inner, key=lambda path: self._inside[path], default=None)

    def _is_field(self, path: Path) -> bool:
        """Return whether an element in the root is a text that stands beside other texts."""
        texts = [
            other
            for other in self.counts
            if len(other) == 2 and not self._inside[other] and other not in self._with_attributes
        ]
        return path in texts and len(texts) > 1


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


# What files of these formats begin with.
_MAGIC: Mapping[bytes, FormatSettings] = {
    b"PAR1": ParquetOptions(type="parquet"),
    b"ORC": OrcOptions(type="orc"),
    b"Obj\x01": AvroOptions(type="avro"),
}
# A workbook is a zip archive with these parts, in any order.
_ZIP, _PARTS = b"PK\x03\x04", (b"[Content_Types].xml", b"xl/worksheets/")


def recognize(heads: Sequence[FileHead]) -> Recognized:
    """Return the format of the files, which is NDJSON where nothing can be told."""
    filled = [head for head in heads if head.data.strip()]
    if not filled:
        return Recognized(NdjsonOptions())
    known = next((form for magic, form in _MAGIC.items() if filled[0].data.startswith(magic)), None)
    if known is not None:
        return Recognized(known)
    if all(_is_workbook(head) for head in filled):
        return Recognized(ExcelOptions(type="excel"))
    encoding, doubts = encoding_of(filled)
    texts = [TextHead(head.path, _text_of(head, encoding), head.is_whole) for head in filled]
    found = _recognize_texts(texts, encoding)
    return replace(found, doubts=(*doubts, *found.doubts))


def _recognize_texts(texts: Sequence[TextHead], encoding: str) -> Recognized:
    if accepts(SourceSettings(source_uri="/", format=CsvOptions(type="csv")))(texts[0].path):
        return recognize_delimited(texts, encoding)
    first = texts[0].text.lstrip()
    if first.startswith("<"):
        row_tag = next(filter(None, (row_tag_of(head.text) for head in texts)), "")
        return Recognized(XmlOptions(type="xml", row_tag=row_tag) if row_tag else NdjsonOptions())
    if first.startswith(("{", "[")):
        return recognize_json(texts, encoding)
    return Recognized(NdjsonOptions())


def _is_workbook(head: FileHead) -> bool:
    return head.data.startswith(_ZIP) and any(part in head.data for part in _PARTS)


def _text_of(head: FileHead, encoding: str) -> str:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return decoder.decode(head.data).removeprefix("\ufeff")

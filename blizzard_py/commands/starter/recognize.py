"""The format of a source's files, told by their names and first bytes, for ``blizzard init``. Pure.

Names tell JSON from delimited text, and the content tells lines from documents. A record of XML is
the outermost element that repeats. Where a sample does not prove a reading, the one is chosen that
loses no record and no field, and the doubt is noted for the operator.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import replace

from blizzard_core.settings.formats import (
    AvroOptions,
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
from blizzard_py.commands.starter.encodings import encoding_of
from blizzard_py.commands.starter.heads import FileHead, Recognized, TextHead
from blizzard_py.commands.starter.json_root import recognize_json
from blizzard_py.commands.starter.row_tag import row_tag_of
from blizzard_py.sources.files.file_names import accepts

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

"""The format of a source's files, told by their names and first bytes, for ``blizzard init``. Pure.

Names tell JSON from delimited text. Lines that parse are NDJSON; other JSON is documents, with the
path of the largest array of objects. A record of XML is the outermost element that repeats. The
delimiter of text is the one that gives nearly all records one number of fields above 1. What cannot
be told, such as the day and month of `01.02.2024`, is written as the more common case; the operator
checks it in the configuration.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_core.settings.formats import (
    AvroOptions,
    CsvOptions,
    ExcelOptions,
    FormatSettings,
    JsonOptions,
    NdjsonOptions,
    OrcOptions,
    ParquetOptions,
    XmlOptions,
)
from blizzard_core.settings.sources import SourceSettings
from blizzard_py.commands.starter.row_tag import row_tag_of
from blizzard_py.sources.files.file_names import accepts

_DELIMITERS = (",", ";", "\t", "|")
# The share of records that must have the same number of fields.
_EVEN = 0.95
_RECORDS = 1000
_TITLE_ROWS = 10
_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y", "%Y%m%d",
)  # fmt: skip
_CLOCKS = (" %H:%M:%S", " %H:%M", "T%H:%M:%S", " %I:%M:%S %p")
# What files of these formats begin with.
_MAGIC: Mapping[bytes, FormatSettings] = {
    b"PAR1": ParquetOptions(type="parquet"),
    b"ORC": OrcOptions(type="orc"),
    b"Obj\x01": AvroOptions(type="avro"),
}
# A workbook is a zip archive with these parts, in any order.
_ZIP, _PARTS = b"PK\x03\x04", (b"[Content_Types].xml", b"xl/worksheets/")
_NULLS = ("NULL", "null", "\\N", "NA", "N/A", "-")
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file, decompressed; ``is_whole`` if it is all of it."""

    path: str
    data: bytes
    is_whole: bool


def recognize(heads: Sequence[FileHead]) -> FormatSettings:
    """Return the format of the files, which is NDJSON where nothing can be told."""
    filled = [head for head in heads if head.data.strip()]
    if not filled:
        return NdjsonOptions()
    known = next((form for magic, form in _MAGIC.items() if filled[0].data.startswith(magic)), None)
    if known is not None:
        return known
    if all(_is_workbook(head) for head in filled):
        return ExcelOptions(type="excel")
    encoding = _encoding_of(filled)
    texts = [(head, _text_of(head, encoding)) for head in filled]
    if accepts(SourceSettings(source_uri="/", format=CsvOptions(type="csv")))(filled[0].path):
        return _csv_format(texts, encoding)
    first = texts[0][1].lstrip()
    if first.startswith("<"):
        row_tag = next(filter(None, (row_tag_of(text) for _, text in texts)), "")
        return XmlOptions(type="xml", row_tag=row_tag) if row_tag else NdjsonOptions()
    return _json_format(texts, encoding) if first.startswith(("{", "[")) else NdjsonOptions()


def _is_workbook(head: FileHead) -> bool:
    return head.data.startswith(_ZIP) and any(part in head.data for part in _PARTS)


def _encoding_of(heads: Sequence[FileHead]) -> str:
    for head in heads:
        if head.data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if head.data[1:200:2].count(0) > 80 * len(head.data[1:200:2]) // 100:
            return "utf-16-le"
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head.data, final=head.is_whole)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def _text_of(head: FileHead, encoding: str) -> str:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return decoder.decode(head.data).removeprefix("\ufeff")


def _json_format(
    texts: Sequence[tuple[FileHead, str]], encoding: str
) -> NdjsonOptions | JsonOptions:
    if encoding == "utf-8" and all(_is_lines(head, text) for head, text in texts):
        return NdjsonOptions()
    records = ""
    for head, text in texts:
        if text.lstrip().startswith("{"):
            records = _largest_array(head, text)
            break
    options = {"type": "json", "records": records}
    if encoding.startswith("utf-16"):
        options["encoding"] = encoding
    return JsonOptions.model_validate(options)


def _is_lines(head: FileHead, text: str) -> bool:
    """Return whether the first line of a file is an object."""
    first, end, _ = text.lstrip().partition("\n")
    try:
        return isinstance(json.loads(first), dict)
    except ValueError:
        return not end and not head.is_whole  # a line that is longer than what was read
    except RecursionError:
        return False


def _largest_array(head: FileHead, text: str) -> str:
    """Return the path of the array with the most objects; ``""`` for objects without one."""
    document: Any = None
    if head.is_whole:
        try:
            document, _ = json.JSONDecoder().raw_decode(text.lstrip())
        except (ValueError, RecursionError):
            return ""
    arrays = list(_arrays(document, ())) if document is not None else _first_array(text)
    return ".".join(max(arrays, key=lambda found: found[1])[0]) if arrays else ""


def _arrays(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(value, dict) and len(path) < 5:
        for key, inner in value.items():
            if isinstance(inner, list) and inner and all(isinstance(one, dict) for one in inner):
                yield (*path, key), len(inner)
            elif "." not in key:
                yield from _arrays(inner, (*path, key))


def _first_array(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Return the first array of objects of a document that was not read to its end."""
    path: list[str] = []
    token = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"\s*(:?)|\\?\Z)|([{}\[\]])|[^"{}\[\]]++', re.DOTALL)
    key = ""
    for match in token.finditer(text):
        if match[2]:
            key = match[1]
        elif match[3] == "{":
            path.append(key)
            key = ""
        elif match[3] == "}" and path:
            path.pop()
        elif match[3] == "[":
            if text[match.end() :].lstrip().startswith("{"):
                return [((*path[1:], key), 1)] if key else []
            return []
    return []


def _csv_format(texts: Sequence[tuple[FileHead, str]], encoding: str) -> CsvOptions:
    text, head = texts[0][1], texts[0][0]
    options: dict[str, Any] = {"type": "csv"}
    if encoding != "utf-8":
        options["encoding"] = encoding
    comments = sum(line.startswith("#") for line in text.splitlines()[:_TITLE_ROWS])
    if comments:
        options["comment"] = "#"
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    delimiter, rows, title = _best_delimiter(text, is_whole=head.is_whole)
    if delimiter != ("\t" if ".tsv" in head.path else ","):
        options["delimiter"] = delimiter
    if title and not comments:
        options["skip_rows"] = title
    for _, other in texts[1:]:
        rows = [*rows, *_best_delimiter(other, is_whole=False)[1][1:]]
    if not rows:
        return CsvOptions.model_validate(options)
    names, below = [name.strip() for name in rows[0]], rows[1:]
    if len(set(names)) < len(names) or any(_PLAIN_NUMBER.fullmatch(name) for name in names):
        options |= {"header": False, "columns": [f"column_{n}" for n in range(1, len(names) + 1)]}
        below = rows
    options |= _notation([row for row in below if len(row) == len(names)], delimiter)
    return CsvOptions.model_validate(options)


def _best_delimiter(text: str, *, is_whole: bool) -> tuple[str, list[list[str]], int]:
    """Return the delimiter, the records from the header on, and the lines before it."""
    best: tuple[int, str, list[list[str]], int] = (0, ",", [], 0)
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows: list[tuple[int, list[str]]] = []
        try:
            before = 0
            for row in reader:
                rows.append((before, row))
                before = reader.line_num
                if len(rows) > _RECORDS:
                    break
        except csv.Error:
            continue
        if not is_whole:
            rows = rows[:-1]  # which may be cut
        width, _ = Counter(len(row) for _, row in rows if row).most_common(1)[0] if rows else (0, 0)
        begin = next((at for at, (_, row) in enumerate(rows) if len(row) == width), 0)
        body = [row for _, row in rows[begin:] if row]
        even = sum(len(row) == width for row in body)
        if width > 1 and begin <= _TITLE_ROWS and even >= _EVEN * len(body):
            best = max(best, (even * width, delimiter, body, rows[begin][0]))
    return best[1], best[2] or _single_column(text), best[3]


def _single_column(text: str) -> list[list[str]]:
    return [[line] for line in text.splitlines()[:_RECORDS] if line]


def _notation(rows: Sequence[Sequence[str]], delimiter: str) -> dict[str, Any]:
    """Return the options of the values: separators, formats of dates and times, nulls."""
    found: dict[str, Any] = {}
    nulls = [text for text in _NULLS if any(text in row for row in rows)]
    if nulls:
        found["null_value"] = ["", *nulls]
    columns = [
        [text for each in column if (text := each.strip()) and text not in nulls]
        for column in zip(*rows, strict=True)
    ]
    columns = [column for column in columns if column]
    commas = [column for column in columns if all(map(_COMMA_NUMBER.fullmatch, column))]
    if commas and delimiter != ",":
        found["decimal"] = ","
        if any(_GROUPED.fullmatch(text) for column in commas for text in column):
            found["thousands"] = "."
    dates = _formats(columns, _DATES)
    if dates:
        found["date_format"] = dates
    times = _formats(columns, [f"{date}{clock}" for date in _DATES for clock in _CLOCKS])
    if times:
        found["timestamp_format"] = times
    return found


def _formats(columns: Sequence[Sequence[str]], forms: Sequence[str]) -> list[str]:
    """Return for each column the first format that all its values have, each once."""
    found: dict[str, None] = {}
    for column in columns:
        form = next((form for form in forms if all(_has(text, form) for text in column)), None)
        if form is not None and not all(text.isdigit() for text in column):
            found[form] = None
    return list(found)


def _has(text: str, form: str) -> bool:
    try:
        return dt.datetime.strptime(text, form).strftime(form) == text  # noqa: DTZ007  # no zone
    except ValueError:
        return False

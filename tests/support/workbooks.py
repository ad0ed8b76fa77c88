"""Workbooks for tests: saved by a library or written part by part, and read through the seam."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import openpyxl
import pytest

from blizzard_core.settings.formats import ExcelOptions
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import Parsed
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from tests.support.ingest_job_harness import specs
from tests.support.memory_file import MemoryFile

SHEET = "xl/worksheets/sheet1.xml"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT = (
    "http://purl.oclc.org/ooxml/spreadsheetml/main",
    "http://purl.oclc.org/ooxml/officeDocument/relationships",
)
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_STYLES = (
    '<numFmts count="1"><numFmt numFmtId="164" formatCode="dd.mm.yyyy\\ hh:mm"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="21"/>'
    '<xf numFmtId="46"/><xf numFmtId="2"/></cellXfs>'
)


def saved(rows: Iterable[Sequence[Any]], title: str = "Sheet") -> bytes:
    """Return a workbook that openpyxl saved."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = title
    for row in rows:
        sheet.append(list(row))
    return bytes_of(book)


def bytes_of(book: openpyxl.Workbook) -> bytes:
    """Return what openpyxl saves."""
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


@dataclass
class Written:
    """A workbook of parts. ``rows`` are the XML in `sheetData`; ``sheets`` have name and state."""

    rows: str = ""
    texts: str = ""
    styles: str = _STYLES
    properties: str = ""
    sheets: Sequence[tuple[str, str]] = (("Data", "visible"),)
    spaces: tuple[str, str] = (MAIN, RELATIONS)
    before: str = ""
    parts: Mapping[str, str | bytes] = field(default_factory=dict)
    compression: int = zipfile.ZIP_DEFLATED

    def __bytes__(self) -> bytes:
        main, relations = self.spaces
        sheets = "".join(
            f'<sheet name="{name}" sheetId="{at}" state="{state}" r:id="s{at}"/>'
            for at, (name, state) in enumerate(self.sheets, 1)
        )
        ids = "".join(
            f'<Relationship Id="s{at}" Type="{relations}/worksheet"'
            f' Target="worksheets/sheet{at}.xml"/>'
            for at in range(1, len(self.sheets) + 1)
        )
        head = f'{self.before}<worksheet xmlns="{main}"><sheetData>'
        parts: dict[str, str | bytes] = {
            "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r"'
            f' Type="{relations}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relations}">'
            f"{self.properties}<sheets>{sheets}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{ids}'
            f'<Relationship Id="a" Type="{relations}/styles" Target="/xl/styles.xml"/>'
            f'<Relationship Id="b" Type="{relations}/sharedStrings" Target="sharedStrings.xml"/>'
            "</Relationships>",
            "xl/styles.xml": f'<styleSheet xmlns="{main}">{self.styles}</styleSheet>',
            "xl/sharedStrings.xml": f'<sst xmlns="{main}">{self.texts}</sst>',
            **{
                f"xl/worksheets/sheet{at}.xml": head + self.rows + "</sheetData></worksheet>"
                for at in range(1, len(self.sheets) + 1)
            },
            **self.parts,
        }
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", self.compression) as archive:
            for name, content in parts.items():
                if content:
                    archive.writestr(zipfile.ZipInfo(name), content, self.compression)
        return out.getvalue()


def inline(text: str, place: str = "") -> str:
    """Return a cell with its text."""
    at = f' r="{place}"' if place else ""
    return f'<c t="inlineStr"{at}><is><t>{text}</t></is></c>'


def row(*cells: str, number: int | None = None) -> str:
    """Return a row of cells in XML."""
    at = "" if number is None else f' r="{number}"'
    return f"<row{at}>{''.join(cells)}</row>"


def named(*names: str) -> str:
    """Return a header."""
    return row(*map(inline, names))


def options(**given: Any) -> ExcelOptions:
    """Return the format with these options."""
    return ExcelOptions.model_validate({"type": "excel", **given})


def parsed_of(
    data: bytes, fields: tuple[FieldSpec, ...], form: ExcelOptions | None = None, **schema: Any
) -> list[tuple[Piece | RefusedRecord, Parsed | None]]:
    """Return the pieces of a workbook, each with its rows."""
    rows = RowSchema(fields, **schema)
    made = format_of(form or options())
    decoder = made.decoder(rows, tolerant=True, fast=True)
    return [
        (piece, decoder.decode(piece) if isinstance(piece, Piece) else None)
        for piece in made.pieces(MemoryFile(data), rows)
    ]


def numbered(
    data: bytes, fields: tuple[FieldSpec, ...], form: ExcelOptions | None = None, **schema: Any
) -> tuple[list[tuple[int, dict[str, Any]]], dict[int, str]]:
    """Return the rows and the reasons of bad ones, with the numbers in the sheet."""
    rows, bad, before = [], {}, 1
    for piece, parsed in parsed_of(data, fields, form, **schema):
        before += piece.skipped
        if parsed is None:
            bad[before], before = piece.reason, before + 1
            continue
        numbers = (parsed.rows_at + before).tolist()
        rows += zip(numbers, parsed.table.to_pylist(maps_as_pydicts="strict"), strict=True)
        bad |= {before + each.index: each.reason for each in parsed.bad}
        before += parsed.lines
    return rows, bad


def failure(
    data: bytes,
    fields: tuple[FieldSpec, ...] = specs(id="int64"),
    form: ExcelOptions | None = None,
    **schema: Any,
) -> str:
    """Return the reason why a workbook is refused."""
    with pytest.raises(FileFailed) as caught:
        parsed_of(data, fields, form, **schema)
    assert caught.value.outcome == "quarantined"
    return caught.value.reason

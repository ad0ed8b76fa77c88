"""The parts of a workbook beside its cells: sheets, shared texts, and formats of dates."""

from __future__ import annotations

import posixpath
import unicodedata
from array import array
from dataclasses import dataclass, field
from urllib.parse import unquote

from blizzard_core.limits import EXCEL_CELLS, EXCEL_PART_BYTES, EXCEL_TEXT_BYTES
from blizzard_core.settings.format_options import is_cell
from blizzard_py.formats.excel.archive import Archive, part_name
from blizzard_py.formats.excel.cells import moment_kind, unescaped
from blizzard_py.formats.excel.elements import (
    PACKAGE,
    RELATION_IDS,
    Handler,
    full_names,
    walk,
)
from blizzard_py.lines.failure import FileFailed, bounded

_SHOWN_NAMES = 300
_OTHERS = {
    "xl/workbook.bin": "is a workbook of the format .xlsb; save it as an Excel workbook (.xlsx)",
    "content.xml": "is an OpenDocument file (.ods); save it as an Excel workbook (.xlsx)",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A worksheet: its name, whether it is shown, and its part."""

    name: str
    is_visible: bool
    part: str


class SharedTexts:
    """The texts that cells refer to by number, in little more than their bytes."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("I", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        return self._data[self._ends[index] : self._ends[index + 1]].decode()

    def size(self, index: int) -> int:
        """Return the bytes of a text."""
        return self._ends[index + 1] - self._ends[index]

    def add(self, text: str) -> None:
        """Add a text. Raises `FileFailed` for too many."""
        self._data += text.encode()
        self._ends.append(len(self._data))
        if len(self._data) > EXCEL_TEXT_BYTES or len(self._ends) > EXCEL_CELLS:
            raise FileFailed(
                "parse",
                f"has shared texts of more than {EXCEL_TEXT_BYTES >> 20:,} MiB, or more than"
                f" {EXCEL_CELLS:,}; split the workbook",
            )


@dataclass(slots=True)
class Workbook:
    """A workbook without its cells.

    ``moments`` are by number of a cell style what its numbers show: a date, a time, or nothing.
    """

    sheets: list[Sheet] = field(default_factory=list)
    is_1904: bool = False
    moments: list[str] = field(default_factory=list)
    texts: SharedTexts = field(default_factory=SharedTexts)

    def sheet(self, name: str) -> Sheet:
        """Return a sheet by its name, or the first visible one. Raises `FileFailed`."""
        for sheet in self.sheets:
            if _folded(sheet.name) == _folded(name) if name else sheet.is_visible:
                return sheet
        known = bounded(", ".join(repr(sheet.name) for sheet in self.sheets), _SHOWN_NAMES)
        if name:
            raise FileFailed(
                "parse",
                f"has no sheet {name!r}; set format.data_address to one of: {known or 'none'}"
                + (f"; a cell is written as Sheet!{name}" if is_cell(name) else ""),
            )
        raise FileFailed(
            "parse", f"has no visible sheet; set format.data_address to one of: {known or 'none'}"
        )


def _folded(name: str) -> str:
    """Return a name by which equal ones are found: capitals and composed letters do not count."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def open_workbook(archive: Archive) -> Workbook:
    """Read all parts but the sheets. Raises `FileFailed`."""
    root = _relations(archive, "")
    main = root.of_kind("officeDocument") if root else None
    for name, problem in _OTHERS.items():
        if name in archive or main == name:
            raise FileFailed("parse", problem)
    if main is None:
        raise FileFailed("parse", "is a zip archive, but no Excel workbook")
    relations = _relations(archive, main)
    parts = _WorkbookPart(relations or _Relations())
    _walk(archive, main, parts, EXCEL_PART_BYTES)
    found = Workbook(parts.sheets, parts.is_1904)
    if styles := parts.relations.of_kind("styles"):
        handler = _Styles()
        _walk(archive, styles, handler, EXCEL_PART_BYTES)
        found.moments = handler.moments()
    if texts := parts.relations.of_kind("sharedStrings"):
        _walk(archive, texts, _Texts(found.texts), None)
    return found


def _walk(archive: Archive, name: str, handler: Handler, most: int | None) -> None:
    for _ in walk(name, archive.blocks(name, most), handler):
        pass


class _Relations(Handler):
    """The parts that another part names: by their ids, with their kinds."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self.targets: dict[str, tuple[str, str]] = {}

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        if name != f"{PACKAGE} Relationship" or attributes.get("TargetMode") == "External":
            return
        kind = attributes.get("Type", "").rpartition("/")[2]
        target = unquote(attributes.get("Target", "")).replace("\\", "/")
        place = posixpath.normpath(posixpath.join("/", self._folder, target))
        self.targets[attributes.get("Id", "")] = (kind, part_name(place))

    def of_kind(self, kind: str) -> str | None:
        """Return the first part of a kind."""
        return next((part for each, part in self.targets.values() if each == kind), None)


def _relations(archive: Archive, part: str) -> _Relations | None:
    """Return the parts that ``part`` names; None if it has no such list."""
    folder, _, name = part.rpartition("/")
    place = posixpath.join(folder, "_rels", f"{name}.rels")
    if place not in archive:
        return None
    found = _Relations(folder)
    _walk(archive, place, found, EXCEL_PART_BYTES)
    return found


_WORKBOOK = full_names("workbookPr", "sheet")


class _WorkbookPart(Handler):
    def __init__(self, relations: _Relations) -> None:
        self.relations = relations
        self.sheets: list[Sheet] = []
        self.is_1904 = False

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        local = _WORKBOOK.get(name)
        if local == "workbookPr":
            self.is_1904 = attributes.get("date1904", "0") in {"1", "true", "on"}
        elif local == "sheet":
            key = next((attributes[name] for name in RELATION_IDS if name in attributes), "")
            kind, part = self.relations.targets.get(key, ("worksheet", ""))
            if kind == "worksheet":
                is_visible = attributes.get("state", "visible") == "visible"
                self.sheets.append(Sheet(attributes.get("name", ""), is_visible, part))


_STYLES = full_names("numFmt", "cellXfs", "xf")


class _Styles(Handler):
    def __init__(self) -> None:
        self._codes: dict[int, str] = {}
        self._formats: list[int] = []
        self._is_inside = False

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        local = _STYLES.get(name)
        if local == "numFmt":
            self._codes[int(attributes["numFmtId"])] = attributes.get("formatCode", "")
        elif local == "cellXfs":
            self._is_inside = True
        elif local == "xf" and self._is_inside:
            self._formats.append(int(attributes.get("numFmtId", "0")))

    def closed(self, name: str) -> None:
        if _STYLES.get(name) == "cellXfs":
            self._is_inside = False

    def moments(self) -> list[str]:
        """Return what numbers show, by the number of their style."""
        return [moment_kind(number, self._codes.get(number)) for number in self._formats]


_TEXTS = full_names("si", "t", "rPh")


class _Texts(Handler):
    """Shared texts: plain, or of several runs; how they are read aloud does not count."""

    def __init__(self, texts: SharedTexts) -> None:
        self._texts = texts
        self._parts: list[str] = []
        self._size = 0
        self._is_text = self._is_aloud = False

    def opened(self, name: str, attributes: dict[str, str]) -> None:  # noqa: ARG002  # of no meaning
        local = _TEXTS.get(name)
        if local == "t":
            self._is_text = not self._is_aloud
        elif local == "rPh":
            self._is_aloud = True

    def closed(self, name: str) -> None:
        local = _TEXTS.get(name)
        if local == "t":
            self._is_text = False
        elif local == "rPh":
            self._is_aloud = False
        elif local == "si":
            self._texts.add(unescaped("".join(self._parts)))
            self._parts.clear()
            self._size = 0

    def text(self, text: str) -> None:
        if self._is_text:
            self._parts.append(text)
            self._size += len(text)
            if self._size > EXCEL_TEXT_BYTES:
                raise FileFailed("parse", f"has a text of more than {EXCEL_TEXT_BYTES >> 20:,} MiB")

"""A walk over the XML of a workbook's parts, in bounded memory.

expat reads in place, and calls a handler for each tag. DTDs are refused, so there are no entities.
Names of elements come without their namespace, of which there are two: files of the kind *strict*
have their own.
"""

from __future__ import annotations

import pyexpat
from collections.abc import Iterable, Iterator

from blizzard_core.limits import EXCEL_LEVELS, EXCEL_NAMES, EXCEL_TAG_BYTES
from blizzard_py.lines.failure import FileFailed

_BLOCK_BYTES = 64 << 10
_SEPARATOR = " "
_NAMESPACES = (
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
    "http://purl.oclc.org/ooxml/spreadsheetml/main",
)
_RELATIONS = (
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    "http://purl.oclc.org/ooxml/officeDocument/relationships",
)
RELATION_IDS = tuple(f"{each}{_SEPARATOR}id" for each in _RELATIONS)
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


class Handler:
    """A consumer of one part that ignores everything.

    Elements and their attributes have their full names. It counts the ``depth`` of open elements.
    """

    depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take a start tag."""
        self.depth += 1
        self.opened(name, attributes)

    def end(self, name: str) -> None:
        """Take an end tag."""
        self.depth -= 1
        self.closed(name)

    def text(self, text: str) -> None:
        """Take text, of which an element may have several parts."""

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element."""

    def closed(self, name: str) -> None:
        """End an element."""


def full_names(*names: str) -> dict[str, str]:
    """Return the local names of a workbook's elements by their names in both namespaces."""
    return {f"{space}{_SEPARATOR}{name}": name for space in _NAMESPACES for name in names}


def walk(part: str, blocks: Iterable[bytes], handler: Handler) -> Iterator[None]:
    """Call the handler for a part, and yield after each block.

    Raises `FileFailed` if the XML is damaged, or beyond a limit.
    """
    names: dict[str, str] = {}
    parser = pyexpat.ParserCreate(None, _SEPARATOR, names)

    def doctype(*_: object) -> None:
        raise _refused(part, "has a DTD, which no workbook needs; save the file again in Excel")

    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = doctype
    size = 0
    try:
        for block in _cut(blocks):
            parser.Parse(block, False)  # takes no names
            size += len(block)
            # expat scans a token again for each block of it.
            if size - parser.CurrentByteIndex > EXCEL_TAG_BYTES:
                raise _refused(part, f"has a tag of more than {EXCEL_TAG_BYTES:,} bytes")
            if handler.depth > EXCEL_LEVELS:
                raise _refused(part, f"has elements of more than {EXCEL_LEVELS} levels")
            if len(names) > EXCEL_NAMES:
                raise _refused(part, f"has more than {EXCEL_NAMES:,} names of elements")
            yield
        parser.Parse(b"", True)  # takes no names
    except (pyexpat.ExpatError, KeyError, ValueError) as error:
        raise _refused(part, f"is damaged: {error}") from error
    yield


def _cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield small blocks: after each one the limits are checked."""
    for block in blocks:
        for at in range(0, len(block), _BLOCK_BYTES):
            yield block[at : at + _BLOCK_BYTES]


def _refused(part: str, problem: str) -> FileFailed:
    return FileFailed("parse", f"the part {part!r} {problem}")

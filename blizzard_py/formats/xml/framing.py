"""A stream of XML becomes pieces of whole records, in order and in bounded memory.

What stands between two records of a piece is blank: comments and other elements are overwritten
with blanks, so no byte moves and offsets are those of the file. A record that is never closed is
bad up to the next tag of a record or the end of its parent, and reading goes on there. What is read
again for that is limited.

If the path to records names parents, all tags behind damage must match, and no element of a
record's name may stand elsewhere. This proves that damage hid no parent, hence no record.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from functools import lru_cache

from blizzard_core.limits import (
    CHUNK_CELLS,
    LINE_CELLS,
    RAW_BYTES,
    XML_BROKEN_TAGS,
    XML_RECORD_BYTES,
    XML_REREAD_BYTES,
    XML_TOKEN_BYTES,
)
from blizzard_py.formats.xml.markup import (
    BLANKS,
    CDATA,
    CLOSING,
    DECLARES,
    DOCTYPE,
    DTD,
    END_TAG,
    LONGEST_MARK,
    NAME,
    SECTION_ENDS,
    RowNames,
    RowScanner,
    large_record_problem,
    tag_end,
)
from blizzard_py.formats.xml.parents import Parents
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import CHUNK_BYTES, Piece, RefusedRecord
from blizzard_py.lines.portions import RowShape

# Blocks are joined up to this size, so that a stream of single bytes costs no more than another.
_LEAST_BLOCK = 64 << 10
# Each byte may be read again so often.
_READ_AGAIN = 2
_SHOWN_NAMES = 20
_NAME_CHARACTERS = 40


class XmlFraming:
    """The framing of one file. A piece has about ``target`` bytes."""

    def __init__(
        self,
        names: RowNames,
        shape: RowShape,
        blocks: Iterable[bytes],
        *,
        target: int = CHUNK_BYTES,
        limit: int = XML_RECORD_BYTES,
        least: int = _LEAST_BLOCK,
    ) -> None:
        self._names = names
        self._shape = shape
        self._stream = iter(blocks)
        self._target = target
        self._limit = limit
        self._least = least
        self._data = bytearray()
        self._base = 0  # the offset of the first byte held; all other places count from it
        self._at = 0  # what comes next
        self._row = -1  # the start of the open record
        self._passes = False  # whether the open record is too long to be held
        self._first = 0  # the start of the piece to come
        self._gap = 0  # the end of the last record
        self._lines = 0  # records of the piece to come
        self._cells = 0
        self._header = b""  # of the piece to come
        self._parents = Parents(names)
        self._found = 0
        self._others: dict[bytes, None] = {}  # names of elements within the root
        self._has_root = False
        self._broken = -1  # the offset of a tag that is none, since the last record
        self._broken_tags = 0
        self._is_unsure = False  # whether damage may have hidden tags of parents
        self._again = 0
        self._out: list[Piece | RefusedRecord] = []

    def pieces(self) -> Iterator[Piece | RefusedRecord]:
        """Yield the records. Raises `FileFailed` where the structure around them is wrong."""
        while len(self._data) < len(BOM_UTF8) and self._more():
            pass
        if self._data.startswith(BOM_UTF8):
            self._at = self._gap = len(BOM_UTF8)
        while self._to_row():
            self._take_row()
            yield from self._out
            self._out.clear()
        self._flush()
        yield from self._out
        self._check_end()

    # --- the bytes that are held -----------------------------------------------------------------

    def _more(self) -> bool:
        """Hold another block, and drop what is not needed. Return False at the end."""
        parts: list[bytes] = []
        size = 0
        while size < self._least and (block := next(self._stream, None)) is not None:
            parts.append(block)
            size += len(block)
        if not size:
            return False
        if self._lines and self._row < 0 and self._at - self._gap > RAW_BYTES:
            self._flush()
        needed = self._first if self._lines else self._at - RAW_BYTES
        if not self._lines and self._row >= 0:
            needed = self._at if self._passes else self._row
        if needed > 0:
            del self._data[:needed]
            self._base += needed
            self._at -= needed
            self._row -= needed if self._row >= 0 or self._passes else 0
            self._first -= needed
            self._gap -= needed
        self._data += b"".join(parts)
        return True

    def _offset(self, place: int) -> int:
        return self._base + place

    # --- outside of records ----------------------------------------------------------------------

    def _to_row(self) -> bool:
        """Go on to the next record. Return False at the end of the file."""
        while True:
            at = self._data.find(b"<", self._at)
            self._at = len(self._data) if at < 0 else at
            if at < 0:
                if not self._more():
                    return False
            elif self._parents.fits and self._names.start.match(self._data, at):
                return True
            else:
                self._markup()

    def _markup(self) -> None:
        head = bytes(self._data[self._at : self._at + len(CDATA)])
        for opening in CLOSING:
            if head.startswith(opening):
                self._at += len(opening)
                self._pass_over(opening)
                return
        if head.startswith(DOCTYPE):
            self._doctype()
        elif len(head) < len(CDATA) and self._more():
            pass  # it may be any of these
        elif head.startswith(b"</"):
            self._end_tag()
        else:
            self._start_tag()

    def _pass_over(self, opening: bytes) -> None:
        start = self._offset(self._at)
        while (match := SECTION_ENDS[opening].search(self._data, self._at)) is None:
            self._at = max(self._at, len(self._data) - LONGEST_MARK + 1)
            if not self._more():
                raise _damaged("the file ends in a comment or instruction that begins", start)
        if match[0] == opening:
            raise _damaged("a comment or instruction that is not closed begins", start)
        self._at = match.end()

    def _doctype(self) -> None:
        if self._parents:
            raise _damaged("a DTD within the root element", self._offset(self._at))
        while True:
            match = DTD.match(self._data, self._at)
            end = len(self._data) if match is None else match.end()
            if DECLARES.search(self._data, self._at, end):
                raise FileFailed(
                    "parse",
                    "its DTD declares entities or attributes, which are not read; write the file"
                    " without them",
                )
            if match is not None and end - self._at <= XML_TOKEN_BYTES:
                self._at = end
                return
            if end - self._at > XML_TOKEN_BYTES or not self._more():
                raise _damaged("a DTD that is not closed, or too long,", self._offset(self._at))

    def _start_tag(self) -> None:
        while True:
            name = NAME.match(self._data, self._at + 1)
            state, end = tag_end(self._data, self._at, name.end()) if name else ("broken", 0)
            if state != "cut" or not self._more():
                break
        if name is None or state != "whole":
            self._skip_broken()
            return
        tag = bytes(self._data[self._at : end])
        if len(self._parents) == 1 and len(self._others) < _SHOWN_NAMES:
            self._others[name[0]] = None
        self._has_root = True
        if self._names.is_own(name[0]):
            if self._parents.fits:
                return  # its name was cut before; now it is held
            if self._is_unsure:
                what = "behind damage, an element of row_tag in another parent"
                raise _damaged(what, self._offset(self._at))
            self._parents.pass_row()
        self._at = end
        self._parents.open(name[0], tag)
        if tag.endswith(b"/>"):
            self._parents.close()

    def _skip_broken(self) -> None:
        if self._broken < 0:
            self._broken = self._offset(self._at)
        self._broken_tags += 1
        if self._broken_tags > XML_BROKEN_TAGS:
            raise _damaged("too many tags that are none, the last", self._offset(self._at))
        self._at += 1

    def _end_tag(self) -> None:
        match = END_TAG.match(self._data, self._at)
        while match is None:
            rest = self._data.find(b">", self._at)
            if rest >= 0 or len(self._data) - self._at > XML_TOKEN_BYTES or not self._more():
                raise _damaged("an end tag that is none", self._offset(self._at))
            match = END_TAG.match(self._data, self._at)
        name = match[1]
        start, self._at = self._at, match.end()
        if self._parents.innermost == name:
            self._parents.close()
        elif self._names.is_own(name):
            self._close_stray(match.end())
        elif self._names.parents or not self._is_unsure:
            shown = bounded(name.decode("utf-8", "replace"), _NAME_CHARACTERS)
            raise _damaged(f"</{shown}> closes another element", self._offset(start))
        else:
            self._parents.close_to(name)

    def _close_stray(self, end: int) -> None:
        """Refuse a record whose start tag is damaged: all from the last record to its end."""
        if not self._parents.close_unfit():
            raise _damaged("the tag of a parent may be damaged, before", self._offset(end))
        start = max(self._gap, end - RAW_BYTES, 0)
        start += len(self._data[start:end]) - len(self._data[start:end].lstrip(BLANKS))
        self._is_unsure = True
        if self._broken >= self._offset(self._gap):
            self._broken = -1  # it was the record's
        self._refuse(start, end, "its start tag is damaged")

    # --- records ---------------------------------------------------------------------------------

    def _take_row(self) -> None:
        """Add the record that begins here, or refuse it."""
        self._check_tags()
        self._row = self._at
        scanner = RowScanner(self._names)
        head = b""
        while True:
            end, self._at = scanner.scan(self._data, self._at)
            if end or scanner.is_broken:
                break
            if not self._passes and len(self._data) - self._row > self._limit:
                self._flush()
                self._passes = True
                head = bytes(self._data[self._row : self._row + RAW_BYTES])
            if not self._more():
                break
        row, passes = self._row, self._passes
        self._row, self._passes = -1, False
        if passes and not end:
            raise _damaged("a record that is never closed", self._offset(row))
        if scanner.swallows:
            self._check_swallowed(row, end)
        self._has_root = True
        if not end:
            self._at = row
            self._recover("its tag is not well-formed" if scanner.is_broken else "is never closed")
        elif passes or end - row > self._limit:
            head = head or bytes(self._data[row : row + RAW_BYTES])
            self._refuse(row, end, f"longer than {self._limit:,} bytes", head[: end - row])
        elif scanner.problem:
            self._refuse(row, end, scanner.problem)
        else:
            self._add(row, end)

    def _check_swallowed(self, row: int, end: int) -> None:
        """Fail where a letter would not show all that a CDATA section has swallowed."""
        if end - row > RAW_BYTES:
            raise _damaged("a CDATA section that is not closed, in the record", self._offset(row))

    def _add(self, row: int, end: int) -> None:
        problem = ""
        cells = self._shape.columns
        if end - row > XML_TOKEN_BYTES:
            problem = large_record_problem(bytes(self._data[row:end]))
        if self._shape.inner:
            cells += self._data.count(b"<", row, end) * self._shape.inner
            if cells > LINE_CELLS:
                problem = f"may become more than {LINE_CELLS:,} values"
        if problem:
            self._refuse(row, end, problem)
            return
        header = self._parents.header
        if self._lines and (header != self._header or self._cells + cells > CHUNK_CELLS):
            self._flush()
        if not self._lines:
            self._first, self._header = row, header
        elif self._data[self._gap : row].strip(BLANKS):
            self._data[self._gap : row] = b" " * (row - self._gap)
        self._lines += 1
        self._cells += cells
        self._found += 1
        self._gap = end
        if end - self._first >= self._target:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            data = bytes(self._data[self._first : self._gap])
            self._out.append(
                Piece(
                    data,
                    self._offset(self._first),
                    self._cells,
                    lines=self._lines,
                    context=self._header,
                )
            )
        self._lines = self._cells = 0

    def _refuse(self, start: int, end: int, reason: str, head: bytes = b"") -> None:
        self._flush()
        head = head or bytes(self._data[start : min(end, start + RAW_BYTES)])
        self._out.append(
            RefusedRecord(
                self._offset(start), end - start, head, reason, header=self._parents.header
            )
        )
        self._found += 1
        self._gap = end

    def _recover(self, reason: str) -> None:
        """Refuse all up to the next tag of a record or the end of the parent."""
        start = self._row = self._at
        pattern = _resumption(self._names, self._parents.innermost)
        self._at += 1
        while (match := pattern.search(self._data, self._at)) is None:
            start = self._row
            last = self._data.rfind(b"<", max(self._at, len(self._data) - XML_TOKEN_BYTES))
            self._at = len(self._data) if last < 0 else last
            if len(self._data) - start > self._limit:
                raise _damaged("no record follows the damage", self._offset(start))
            if not self._more():
                break
        start, self._row = self._row, -1
        end = len(self._data) if match is None else match.start()
        self._again += len(self._data) - end
        if self._again > XML_REREAD_BYTES + _READ_AGAIN * self._offset(len(self._data)):
            raise FileFailed("parse", "has too many records that are never closed")
        self._at, self._is_unsure = end, True
        self._refuse(start, start + len(self._data[start:end].rstrip(BLANKS)), reason)

    def _check_tags(self) -> None:
        if self._broken >= 0:
            raise _damaged("a tag that is none", self._broken)

    def _check_end(self) -> None:
        if self._parents:
            name = bounded(self._parents.innermost.decode("utf-8", "replace"), _NAME_CHARACTERS)
            raise _damaged(f"the file ends within <{name}>", self._offset(len(self._data)))
        self._check_tags()
        if not self._has_root:
            raise FileFailed("parse", "has no element; is it XML?")
        if not self._found and self._others and not self._parents.has_fitted:
            names = b", ".join(self._others).decode("utf-8", "replace")
            raise FileFailed(
                "parse",
                "has no element of row_tag; set format.row_tag to one of these or below them:"
                f" {bounded(names)}",
            )


@lru_cache(maxsize=16)
def _resumption(names: RowNames, parent: bytes) -> re.Pattern[bytes]:
    return names.resumption(parent)


def _damaged(what: str, offset: int) -> FileFailed:
    return FileFailed("parse", f"{what} at byte {offset:,}; write the file again")

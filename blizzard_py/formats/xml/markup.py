"""The lexical rules of XML, as far as records are found by them. Pure.

In well-formed XML a ``<`` stands only where a tag, a comment, a CDATA section, an instruction or a
DTD begins. So a record ends where as many tags of its name were closed as opened. Expat decides
later whether it is well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from blizzard_core.limits import XML_ELEMENTS, XML_LEVELS, XML_TOKEN_BYTES

BLANKS = b" \t\r\n"
COMMENT, CDATA, INSTRUCTION, DOCTYPE = b"<!--", b"<![CDATA[", b"<?", b"<!DOCTYPE"
CLOSING = {COMMENT: b"-->", CDATA: b"]]>", INSTRUCTION: b"?>"}
# Where a comment, a section or an instruction ends. If another one begins in it, its own end was
# destroyed: it would swallow records.
SECTION_ENDS = {
    opening: re.compile(re.escape(closing) + b"|" + re.escape(opening))
    for opening, closing in CLOSING.items()
}
LONGEST_MARK = len(CDATA)
NAME = re.compile(rb"[A-Za-z_:\x80-\xff][^ \t\r\n<>/\"'=]*+(?=[ \t\r\n/>]|\Z)")
END_TAG = re.compile(rb"</([^ \t\r\n<>]++)[ \t\r\n]*+>")
DTD = re.compile(
    rb"<!DOCTYPE(?:(?>[^\[\]<>\"']++|\"[^\"]*+\"|'[^']*+'))*+"
    rb"(?:(?>\[(?:(?>[^\]\"'<]++|\"[^\"]*+\"|'[^']*+'|<!--.*?-->|<\?.*?\?>|<(?!!--|\?)))*+\]"
    rb"[ \t\r\n]*+))?+>",
    re.DOTALL,
)
# Entities grow, and default values would have to be added to each element.
DECLARES = re.compile(rb"<!(?:ENTITY|ATTLIST)")
# A namespace's prefix is not longer.
_PREFIX_BYTES = 256
_PREFIX = rb"(?:[^ \t\r\n<>/:\"'=]{1,%d}:)?" % _PREFIX_BYTES
_BEHIND_NAME = rb"(?=[ \t\r\n/>])"
_ATTRIBUTES = rb"(?:(?>[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+'))*+"
_TAG_REST = re.compile(_ATTRIBUTES)
_END_REST = re.compile(rb"[ \t\r\n]*+")
_TOKEN = re.compile(
    rb"<(?:!--.*?-->|!\[CDATA\[.*?\]\]>|\?.*?\?>|(?P<tag>/?)" + _ATTRIBUTES + rb">)", re.DOTALL
)
_EMPTY, _CLOSE = b"/>"
_OR_LONG = f"or of more than {XML_TOKEN_BYTES:,} bytes"


class RowNames:
    """The names on the path to a record, the last one its own."""

    def __init__(self, path: Sequence[str], *, ignore_namespace: bool) -> None:
        names = [name.encode() for name in path]
        self.parents = tuple(names[:-1])
        self._ignores = ignore_namespace
        self.own = self._pattern(names[-1])
        self.start = re.compile(b"<" + self.own + _BEHIND_NAME)
        self.within = re.compile(
            b"<(?:(/?)" + self.own + _BEHIND_NAME + rb"|!--|!\[CDATA\[|\?)",
        )
        # What stands in a CDATA section that swallows a tag of a record, and another section.
        self.in_cdata = re.compile(
            SECTION_ENDS[CDATA].pattern + b"|</?" + self.own + _BEHIND_NAME,
        )
        # A token whose name is not longer begins so near to the end of what was read.
        self.look_back = len(names[-1]) + _PREFIX_BYTES + len(CDATA)
        self._is_own = re.compile(self.own)

    def is_own(self, name: bytes) -> bool:
        """Return whether it is the name of a record."""
        return self._is_own.fullmatch(name) is not None

    def fits(self, names: Sequence[bytes]) -> bool:
        """Return whether elements of these names, from the root on, may hold a record."""
        if not self.parents:
            return True
        last = names[-len(self.parents) :]
        if self._ignores:
            last = [name.rpartition(b":")[2] for name in last]
        return tuple(last) == self.parents

    def resumption(self, parent: bytes) -> re.Pattern[bytes]:
        """Return where reading goes on behind damage: a record's start or the parent's end."""
        end = b"|</" + re.escape(parent) + rb"(?=[ \t\r\n>])" if parent else b""
        return re.compile(self.start.pattern + end)

    def _pattern(self, name: bytes) -> bytes:
        return (_PREFIX if self._ignores else b"") + re.escape(name)


Tag = Literal["whole", "cut", "broken"]


def tag_end(data: bytes | bytearray, begin: int, at: int) -> tuple[Tag, int]:
    """Return the place behind a start tag that stands at ``begin``, with its name up to ``at``.

    ``cut``: it may go on behind the data. ``broken``: it is none.
    """
    match = _TAG_REST.match(data, at)
    end = match.end() if match else at
    if end < len(data):
        if data[end] == _CLOSE:
            return ("whole" if end - begin < XML_TOKEN_BYTES else "broken"), end + 1
        if data.find(b"<", end) >= 0:
            return "broken", end
    return ("cut" if len(data) - begin <= XML_TOKEN_BYTES else "broken"), end


def section_end(data: bytes | bytearray, begin: int, opening: bytes) -> tuple[Tag, int]:
    """Return the place behind a comment or an instruction within a record.

    ``broken``: it is none, and the place is behind its first mark.
    """
    match = SECTION_ENDS[opening].search(data, begin + len(opening))
    end = len(data) if match is None else match.end()
    if end - begin > XML_TOKEN_BYTES or (match is not None and match[0] == opening):
        return "broken", begin + len(opening)
    return ("cut" if match is None else "whole"), end


@dataclass(slots=True)
class RowScanner:
    """The search for the end of one record, which may go on when there is more data.

    ``is_broken`` if its start tag is none. ``problem`` is why it is bad all the same, and
    ``swallows`` whether other records may be in it.
    """

    names: RowNames
    depth: int = 0
    is_broken: bool = False
    problem: str = ""
    swallows: bool = False
    _in_cdata: bool = False
    _has_tag: bool = False

    def scan(self, data: bytes | bytearray, at: int) -> tuple[int, int]:
        """Return the end of the record, or 0, and the place where the search goes on."""
        while True:
            if self._in_cdata:
                at = self._leave_cdata(data, at)
            if self._in_cdata:
                return 0, at
            match = self.names.within.search(data, at)
            if match is None:
                last = data.rfind(b"<", max(at, len(data) - self.names.look_back))
                return 0, len(data) if last < 0 else last
            begin, at = match.span()
            if match[1] is None:
                is_held, at = self._section(data, begin, match[0])
                if not is_held:
                    return 0, at
                continue
            if data[at] == _CLOSE:
                self.depth += -1 if match[1] else 1
                is_whole, at = True, at + 1
            else:
                is_whole, at = self._tag(data, begin, at, is_end=bool(match[1]))
            if not is_whole:
                return 0, at
            if not self.depth:
                return at, at

    def _section(self, data: bytes | bytearray, begin: int, opening: bytes) -> tuple[bool, int]:
        """Return whether the search goes on without more data, and where."""
        if opening == CDATA:
            self._in_cdata, self._has_tag = True, False
            return True, begin + len(CDATA)
        state, end = section_end(data, begin, opening)
        if state == "cut":
            return False, begin
        if state == "broken":
            self.problem = f"has a comment or instruction that is not closed, {_OR_LONG}"
        return True, end

    def _leave_cdata(self, data: bytes | bytearray, at: int) -> int:
        """Return the place behind a CDATA section, or where the search for its end goes on."""
        while match := self.names.in_cdata.search(data, at):
            at = match.end()
            if match[0] == CLOSING[CDATA]:
                self._in_cdata = False
                return at
            if match[0] != CDATA:
                self._has_tag = True
            elif self._has_tag:
                self.swallows = True
                self.problem = "has a CDATA section with a tag of a record and another section"
        return max(at, len(data) - self.names.look_back)

    def _tag(
        self, data: bytes | bytearray, begin: int, at: int, *, is_end: bool
    ) -> tuple[bool, int]:
        """Count a tag of the record's name; False if there must be more data, or if it is broken.

        Also return where the search goes on.
        """
        state, end = _end_tag(data, at) if is_end else tag_end(data, begin, at)
        if state == "cut":
            return False, begin
        if is_end:
            self.depth -= 1
        elif state == "whole":
            self.depth += data[end - 2] != _EMPTY
        elif self.depth:
            return True, at  # expat will refuse the record
        else:
            self.is_broken = True
            return False, begin
        return True, end


def _end_tag(data: bytes | bytearray, at: int) -> tuple[Tag, int]:
    """Return the place behind an end tag; one that is not closed ends behind its name."""
    match = _END_REST.match(data, at)
    end = match.end() if match else at
    if end == len(data) and end - at <= XML_TOKEN_BYTES:
        return "cut", end
    return "whole", end + 1 if end < len(data) and data[end] == _CLOSE else at + 1


def row_places(data: bytes, names: RowNames) -> list[tuple[int, int]]:
    """Return the starts and ends of the records in a piece."""
    found: list[tuple[int, int]] = []
    at = data.find(b"<")
    while at >= 0:
        end, _ = RowScanner(names).scan(data, at)
        end = end or len(data)  # blanks behind an end tag that is not closed
        found.append((at, end))
        at = data.find(b"<", end)
    return found


def large_record_problem(record: bytes) -> str:
    """Return why expat must not get a record above 1 MiB, or an empty text."""
    depth = count = 0
    for token in _TOKEN.finditer(record):
        begin, end = token.span()
        is_end = token["tag"]
        if end - begin > XML_TOKEN_BYTES and not record.startswith(CDATA, begin):
            return f"has a tag or comment of more than {XML_TOKEN_BYTES:,} bytes"
        if is_end is None:
            continue
        if is_end:
            depth -= 1
            continue
        count += 1
        if count > XML_ELEMENTS:
            return f"has more than {XML_ELEMENTS:,} elements"
        if record[end - 2] != _EMPTY:
            depth += 1
            if depth > XML_LEVELS:
                return TOO_DEEP
    return ""


TOO_DEEP = f"has elements of more than {XML_LEVELS} levels"

"""Starts and ends of the elements of an array, or of objects behind each other.

An element is an object, an array, a string or other text up to a comma, a bracket or a blank. Its
brackets are counted outside of strings; its content is not decoded. Between elements stands one
comma, or nothing but blanks where there is no array around them.

Slices of a regular shape are scanned with arrays. `Elements._walk` scans all others, and finds the
same in any slice. It alone reports errors, so that they name the first wrong byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blizzard_py.formats.json_documents.text import damaged
from blizzard_py.lines.failure import FileFailed

Positions = npt.NDArray[np.int64]

_BLANKS = re.compile(rb"[ \t\r\n]*+")
# A backslash outside of a string is an error of its record; it escapes only these two.
_PLAIN = re.compile(rb'[^"\\]*+(?:(?>\\[\s\S][^"\\]*+))*+')
_UNBRACKETED = re.compile(rb'[^"\\{}\[\]]*+(?:(?>\\(?:["\\]|(?=[^"\\]))[^"\\{}\[\]]*+))*+')
_SCALAR = re.compile(rb'[^ \t\r\n,"{}\[\]]*+')
_BETWEEN = re.compile(rb"[ \t\r\n]*+,[ \t\r\n]*+")
_BEHIND = re.compile(rb"[ \t\r\n]*+(,?)[ \t\r\n]*+")
_BEFORE = {
    "": _BLANKS,
    "element": _BLANKS,
    "separator": _BETWEEN,
}
_QUOTE, _ESCAPE, _COMMA, _BRACE = b'"\\,{'
_OPENING = b"{["
_END_ARRAY = b"]"[0]
# Longer gaps are compared one by one.
_GAP_BYTES = 64


@dataclass(frozen=True, slots=True)
class Found:
    """The elements that begin and end in a slice; the first end may be of an earlier start.

    ``end`` is where the array ends, or the slice.
    """

    starts: Positions
    ends: Positions
    end: int


class Elements:
    """A scanner of consecutive slices, which begin behind the array's bracket at ``offset``.

    Without ``array`` the slices are objects behind each other.
    """

    def __init__(self, offset: int, *, array: bool, fast: bool = True) -> None:
        self.offset = offset
        self.is_done = False
        self.is_array = array
        self._fast = fast
        # What comes next outside of elements: "" is an element or the end of the array.
        self._expected = ""
        self._opener = 0  # the first byte of the open element
        self._depth = 0
        self._in_string = False
        self._escaping = False

    @property
    def is_open(self) -> bool:
        """Return whether an element has begun and not ended."""
        return self._opener > 0

    def scan(self, data: bytearray) -> Found:
        """Return the elements of the next slice. Raises `FileFailed` at the first wrong byte."""
        found = self._scan(data) if self._fast else None
        if found is None:
            found = self._walk(data)
        self.offset += found.end
        return found

    def _scan(self, data: bytearray) -> Found | None:
        """Return the elements of a regular slice; None, and no change, for any other."""
        if self._opener and not self._depth:
            return None  # a string or a number
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)
        escaping = False
        if self._escaping or _ESCAPE in data:
            quotes, escaping = _unescaped(array, quotes, escaping=self._escaping)
        lowered = array | 0x20  # [ and { become {, ] and } become }
        at = np.flatnonzero((lowered == 0x7B) | (lowered == 0x7D))
        at = at[(np.searchsorted(quotes, at) + self._in_string) & 1 == 0]
        kinds = array[at]
        steps = (kinds & 2).astype(np.int64) - 1
        depths = np.cumsum(steps) + self._depth
        end = len(data)
        over = len(depths) > 0 and int(depths.min()) < 0
        if over:
            last = int(np.argmax(depths < 0))
            end = int(at[last])
            if not self.is_array or data[end] != _END_ARRAY:
                return None
            at, steps, depths = at[:last], steps[:last], depths[:last]
        starts = at[(depths == 1) & (steps > 0)]
        ends = at[(depths == 0) & (steps < 0)] + 1
        openers = array[starts]
        if not self.is_array and (openers != _BRACE).any():
            return None
        if self._opener:
            openers = np.concatenate([np.array([self._opener], np.uint8), openers])
        if (openers[: len(ends)] + 2 != array[ends - 1]).any():
            return None
        found = Found(starts, ends, end)
        expected = self._check_gaps(data, array, found, over=over)
        if expected is None:
            return None
        self._expected = expected
        self._opener = 0 if len(openers) == len(ends) else int(openers[-1])
        self._depth = int(depths[-1]) if len(depths) else self._depth
        self._in_string = not over and bool((len(quotes) + self._in_string) & 1)
        self._escaping = not over and escaping
        self.is_done = over
        return found

    def _check_gaps(
        self, data: bytearray, array: npt.NDArray[np.uint8], found: Found, *, over: bool
    ) -> str | None:
        """Return what is expected behind the slice, or None if a gap is not regular."""
        starts, ends = found.starts, found.ends
        if not self._opener:
            if not len(starts):
                return None
            before = _BEFORE[self._expected] if self.is_array else _BLANKS
            if not before.fullmatch(data, 0, int(starts[0])):
                return None
            starts = starts[1:]
        between = _BETWEEN if self.is_array else _BLANKS
        if len(starts) and not _is_each(between, data, array, ends[: len(starts)], starts):
            return None
        if len(ends) == len(starts):
            return self._expected  # an element is open
        behind = _BEHIND.fullmatch(data, int(ends[-1]), found.end)
        if behind is None or (behind[1] and (over or not self.is_array)):
            return None
        return "element" if behind[1] else "separator"

    def _walk(self, data: bytearray) -> Found:
        starts: list[int] = []
        ends: list[int] = []
        at, size = 0, len(data)
        while at < size:
            if self._opener:
                at = self._walk_element(data, at)
                if not self._opener:
                    ends.append(at)
                    self._expected = "separator"
                continue
            at = _end(_BLANKS, data, at)
            if at == size:
                break
            byte = data[at]
            if self.is_array and byte == _END_ARRAY and self._expected != "element":
                self.is_done = True
                size = at
            elif self.is_array and byte == _COMMA and self._expected == "separator":
                self._expected = "element"
                at += 1
            else:
                self._check_start(byte, self.offset + at)
                starts.append(at)
                self._opener = byte
                self._depth = int(byte in _OPENING)
                self._in_string = byte == _QUOTE
                at += self._depth or self._in_string
        return Found(np.array(starts, np.int64), np.array(ends, np.int64), size)

    def _check_start(self, byte: int, offset: int) -> None:
        """Raise `FileFailed` where no element may begin."""
        if not self.is_array:
            if byte != _BRACE:
                raise damaged("an object is expected behind the one before", offset)
            return
        if byte in b",]":
            raise damaged("a record is missing before " + repr(chr(byte)), offset)
        if self._expected == "separator":
            raise damaged("a comma or the end of the array is expected", offset)
        if byte in b"}:\0":
            raise damaged(f"{chr(byte)!r} has no place between records", offset)

    def _walk_element(self, data: bytearray, at: int) -> int:
        """Return how far the open element goes in the data; at its end it is not open any more."""
        if not self._depth and not self._in_string:
            at = _end(_SCALAR, data, at)
            if at < len(data):
                self._opener = 0
            return at
        while at < len(data):
            if self._escaping:
                self._escaping = False
                at += 1 if self._in_string or data[at] in b'"\\' else 0
                continue
            at = _end(_PLAIN if self._in_string else _UNBRACKETED, data, at)
            if at == len(data):
                break
            byte = data[at]
            at += 1
            if byte == _ESCAPE:
                self._escaping = True
                continue
            if byte == _QUOTE:
                self._in_string = not self._in_string
            else:
                self._depth += 1 if byte in _OPENING else -1
            if not self._depth and not self._in_string:
                if self._opener in _OPENING and byte != self._opener + 2:
                    raise damaged(
                        f"{chr(byte)!r} closes a record that begins with {chr(self._opener)!r}",
                        self.offset + at - 1,
                    )
                self._opener = 0
                break
        return at


def is_one_element(text: bytes) -> bool:
    """Return whether a text is one element of an array, from its first byte to its last."""
    elements = Elements(0, array=True, fast=False)
    try:
        found = elements.scan(bytearray(text + b"]"))
    except FileFailed:
        return False
    places = (found.starts.tolist(), found.ends.tolist(), found.end)
    return places == ([0], [len(text)], len(text))


def _unescaped(
    array: npt.NDArray[np.uint8], quotes: Positions, *, escaping: bool
) -> tuple[Positions, bool]:
    """Return the quotes that no backslash escapes, and whether the last byte escapes the next."""
    slashes = np.flatnonzero(array == _ESCAPE)
    if escaping:
        quotes = quotes[1:] if len(quotes) and quotes[0] == 0 else quotes
        slashes = slashes[1:] if len(slashes) and slashes[0] == 0 else slashes
    if not len(slashes):
        return quotes, False
    index = np.arange(len(slashes))
    begins = np.concatenate([[True], np.diff(slashes) != 1])
    run = np.maximum.accumulate(np.where(begins, index, 0))
    behind = slashes[(index - run) & 1 == 0] + 1  # every second backslash of a run escapes
    is_escaped = np.zeros(len(array) + 1, np.bool_)
    is_escaped[behind] = True
    return quotes[~is_escaped[quotes]], bool(is_escaped[-1])


def _is_each(
    pattern: re.Pattern[bytes],
    data: bytearray,
    array: npt.NDArray[np.uint8],
    begins: Positions,
    ends: Positions,
) -> bool:
    """Return whether each gap matches; most are equal to the first, which costs least."""
    first = data[int(begins[0]) : int(ends[0])]
    if not pattern.fullmatch(first):
        return False
    equal = ends - begins == len(first)
    if len(first) > _GAP_BYTES:
        equal[:] = False
    else:
        places = begins[equal]
        same = np.ones(len(places), np.bool_)
        for index, byte in enumerate(first):
            same &= array[places + index] == byte
        equal[equal] = same
    return all(
        pattern.fullmatch(data, begin, end)
        for begin, end in zip(begins[~equal].tolist(), ends[~equal].tolist(), strict=True)
    )


def _end(pattern: re.Pattern[bytes], data: bytearray, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at

r"""The lexical rules of CSV, as pyarrow's reader has them: where records and fields end. Pure.

A quote opens only at the start of a field, so ``5" disk`` is text. A doubled quote within quotes is
one quote. After the closing quote the rest of the field is text. A record ends at ``\n``, ``\r`` or
``\r\n`` outside quotes. Empty lines are no records, and neither are comments, which are lines that
begin with the comment character where a record may begin.

Where each quote of the data stands as RFC 4180 has it, the number of quotes before a place tells
whether it is within quotes. Such data is searched by arrays; all other data by a regular expression
with possessive quantifiers, whose time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

_LINE_END = rb"(?:\r\n|\n|\r)"
_NEWLINE, _RETURN = b"\n\r"
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dialect:
    """The characters with a meaning, as UTF-8; each is one byte, ``b""`` for none."""

    delimiter: bytes
    quote: bytes
    escape: bytes
    comment: bytes

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        """A comment, or one record, with its line end."""
        delimiter, quote, escape = map(re.escape, (self.delimiter, self.quote, self.escape))
        plain = rb"[^%b\r\n]*+" % delimiter
        if escape:
            plain = rb"(?:[^%b\r\n%b]|%b.)*+" % (delimiter, escape, escape)
        field = plain
        if quote:
            other = rb"[^%b%b]" % (quote, escape)
            escaped = rb"|%b." % escape if escape else b""
            inner = rb"(?:%b|%b%b%b)*+" % (other, quote, quote, escaped)
            field = rb"(?:%b%b%b%b|(?!%b)%b)" % (quote, inner, quote, plain, quote, plain)
        record = rb"(?:%b(?:%b%b)*+)%b" % (field, delimiter, field, _LINE_END)
        if self.comment:
            record = rb"%b[^\r\n]*+%b|%b" % (re.escape(self.comment), _LINE_END, record)
        return re.compile(record, re.DOTALL)

    @cached_property
    def _is_bound(self) -> npt.NDArray[np.bool_]:
        """Flags of the bytes that may stand beside the quotes of a field."""
        return np.isin(np.arange(256), list(self.delimiter + b"\r\n"))

    def records_end(self, data: bytes, *, final: bool) -> int:
        r"""Return how many bytes of the data are whole records; the data begins with one.

        Without ``final`` a ``\r`` at the end may be the first half of ``\r\n``.
        """
        quotes = self._plain_quotes(data)
        if quotes is None:
            return self._searched_end(data, final=final)
        end = _last_line_end(data, len(data), final=final)
        while end:
            before = int(np.searchsorted(quotes, end))
            if before % 2 == 0:
                break
            end = _last_line_end(data, int(quotes[before - 1]), final=True)
        return end

    def _searched_end(self, data: bytes, *, final: bool) -> int:
        at = 0
        while match := self._record.match(data, at):
            if not final and match.end() == len(data) and data.endswith(b"\r"):
                break
            at = match.end()
        return at

    def _plain_quotes(self, data: bytes) -> Positions | None:
        """Return the places of quotes if all stand as RFC 4180 has them; None if one does not."""
        if (self.escape and self.escape in data) or (self.comment and self.comment in data):
            return None
        if not self.quote or self.quote not in data:
            return np.arange(0)
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == self.quote[0])
        opening, closing = quotes[0::2], quotes[1::2]
        before = self._is_bound[array[opening - 1]]
        before[0] |= opening[0] == 0
        # A doubled quote closes and opens again.
        doubled = np.zeros(len(opening), np.bool_)
        doubled[1:] = closing[: len(opening) - 1] + 1 == opening[1:]
        after = np.append(self._is_bound[array], True)[closing + 1]  # the end
        reopened = np.zeros(len(closing), np.bool_)
        reopened[: len(opening) - 1] = doubled[1 : len(closing) + 1]
        plain = (before | doubled).all() and (after | reopened).all()
        return quotes if plain else None

    def records(self, data: bytes) -> Records:
        """Return where the records of ``data`` stand, which are whole."""
        quotes = self._plain_quotes(data)
        if quotes is None:
            return _records_of(list(self._walk(data)))
        array = np.frombuffer(data, np.uint8)
        ends = _line_ends(data, array)
        within = np.searchsorted(quotes, ends) % 2 == 1
        # The line of each record's first byte is the number of line ends before it.
        lines = np.arange(1, len(ends) + 1)[~within]
        ends = ends[~within]
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        first_lines = np.concatenate([[0], lines[:-1]]).astype(np.int64)
        if len(starts):
            first = array[starts]
            filled = (first != _NEWLINE) & (first != _RETURN)
            starts, ends, first_lines = starts[filled], ends[filled], first_lines[filled]
        return Records(starts, ends, first_lines)

    def _walk(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        at = line = 0
        while match := self._record.match(data, at):
            text = match[0]
            is_comment = bool(self.comment) and text.startswith(self.comment)
            if text[0] not in b"\r\n" and not is_comment:
                yield at, match.end(), line
            line += count_lines(text)
            at = match.end()

    def first_record(self, data: bytes) -> int:
        """Return the length of the first record, comment or empty line; 0 if it is not whole."""
        match = self._record.match(data)
        return match.end() if match else 0


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a piece: where each begins and ends, and the line that it begins in, from 0."""

    starts: Positions
    ends: Positions
    lines: Positions


def count_lines(data: bytes) -> int:
    r"""Return the number of line ends; ``\r\n`` is one."""
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def first_line(data: bytes) -> int:
    """Return the length of the first line with its end."""
    match = re.search(_LINE_END, data)
    return match.end() if match else len(data)


def _last_line_end(data: bytes, until: int, *, final: bool) -> int:
    newline = data.rfind(b"\n", 0, until)
    last = until if final or until < len(data) else until - 1
    return max(newline, data.rfind(b"\r", 0, last)) + 1


def _line_ends(data: bytes, array: npt.NDArray[np.uint8]) -> Positions:
    r"""Return the place behind each line end; ``\r\n`` is one."""
    if b"\r" not in data:
        return np.flatnonzero(array == _NEWLINE) + 1
    newline = array == _NEWLINE
    lone = array == _RETURN
    lone[:-1] &= ~newline[1:]
    return np.flatnonzero(newline | lone) + 1


def _records_of(found: list[tuple[int, int, int]]) -> Records:
    table = np.array(found, np.int64).reshape(-1, 3)
    return Records(table[:, 0], table[:, 1], table[:, 2])

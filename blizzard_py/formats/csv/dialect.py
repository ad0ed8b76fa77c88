r"""The lexical rules of CSV, as pyarrow's reader has them: where records and fields end. Pure.

A quote opens only at the start of a field, so ``5" disk`` is text. A doubled quote within quotes is
one quote. After the closing quote the rest of the field is text. A record ends at ``\n``, ``\r`` or
``\r\n`` outside quotes. Empty lines are no records, and neither are comments, which are lines that
begin with the comment character where a record may begin.

Where each quote stands as RFC 4180 has it, the number of quotes before a place tells whether it is
within quotes. Such data is searched by arrays; all other data by a regular expression with
possessive quantifiers, whose time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

LINE_END = rb"(?:\r\n|\n|\r)"
_LINE = re.compile(LINE_END)
_NEWLINE, _RETURN = b"\n\r"
Positions = npt.NDArray[np.int64]


def _with_escapes(plain: bytes, escaped: bytes) -> bytes:
    """Return the pattern of any number of plain characters and escapes."""
    return rb"%b*+(?:(?>%b%b*+))*+" % (plain, escaped, plain)


@dataclass(frozen=True)
class Dialect:
    """The characters with a meaning, as UTF-8; each is one byte, ``b""`` for none."""

    delimiter: bytes
    quote: bytes
    escape: bytes
    comment: bytes

    @cached_property
    def plain(self) -> bytes:
        """The pattern of text outside quotes, with its escapes."""
        delimiter, escape = re.escape(self.delimiter), re.escape(self.escape)
        if not escape:
            return rb"[^%b\r\n]*+" % delimiter
        return _with_escapes(rb"[^%b\r\n%b]" % (delimiter, escape), rb"%b." % escape)

    @cached_property
    def _field(self) -> bytes:
        """The pattern of a field."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        if not quote:
            return self.plain
        escaped = rb"|%b." % escape if escape else b""
        escaped = rb"(?:%b%b%b)" % (quote, quote, escaped)
        inner = _with_escapes(rb"[^%b%b]" % (quote, escape), escaped)
        return rb"(?:%b%b%b%b|(?!%b)%b)" % (quote, inner, quote, self.plain, quote, self.plain)

    @cached_property
    def _content(self) -> bytes:
        """The pattern of a comment or a record, without its line end."""
        delimiter, field = re.escape(self.delimiter), self._field
        record = rb"%b(?:(?>%b%b))*+" % (field, delimiter, field)
        if not self.comment:
            return record
        return rb"(?:%b[^\r\n]*+|%b)" % (re.escape(self.comment), record)

    @cached_property
    def record(self) -> re.Pattern[bytes]:
        """A comment, an empty line or a record; the group is its line end."""
        return re.compile(rb"%b(%b)" % (self._content, LINE_END), re.DOTALL)

    @cached_property
    def fields(self) -> re.Pattern[bytes]:
        """As many fields with a delimiter behind as there are."""
        return re.compile(rb"(?:(?>%b%b))*+" % (self._field, re.escape(self.delimiter)), re.DOTALL)

    @cached_property
    def all_records(self) -> re.Pattern[bytes]:
        """As many of them as there are."""
        return re.compile(rb"(?:(?>%b%b))*+" % (self._content, LINE_END), re.DOTALL)

    @cached_property
    def is_bound(self) -> npt.NDArray[np.bool_]:
        """Flags of the bytes that may stand beside the quotes of a field."""
        return np.isin(np.arange(256), list(self.delimiter + b"\r\n"))

    def is_nothing(self, record: bytes) -> bool:
        """Return whether it is an empty line or a comment."""
        return record[:1] in {b"\n", b"\r"} or bool(
            self.comment and record.startswith(self.comment)
        )

    def has_only_quotes(self, data: bytes) -> bool:
        """Return whether no escape and no comment may change the meaning of quotes."""
        has_escape = bool(self.escape) and self.escape in data
        return not has_escape and not (self.comment and self.comment in data)

    def records(self, data: bytes) -> Records:
        """Return where the records of ``data`` stand, which are whole."""
        quotes = self._plain_quotes(data)
        if quotes is None:
            table = np.array(list(self._walk(data)), np.int64).reshape(-1, 4)
            return Records(table[:, 0], table[:, 1], table[:, 2], table[:, 3])
        array = np.frombuffer(data, np.uint8)
        ends = line_ends(data, array)
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
        pairs = (array[ends - 1] == _NEWLINE) & (array[ends - 2] == _RETURN)
        return Records(starts, ends - 1 - pairs, ends, first_lines)

    def _plain_quotes(self, data: bytes) -> Positions | None:
        """Return the places of quotes if all stand as RFC 4180 has them; None if one does not."""
        if not self.has_only_quotes(data):
            return None
        if not self.quote or self.quote not in data:
            return np.arange(0)
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == self.quote[0])
        return quotes if self.stand_plainly(array, quotes, opens=True, bound=True) else None

    def stand_plainly(
        self,
        array: npt.NDArray[np.uint8],
        quotes: Positions,
        *,
        opens: bool,
        bound: bool,
    ) -> bool:
        """Return whether all quotes stand as RFC 4180 has them.

        ``opens`` says that the first one opens, ``bound`` that a quote at the first byte may.
        """
        opening, closing = (quotes[0::2], quotes[1::2]) if opens else (quotes[1::2], quotes[0::2])
        # A doubled quote closes and opens again.
        before = self.is_bound[array[opening - 1]] | (array[opening - 1] == self.quote[0])
        if len(opening) and opening[0] == 0:
            before[0] = bound
        follows = closing + 1
        inside = follows < len(array)
        follows = follows[inside]
        after = self.is_bound[array[follows]] | (array[follows] == self.quote[0])
        return bool(before.all() and after.all())

    def _walk(self, data: bytes) -> Iterator[tuple[int, int, int, int]]:
        at = line = 0
        while match := self.record.match(data, at):
            text = match[0]
            if not self.is_nothing(text):
                yield at, match.start(1), match.end(), line
            line += count_lines(text)
            at = match.end()


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a piece: where each begins, stops, and ends with its line end.

    ``lines`` are the lines that they begin in, from 0.
    """

    starts: Positions
    stops: Positions
    ends: Positions
    lines: Positions


def count_lines(data: bytes) -> int:
    r"""Return the number of line ends; ``\r\n`` is one."""
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def first_line(data: bytes) -> tuple[int, int] | None:
    """Return where the first line end begins and ends; None if there is none."""
    match = _LINE.search(data)
    return match.span() if match else None


def line_ends(data: bytes, array: npt.NDArray[np.uint8]) -> Positions:
    r"""Return the place behind each line end; ``\r\n`` is one."""
    if b"\r" not in data:
        return np.flatnonzero(array == _NEWLINE) + 1
    newline = array == _NEWLINE
    lone = array == _RETURN
    lone[:-1] &= ~newline[1:]
    return np.flatnonzero(newline | lone) + 1

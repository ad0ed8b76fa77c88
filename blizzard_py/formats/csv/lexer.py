"""The ends of records in a stream, each byte of which is looked at once.

The state between two blocks says whether a quote is open, and whether a field or a record may
begin. So a block costs the same wherever it lies, and a record of any length costs its bytes.
"""

from __future__ import annotations

import re
from enum import Enum

import numpy as np

from blizzard_py.formats.csv.dialect import Dialect, line_ends

_TO_LINE_END = re.compile(rb"[^\r\n]*+")


class _State(Enum):
    """The meaning of the next byte."""

    RECORD = "the start of a record"
    FIELD = "the start of a field"
    PLAIN = "text outside quotes"
    QUOTED = "text within quotes"
    CLOSED = "what follows a quote that closes, or is the first of two"
    ESCAPED = "an escape outside quotes"
    ESCAPED_QUOTED = "an escape within quotes"
    COMMENT = "a comment"


_WITHIN = frozenset({_State.QUOTED, _State.ESCAPED_QUOTED})


class Lexer:
    """The lexer of one stream. It begins where a record may begin.

    No block but the last may end with a carriage return, which a line feed may follow.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._quote = dialect.quote
        self._state = _State.RECORD
        self._plain = re.compile(dialect.plain, re.DOTALL)
        special = re.escape(dialect.quote + dialect.escape)
        self._inner = re.compile(rb"[^%b]*+" % special, re.DOTALL) if special else None

    def feed(self, data: bytes) -> tuple[int, int]:
        """Return the places behind the first and the last record end in the block; 0 for none."""
        quoted = self._state is _State.QUOTED
        dialect = self._dialect
        walks = self._state in {_State.ESCAPED, _State.ESCAPED_QUOTED, _State.COMMENT}
        if walks or not dialect.has_only_quotes(data):
            return self._walk(data)
        array = np.frombuffer(data, np.uint8)
        if not dialect.quote or dialect.quote not in data:
            quotes = np.arange(0)
        else:
            quotes = np.flatnonzero(array == dialect.quote[0])
            bound = self._state is not _State.PLAIN
            if not dialect.stand_plainly(array, quotes, opens=not quoted, bound=bound):
                return self._walk(data)
        ends = line_ends(data, array)
        if quoted or len(quotes):
            ends = ends[(np.searchsorted(quotes, ends) + quoted) % 2 == 0]
        self._state = self._state_after(data, open_quote=(len(quotes) + quoted) % 2 == 1)
        return (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)

    def _state_after(self, data: bytes, *, open_quote: bool) -> _State:
        if open_quote:
            return _State.QUOTED
        last = data[-1:]
        if last in {b"\n", b"\r"}:
            return _State.RECORD
        if last == self._dialect.delimiter:
            return _State.FIELD
        return _State.CLOSED if last == self._dialect.quote else _State.PLAIN

    def _walk(self, data: bytes) -> tuple[int, int]:
        """Follow the rules byte by byte up to the first record end, and behind the last one."""
        first = 0 if self._state is _State.RECORD else self._to_record(data, 0)
        if self._state is not _State.RECORD:
            return 0, 0
        match = self._dialect.record.match(data, first)
        first = first or (match.end() if match else 0)
        whole = self._dialect.all_records.match(data, first)
        last = whole.end() if whole else first
        self._to_record(data, last)
        return first, last

    def _to_record(self, data: bytes, at: int) -> int:
        """Go on to the end of the record or the data, and return the place."""
        while at < len(data):
            byte = data[at : at + 1]
            if self._state in _WITHIN or (self._state is _State.CLOSED and byte == self._quote):
                at = self._within_quotes(data, at)
            elif self._state is _State.ESCAPED:
                self._state = _State.PLAIN
                at += 1
            elif byte in {b"\n", b"\r"}:
                self._state = _State.RECORD
                return at + (2 if data.startswith(b"\r\n", at) else 1)
            else:
                at = self._outside_quotes(data, at, byte)
        return at

    def _within_quotes(self, data: bytes, at: int) -> int:
        """Return the place behind the next quote or escape within quotes, or of the end."""
        if self._state is not _State.QUOTED:
            self._state = _State.QUOTED
            return at + 1
        at = self._inner.match(data, at).end()  # type: ignore[union-attr]  # matches all
        if at < len(data):
            is_quote = data[at : at + 1] == self._quote
            self._state = _State.CLOSED if is_quote else _State.ESCAPED_QUOTED
            at += 1
        return at

    def _outside_quotes(self, data: bytes, at: int, byte: bytes) -> int:
        """Return the place behind a character with a meaning, or behind text."""
        begins = self._state in {_State.RECORD, _State.FIELD}
        if self._state is _State.RECORD and byte == self._dialect.comment:
            self._state = _State.COMMENT
        if self._state is _State.COMMENT:
            return _TO_LINE_END.match(data, at).end()  # type: ignore[union-attr]  # matches all
        fields = self._dialect.fields.match(data, at) if begins else None
        if fields and fields.end() > at:
            self._state = _State.FIELD
            return fields.end()
        if begins and byte == self._quote:
            self._state = _State.QUOTED
        elif byte == self._dialect.delimiter:
            self._state = _State.FIELD
        elif byte == self._dialect.escape:
            self._state = _State.ESCAPED
        else:
            self._state = _State.PLAIN
            return max(at + 1, self._plain.match(data, at).end())  # type: ignore[union-attr]  # matches all
        return at + 1

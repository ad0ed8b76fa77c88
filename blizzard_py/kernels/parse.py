"""Lines of JSON to Arrow, with guards around a parser that is too forgiving.

``pyarrow.json`` sees a stream of values and not lines: it takes two objects on
one line, an object over several lines, and a bare ``null`` (which adds a row or
ends the process). Two checks make lines and rows the same thing:

1. every line that is not blank starts with ``{`` and ends with ``}``. No object
   can then reach over a line end, since JSON never has ``{`` after ``}`` inside
   an object, and no value but an object can start a line;
2. there are as many rows as such lines. Each line holds at least one object, so
   each holds exactly one.

The parser takes invalid UTF-8 as well, so the chunk is validated before.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blizzard_py.kernels.columns import RecordSchema, read_json
from blizzard_py.kernels.failure import bounded

_BLANK = b" \t\r"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_ROW_NUMBER = re.compile(r"\.? in row \d+$")
# A value that the parser quotes may be as long as the line.
_MAX_QUOTE = 200


class BadLine(ValueError):
    """A line that is not a record of the schema. ``index`` counts from 0 within its chunk."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Parsed:
    """A chunk's rows, one per line that is not blank, and the number of all its lines."""

    table: pa.Table
    lines: int


class LineParser:
    """Parses chunks from `framing.framed` into tables of the schema."""

    def __init__(self, schema: RecordSchema) -> None:
        self._schema = schema

    def parse(self, chunk: bytes) -> Parsed:
        """All lines of the chunk, or `BadLine` for the first that is not a record.

        Missing fields are null.
        """
        try:
            return self._parse(chunk)
        except ValueError as error:  # pa.ArrowInvalid is one
            raise self._first_bad_line(chunk, error) from error

    def _parse(self, chunk: bytes) -> Parsed:
        rows, lines = count_lines(chunk)
        _check_utf8(chunk)
        if rows == 0:
            return Parsed(self._schema.table.empty_table(), lines)
        table = read_json(chunk, self._schema.read)
        if table.num_rows != rows:
            raise ValueError("more than one JSON object in a line")
        return Parsed(self._schema.finish(table, chunk), lines)

    def _first_bad_line(self, chunk: bytes, error: ValueError) -> BadLine:
        """Bisect with the parser itself, so that the verdict is always the parser's.

        Each step parses half of what the step before did: twice the chunk in all.
        """
        lines = [line + b"\n" for line in chunk.split(b"\n")[:-1]]
        low, high = 0, len(lines)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._parse(b"".join(lines[low:middle]))
            except ValueError as narrower:
                high, error = middle, narrower
            else:
                low = middle
        try:
            self._parse(lines[low])
        except ValueError as alone:
            error = self._schema.named(alone, lines[low])
        return BadLine(low, _reason(error))


def count_lines(chunk: bytes) -> tuple[int, int]:
    """How many lines are not blank, and how many there are; `ValueError` for a hopeless one.

    A chunk that is not empty ends with a newline. Looking at the bytes beside the newlines takes
    a thirtieth of the parser's time; looking at lines one by one is left for
    chunks with blank lines, CRLF, indentation or something worse.
    """
    if not chunk:
        return 0, 0
    data = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if (
        chunk.startswith(b"{")
        and (data[ends[:-1] + 1] == _OPEN).all()
        and (data[ends - 1] == _CLOSE).all()
    ):
        return len(ends), len(ends)
    rows = 0
    for line in chunk.split(b"\n"):
        text = line.strip(_BLANK)
        if not text:
            continue
        if not text.startswith(b"{"):
            raise ValueError("not a JSON object: the line does not start with '{'")
        if not text.endswith(b"}"):
            raise ValueError("not a JSON object: the line does not end with '}'")
        rows += 1
    return rows, len(ends)


def _check_utf8(chunk: bytes) -> None:
    if chunk.isascii():
        return
    offsets = pa.py_buffer(array("q", (0, len(chunk))))
    text = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(chunk)])
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise ValueError("invalid UTF-8") from error


def _reason(error: ValueError) -> str:
    return bounded(_ROW_NUMBER.sub("", str(error)), _MAX_QUOTE)

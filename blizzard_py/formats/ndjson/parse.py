"""Lines of JSON to Arrow, with checks around a parser that is too tolerant.

``pyarrow.json`` sees a stream of values, not lines. It accepts two objects on one line, an object
over several lines, and a bare ``null`` (which adds a row or ends the process). Two checks make
lines and rows equal:

1. Every line that is not blank starts with ``{`` and ends with ``}``. Then no object can continue
   over a line end, since JSON never has ``{`` after ``}`` inside an object, and only an object can
   start a line.
2. There are as many rows as such lines. Each line holds at least one object, so each holds exactly
   one.

The parser also accepts invalid UTF-8, so the chunk is validated before.

A chunk that passes takes one call. Any other chunk takes the exact path: lines that look wrong are
parsed alone, the others together, and bisected if that fails. **A line is bad if and only if it
fails alone**, so the verdict does not depend on its neighbours, on the chunk or on the path.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from blizzard_py.formats.ndjson.columns import RecordSchema, read_json
from blizzard_py.formats.ndjson.fast.pieces import one_table, with_bare
from blizzard_py.formats.ndjson.fast.scanner import ScanResult, scanner
from blizzard_py.formats.ndjson.nested import NestedColumns
from blizzard_py.formats.ndjson.prefilter import plausibility
from blizzard_py.formats.ndjson.unexpected import FieldWatch, first, shown_name
from blizzard_py.formats.protocol import BadLine, BadRecord, LineNumbers, Parsed
from blizzard_py.job import FieldSpec
from blizzard_py.lines.failure import bounded
from blizzard_py.lines.portions import RowShape
from blizzard_py.schema.types import is_extracted

_BLANK = b" \t\r"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_IS_BLANK = np.isin(np.arange(256), list(_BLANK + b"\n"))
_NO_START = "not a JSON object: the line does not start with '{'"
_NO_END = "not a JSON object: the line does not end with '}'"
_ROW_NUMBER = re.compile(r"\.? in row \d+$")
# The parser may quote a value as long as the line.
_MAX_QUOTE = 200
# Finding an error's column takes additional calls; only the first bad lines of a chunk get them.
NAMED = 10
# The number of parts into which lines with a bad one are divided.
_FAN_OUT = 16


class LineParser:
    """Parses the data of a `framing.Piece` into a table of the schema.

    ``tolerant`` decides how `parse` treats lines that are not records. With ``fast``, certain lines
    are read by `fast` and all others without it: the result is the same. Unexpected fields are
    reported if they are ignored; with ``thorough`` all of them.
    """

    def __init__(
        self,
        schema: RecordSchema,
        *,
        tolerant: bool = False,
        fast: bool = True,
        thorough: bool = False,
    ) -> None:
        self._schema = schema
        self._tolerant = tolerant
        watched = thorough or schema.unexpected == "ignore"
        self._watch = FieldWatch(schema.fields, thorough=thorough) if watched else None
        self._scanner = scanner(schema.fields, schema.unexpected) if fast else None
        self._nested = NestedColumns(schema, watched=watched, thorough=thorough)

    def parse(self, chunk: bytes) -> Parsed:
        """Return every line that is a record as a row, every other one in ``bad``.

        Without ``tolerant`` it raises `BadLine` for the first line that is not a record. Missing
        fields are null. The table's columns have one chunk each.
        """
        if self._scanner is None:
            return self._parse_all(chunk)
        found = self._scanner.scan(chunk, utf8=is_utf8(chunk))
        if found is None:
            return self._parse_all(chunk)
        names = frozenset(map(shown_name, found.unknown))
        if self._nested:
            made = self._nested.made(found.table, len(chunk))
            if made is None:
                self._scanner.pause()
                return self._parse_all(chunk)
            found, names = replace(found, table=made.table), first(names | made.unexpected)
        if not found.left:
            return Parsed(found.table, found.lines, found.rows_at, unexpected=names)
        try:
            rest = self._parse_all(b"".join(found.left))
        except BadLine as error:
            raise BadLine(int(found.left_at[error.index]), error.reason) from error
        return replace(_joined(found, rest), unexpected=first(names | rest.unexpected))

    def _parse_all(self, chunk: bytes) -> Parsed:
        """Parse by the exact path."""
        parsed = self._parse_exact(chunk)
        if self._watch is None:
            return parsed
        names = self._watch.names(chunk, {bad.head for bad in parsed.bad})
        return replace(parsed, unexpected=names) if names else parsed

    def _parse_exact(self, chunk: bytes) -> Parsed:
        try:
            return self._parse(chunk)
        except ValueError as error:  # pa.ArrowInvalid is one
            if self._tolerant:
                return self._exact(chunk)
            raise self._first_bad_line(chunk, error) from error

    def _parse(self, chunk: bytes) -> Parsed:
        rows_at, lines = record_lines(chunk)
        _check_utf8(chunk)
        if len(rows_at) == 0:
            return Parsed(self._schema.table.empty_table(), lines, rows_at)
        table = read_json(chunk, self._schema.read)
        if table.num_rows != len(rows_at):
            raise ValueError("more than one JSON object in a line")
        return Parsed(self._schema.finish(table, chunk), lines, rows_at)

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
        return BadLine(low, self._reason(error))

    @cached_property
    def _plausible(self) -> Callable[[bytes], bool]:
        return plausibility(self._schema.read)

    def _exact(self, chunk: bytes) -> Parsed:
        lines = chunk.split(b"\n")
        lines.pop()
        data = np.frombuffer(chunk, np.uint8)
        shapes = _shapes(data, np.flatnonzero(data == _NEWLINE))
        bad: dict[int, str] = dict.fromkeys(shapes.at[~shapes.closes].tolist(), _NO_END)
        bad |= dict.fromkeys(shapes.at[~shapes.opens].tolist(), _NO_START)
        rows: list[int] = shapes.at[shapes.opens & shapes.closes].tolist()
        suspects = [index for index in rows if not self._plausible(lines[index].strip(_BLANK))]
        condemned: dict[bytes, str] = {}
        self._parse_rows(lines, suspects, bad, condemned)
        bad |= {index: condemned[lines[index]] for index in rows if lines[index] in condemned}
        rows = [index for index in rows if index not in bad]
        tables = self._parse_rows(lines, rows, bad, condemned)
        bad |= {index: condemned[lines[index]] for index in rows if lines[index] in condemned}
        rows = [index for index in rows if index not in bad]
        return Parsed(
            one_table(tables, self._schema.table),
            len(lines),
            np.array(rows, np.int64),
            tuple(_bad_records(lines, bad)),
        )

    def _parse_rows(
        self,
        lines: Sequence[bytes],
        chosen: Sequence[int],
        bad: dict[int, str],
        condemned: dict[bytes, str],
    ) -> list[pa.Table]:
        """Return the rows of the chosen lines; lines that fail alone are put into ``bad``.

        It parses ever smaller parts, so every bad line costs a few calls and good lines few in all.
        Lines in ``condemned`` are equal to a known bad line and cost none, since compressible data
        repeats itself. They are not put into ``bad`` here, so that the named ones do not depend on
        the parts.
        """
        if condemned:
            chosen = [i for i in chosen if lines[i] not in condemned]
        if not chosen:
            return []
        try:
            return [self._parse(b"".join(lines[index] + b"\n" for index in chosen)).table]
        except ValueError as error:
            if len(chosen) == 1:
                line = lines[chosen[0]] + b"\n"
                named = self._schema.named(error, line) if len(bad) < NAMED else error
                bad[chosen[0]] = condemned[lines[chosen[0]]] = self._reason(named)
                return []
        step = -(-len(chosen) // _FAN_OUT)
        return [
            table
            for start in range(0, len(chosen), step)
            for table in self._parse_rows(lines, chosen[start : start + step], bad, condemned)
        ]

    def _reason(self, error: ValueError) -> str:
        """Return an error as a reason, with the declared type of the column that it names."""
        reason = _ROW_NUMBER.sub("", str(error))
        declared = self._schema.declared(reason)
        return bounded(reason, _MAX_QUOTE - len(declared)) + declared


def _joined(found: ScanResult, rest: Parsed) -> Parsed:
    """Return rows in the order of their lines, and bad records in the order of the chunk."""
    rows_at = np.concatenate([found.rows_at, found.left_at[rest.rows_at]])
    order = np.argsort(rows_at, kind="stable")
    schema = found.table.schema
    mixed = one_table([found.table, rest.table], schema).take(pa.array(order))
    bad = (
        structs.replace(b, index=int(found.left_at[b.index]), offset=found.starts[b.index])
        for b in rest.bad
    )
    return Parsed(with_bare(mixed), found.lines, rows_at[order], tuple(bad))


def _bad_records(lines: Sequence[bytes], bad: Mapping[int, str]) -> Iterator[BadRecord]:
    offset = 0
    for index, line in enumerate(lines):
        if index in bad:
            yield BadRecord(index, offset, len(line), line, bad[index])
        offset += len(line) + 1


def record_lines(chunk: bytes) -> tuple[LineNumbers, int]:
    """Return the indices of non-blank lines, and the number of all lines.

    A chunk that is not empty ends with a newline. Raises `ValueError` if a line cannot be an
    object. Checking the bytes beside newlines takes a thirtieth of the parser's time. The first and
    last byte of each line are only searched in chunks with blank lines, CRLF, indentation or worse.
    """
    if not chunk:
        return np.arange(0), 0
    data = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if (
        chunk.startswith(b"{")
        and (data[ends[:-1] + 1] == _OPEN).all()
        and (data[ends - 1] == _CLOSE).all()
    ):
        return np.arange(len(ends)), len(ends)
    shapes = _shapes(data, ends)
    hopeless = np.flatnonzero(~(shapes.opens & shapes.closes))
    if len(hopeless):
        raise ValueError(_NO_END if shapes.opens[hopeless[0]] else _NO_START)
    return shapes.at, len(ends)


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The non-blank lines: their indices, and whether each begins and ends like an object."""

    at: LineNumbers
    opens: npt.NDArray[np.bool_]
    closes: npt.NDArray[np.bool_]


def _shapes(data: npt.NDArray[np.uint8], ends: LineNumbers) -> _Shapes:
    """Return the shapes of lines; ``ends`` are the newlines.

    It uses arrays, so a file of blank lines costs no more than its bytes.
    """
    shown = np.flatnonzero(~_IS_BLANK[data])
    behind = np.searchsorted(shown, ends)
    first = np.concatenate([[0], behind[:-1]])
    at = np.flatnonzero(behind > first)
    return _Shapes(at, data[shown[first[at]]] == _OPEN, data[shown[behind[at] - 1]] == _CLOSE)


def is_utf8(chunk: bytes) -> bool:
    """Return whether it is UTF-8, without a copy of it."""
    try:
        _check_utf8(chunk)
    except ValueError:
        return False
    return True


def _check_utf8(chunk: bytes) -> None:
    if chunk.isascii():
        return
    offsets = pa.py_buffer(array("q", (0, len(chunk))))
    text = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(chunk)])
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise ValueError("invalid UTF-8") from error


# The cost of a line without its values, in values; a bad one has a letter.
_LINE = 16
# A value that is extracted as text is a Python object until it is converted.
_EXTRACTED = 8


def row_shape(fields: Sequence[FieldSpec]) -> RowShape:
    """Return the shape of the lines of a table with these columns."""
    columns = sum(map(_values, fields))
    return RowShape(max(_LINE, columns), max(map(_inner, fields), default=0))


def _values(spec: FieldSpec) -> int:
    """Return the weight of an empty value; for a list or map that of its offsets."""
    inside = sum(map(_values, spec.children)) if spec.type == "struct" else 1
    return max(inside, _EXTRACTED) if is_extracted(spec) else inside


def _inner(spec: FieldSpec) -> int:
    """Return the largest weight of an object that a list or a map may repeat."""
    inside = max(map(_inner, spec.children), default=0)
    if spec.type not in {"list", "map"}:
        return inside
    item = spec.children[0]
    return max(inside, sum(map(_values, item.children)) if item.type == "struct" else 0)

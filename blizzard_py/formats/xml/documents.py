"""The format XML: elements of one name are records, wherever they stand in the file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from blizzard_core.settings.format_options import known_encoding
from blizzard_core.settings.formats import XmlOptions
from blizzard_core.settings.schema import RESCUED
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.looks import json_value_of
from blizzard_py.formats.ndjson.parse import row_shape
from blizzard_py.formats.ndjson.unexpected import SAMPLE, first, shown_name
from blizzard_py.formats.protocol import (
    BadLine,
    BadRecord,
    OpenFile,
    Parsed,
    RecordBytes,
    SourceRows,
)
from blizzard_py.formats.xml.columns import Columns, left_over, paths
from blizzard_py.formats.xml.elements import Row, nil_names, read_elements
from blizzard_py.formats.xml.framing import XmlFraming
from blizzard_py.formats.xml.json_text import json_text, repeated_paths
from blizzard_py.formats.xml.markup import RowNames, RowScanner, row_places
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import Piece, RefusedRecord, cut_in_two
from blizzard_py.lines.transcode import to_utf8

_HEAD_BYTES = 1024
_NAME_CHARACTERS = 40
# Longer marks first: that of UTF-32 begins as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED = re.compile(rb"""\s*+<\?xml\s[^>]*?\sencoding\s*+=\s*+["']([^"'>]*+)["']""")


def as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the file in UTF-8. A mark of UTF-8 stays, because offsets count it.

    Raises `FileFailed` for an encoding that is not read, and where UTF-16 or UTF-32 is damaged.
    """
    head = b""
    for block in blocks:
        head += block
        if len(head) >= _HEAD_BYTES:
            break
    encoding = _encoding_of(head[:_HEAD_BYTES])
    stream = chain([head], blocks)
    return stream if encoding == "utf-8" else to_utf8(stream, encoding)


def _encoding_of(head: bytes) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    declared = _DECLARED.match(head)
    if declared is None:
        return "utf-8"
    name = declared[1].decode("ascii", "replace")
    try:
        found = known_encoding(name)
    except ValueError as error:
        shown = bounded(name, _NAME_CHARACTERS)
        raise FileFailed("parse", f"declares the encoding {shown!r}, which {error}") from error
    # The declaration can be read as ASCII, so it was left behind when the file was converted.
    return "utf-8" if found.startswith(("utf-16", "utf-32")) else found


@dataclass(frozen=True)
class XmlFormat:
    """XML as a `Format`."""

    options: XmlOptions

    @cached_property
    def names(self) -> RowNames:
        """The names of a record and its parents."""
        return RowNames(self.options.row_path, ignore_namespace=self.options.ignore_namespace)

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield pieces of whole elements; their context is the namespaces around them."""
        return XmlFraming(self.names, row_shape(schema.fields), as_utf8(file.blocks())).pieces()

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> XmlDecoder:  # noqa: ARG002  # one path
        """Return the decoder of these columns."""
        return XmlDecoder(self.options, self.names, schema, tolerant=tolerant)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the elements within a root that declares their namespaces.

        What is not one element by its tags has a file of its own, since it might swallow others.
        """
        opening, closing = self._root(letters[0].header)
        whole = [letter.raw for letter in letters if _is_one_record(letter.raw, self.names)]
        others = [letter.raw for letter in letters if not _is_one_record(letter.raw, self.names)]
        groups = [whole, *([raw] for raw in others)]
        return [
            opening + b"".join(raw + b"\n" for raw in group) + closing for group in groups if group
        ]

    def replay_settings(self) -> XmlOptions:
        """Return the same format."""
        return self.options

    def _root(self, namespaces: bytes) -> tuple[bytes, bytes]:
        """Return the tags around records; without parents in the path the root's name is another.

        The namespaces are declared for all of them.
        """
        *parents, own = self.options.row_path
        names = [name.encode() for name in parents or [f"{own.rpartition(':')[2]}s"]]
        first_tag = b"<%b%b>\n" % (names[0], namespaces and b" " + namespaces)
        opening = first_tag + b"".join(b"<%b>\n" % name for name in names[1:])
        return opening, b"".join(b"</%b>\n" % name for name in reversed(names))


def _is_one_record(raw: bytes, names: RowNames) -> bool:
    if not names.start.match(raw):
        return False
    return RowScanner(names).scan(raw, 0)[0] == len(raw)


@dataclass(frozen=True, slots=True)
class _Read:
    """The records of a piece: trees, their numbers, and the reasons why others are none."""

    rows: list[Row]
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    bad: dict[int, str]


class XmlDecoder:
    """The `Decoder` of XML, for the columns of one source."""

    def __init__(
        self, options: XmlOptions, names: RowNames, schema: RowSchema, *, tolerant: bool
    ) -> None:
        self._options = options
        self._names = names
        self._schema = schema
        self._tolerant = tolerant
        self._rescues = schema.unexpected_fields == "capture"
        self._texts = options
        self._conformer = Conformer(schema.fields, rescued=self._rescues, texts=self._texts)

    def decode(self, piece: Piece) -> Parsed:
        """Return the records that fit as rows; see `Decoder.decode`."""
        read = self._read(piece)
        columns = Columns(read.rows, self._options)
        conformed = self._conformer.conform(columns.batch(self._schema.fields))
        reasons = {**conformed.bad, **columns.bad}
        left = self._left_over(read.rows)
        if self._schema.unexpected_fields == "fail":
            for row, names in left.items():
                name = next(paths(names, self._schema.fields), "")
                why = f"unexpected field {name!r}, which the schema lacks"
                reasons.setdefault(row, why)
        bad = read.bad | {int(read.numbers[row]): reason for row, reason in reasons.items()}
        table, rows_at = conformed.table, conformed.rows_at
        if self._rescues and left:
            trims = self._options.ignore_surrounding_spaces
            texts = [json_text(left[r], trims) if r in left else None for r in rows_at.tolist()]
            rescued = pa.array(texts, pa.string())
            table = table.set_column(table.num_columns - 1, RESCUED, rescued)
        fits = ~np.isin(rows_at, np.array(sorted(reasons), np.int64))
        if not fits.all():
            table, rows_at = table.filter(pa.array(fits)), rows_at[fits]
        found = self._bad_records(piece, bad)
        if found and not self._tolerant:
            raise BadLine(found[0].index, found[0].reason)
        unexpected = first(
            shown_name(name)
            for row, names in left.items()
            if row not in reasons
            for name in paths(names, self._schema.fields)
        )
        return Parsed(
            table.cast(self._conformer.table),
            piece.lines,
            read.numbers[rows_at],
            found,
            unexpected,
        )

    def source_rows(
        self, piece: Piece, columns: Sequence[str], keys: Sequence[FieldSpec]
    ) -> SourceRows:
        """Return columns of text, nested as declared, as `TableDecoder.source_rows`."""
        read = self._read(piece)
        found = Columns(read.rows, self._options)
        batch = found.batch(self._schema.fields)
        fits = np.ones(len(read.rows), np.bool_)
        fits[list(found.bad)] = False
        batch = batch.filter(pa.array(fits))
        bad = read.bad | {int(read.numbers[row]): reason for row, reason in found.bad.items()}
        values, unread = Conformer(keys, texts=self._texts).values(batch)
        numbers = read.numbers[fits]

        def records(rows: Sequence[int]) -> list[RecordBytes]:
            there = self.records(piece)
            return [there[int(numbers[row])] for row in rows]

        rows, letters = batch.select(list(columns)), self._bad_records(piece, bad)
        return SourceRows(batch.schema, rows, values, len(unread), letters, records)

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the elements by their number, with the namespaces around them."""
        header = _header(piece)
        return {
            number: (start, piece.data[start:end], header)
            for number, (start, end) in enumerate(row_places(piece.data, self._names))
        }

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the records each."""
        if piece.lines < 2:
            return None
        middle = piece.lines // 2
        start, _ = row_places(piece.data, self._names)[middle]
        return cut_in_two(piece, start, middle)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:  # noqa: ARG002  # see below
        """Return nothing, since each record names its fields."""
        return {}

    def as_lines(self, piece: Piece) -> bytes:
        """Return what has no column as a line of JSON for each record; see `json_value_of`.

        An element that comes several times in one record is a list in all of them.
        """
        if not self._schema.evolves:
            return b""
        read = self._read(piece)
        declared = {spec.name for spec in self._schema.fields}
        rows = [
            {name: value for name, value in row.items() if name not in declared}
            for row in read.rows
        ]
        lists = set().union(*map(repeated_paths, rows))
        lines = [b""] * piece.lines
        for number, row in zip(read.numbers.tolist(), rows, strict=True):
            text = json_text(row, self._options.ignore_surrounding_spaces, self._looks, lists)
            lines[number] = text.encode()
        return b"".join(line + b"\n" for line in lines)

    def _looks(self, text: str) -> str:
        if not text or text in self._options.null_value:
            return "null"
        return json_value_of(text, self._options)

    def _left_over(self, rows: Sequence[Row]) -> dict[int, Row]:
        """Return what has no column, by row; of some rows where it is only reported."""
        step = 1
        if self._schema.unexpected_fields == "ignore" and not self._schema.evolves:
            step = max(1, len(rows) // SAMPLE)
        fields, tag = self._schema.fields, self._options.value_tag
        found = {at: left_over(rows[at], fields, tag) for at in range(0, len(rows), step)}
        return {at: left for at, left in found.items() if left}

    def _read(self, piece: Piece) -> _Read:
        """Return the records; expat goes on behind each that is not well-formed."""
        rows: list[Row] = []
        bad: dict[int, str] = {}
        places: list[tuple[int, int]] = []
        start = number = 0
        nils = nil_names(_header(piece))
        while number < piece.lines:
            data = piece.data[start:] if start else piece.data
            found = read_elements(data, self._options, nils)
            bad |= {number + at: reason for at, reason in found.bad.items()}
            rows += found.rows
            number += len(found.rows)
            if not found.error:
                break
            places = places or row_places(piece.data, self._names)
            bad[number] = found.error
            rows.append({})
            number += 1
            start = places[number][0] if number < len(places) else len(piece.data)
        numbers = np.delete(np.arange(len(rows)), sorted(bad))
        return _Read([rows[at] for at in numbers.tolist()] if bad else rows, numbers, bad)

    def _bad_records(self, piece: Piece, bad: Mapping[int, str]) -> tuple[BadRecord, ...]:
        if not bad:
            return ()
        places, header = row_places(piece.data, self._names), _header(piece)
        found = []
        for number in sorted(bad):
            start, end = places[number]
            raw = piece.data[start:end]
            found.append(BadRecord(number, start, len(raw), raw, bad[number], header=header))
        return tuple(found)


def _header(piece: Piece) -> bytes:
    return piece.context if isinstance(piece.context, bytes) else b""

"""Pieces of CSV to the declared columns.

pyarrow reads all columns as text, and the rules of `formats.texts` make values of it. A piece that
passes takes one call. Records that are not UTF-8 are taken out before, because pyarrow would fail
on the whole piece; so are comments, which it does not know.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from blizzard_core.limits import CSV_COLUMNS
from blizzard_core.settings.formats import CsvOptions
from blizzard_core.settings.schema import RESCUED
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.csv.dialect import Dialect, Records
from blizzard_py.formats.csv.framing import CsvContext
from blizzard_py.formats.csv.text_columns import TextColumns, read_columns, with_padding
from blizzard_py.formats.looks import json_value_of
from blizzard_py.formats.ndjson.parse import is_utf8
from blizzard_py.formats.protocol import (
    BadLine,
    BadRecord,
    LineNumbers,
    Parsed,
    RecordBytes,
    SourceRows,
)
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, cut_in_two
from blizzard_py.schema.column_names import column_names

# What a header may be taken for, if it has none of the columns.
_DELIMITERS = ",;\t|"
_SHOWN_NAMES = 20
# So many headers of files are remembered.
_HEADERS = 16


@dataclass(frozen=True, slots=True)
class _Header:
    """The columns of one file: their names, and the places of the declared ones."""

    names: tuple[str, ...]
    places: Mapping[str, int]
    others: tuple[int, ...]

    @property
    def unexpected(self) -> frozenset[str]:
        """The names without a column."""
        return frozenset(self.names[place] for place in self.others)


class CsvDecoder:
    """The `Decoder` of CSV, for the columns of one source."""

    def __init__(
        self,
        options: CsvOptions,
        schema: RowSchema,
        *,
        tolerant: bool,
    ) -> None:
        self._options = options
        self._schema = schema
        self._tolerant = tolerant
        self._rescues = schema.unexpected_fields == "capture"
        self._conformer = Conformer(schema.fields, rescued=self._rescues, texts=options)
        self._headers: dict[object, _Header] = {}

    def decode(self, piece: Piece) -> Parsed:
        """Return the records that fit as rows; see `Decoder.decode`.

        Raises `FileFailed` for a header that cannot be used.
        """
        if piece.context is None:  # an empty file
            return Parsed(self._conformer.table.empty_table(), 0, np.arange(0))
        header = self._header(piece)
        read, bad = self._read(piece, header, self._places(header))
        lines, records = self._lines(piece, len(read.at) + len(bad))
        conformed = self._conformer.conform(self._declared(read, header))
        table = conformed.table
        rows_at = read.at[conformed.rows_at]
        bad |= {int(read.at[row]): reason for row, reason in conformed.bad.items()}
        if self._rescues and table.num_rows:
            rescued = self._rescued(read, header, conformed.rows_at)
            table = table.set_column(table.num_columns - 1, RESCUED, rescued)
        found = self._bad_records(piece, records, bad)
        if found and not self._tolerant:
            raise BadLine(found[0].index, found[0].reason)
        return Parsed(
            table.cast(self._conformer.table), piece.lines, lines[rows_at], found, header.unexpected
        )

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the records by the line in which each begins."""
        context = _context(piece)
        records = context.dialect.records(piece.data)
        places = zip(
            records.lines.tolist(), records.starts.tolist(), records.stops.tolist(), strict=True
        )
        header = context.header or b""
        return {line: (start, piece.data[start:stop], header) for line, start, stop in places}

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the records each."""
        records = _context(piece).dialect.records(piece.data)
        middle = len(records.starts) // 2
        if not middle:
            return None
        return cut_in_two(piece, int(records.starts[middle]), int(records.lines[middle]))

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the names of the header. Raises `FileFailed` if it cannot be read."""
        if piece.context is None:
            return {}
        names = names_of(_context(piece), self._options, self._schema)
        return dict.fromkeys(column_names(names, {spec.name for spec in self._schema.fields}))

    def as_lines(self, piece: Piece) -> bytes:
        """Return a line of JSON for each line of the piece, with the columns that are not declared.

        Text that is a number or a truth value stands as one, so that columns get such types.
        """
        if not self._schema.evolves or piece.context is None:
            return b""
        header = self._header(piece)
        read, bad = self._read(piece, header, self._places(header))
        lines, _ = self._lines(piece, len(read.at) + len(bad))
        found = [b""] * piece.lines
        for number, texts in zip(lines[read.at].tolist(), self._others(read, header), strict=True):
            members = (
                f"{json.dumps(name)}:{json_value_of(text, self._options)}"
                for name, text in texts.items()
            )
            found[number] = f"{{{','.join(members)}}}".encode()
        return b"".join(line + b"\n" for line in found)

    def source_rows(
        self, piece: Piece, columns: Sequence[str], keys: Sequence[FieldSpec]
    ) -> SourceRows:
        """Return columns of text, as `TableDecoder.source_rows`."""
        header = self._header(piece)
        names = dict.fromkeys([*columns, *(key.name for key in keys)])
        there = {name: header.names.index(name) for name in names if name in header.names}
        read, bad = self._read(piece, header, sorted(there.values()))
        count = len(read.at)
        texts = {
            name: read.columns[there[name]] if name in there else pa.nulls(count) for name in names
        }
        batch = pa.RecordBatch.from_arrays(list(texts.values()), list(texts))
        values, unread = Conformer(keys, texts=self._options).values(batch)
        schema = pa.schema([(name, pa.string()) for name in header.names])
        letters = self._bad_records(piece, None, bad)

        def records(rows: Sequence[int]) -> list[RecordBytes]:
            context = _context(piece)
            places = context.dialect.records(piece.data)
            spans = ((places.starts[n], places.stops[n]) for n in read.at[list(rows)])
            title = context.header or b""
            return [(int(start), piece.data[start:stop], title) for start, stop in spans]

        rows = batch.select(list(columns))
        return SourceRows(schema, rows, values, len(unread), letters, records)

    def _lines(self, piece: Piece, count: int) -> tuple[LineNumbers, Records | None]:
        """Return the line of each record; the places too, if they had to be searched."""
        if count == piece.lines:
            return np.arange(count), None
        records = _context(piece).dialect.records(piece.data)
        return records.lines, records

    def _bad_records(
        self, piece: Piece, records: Records | None, bad: Mapping[int, str]
    ) -> tuple[BadRecord, ...]:
        if not bad:
            return ()
        places = records or _context(piece).dialect.records(piece.data)
        title = _context(piece).header or b""
        found = []
        for number in sorted(bad):
            start = int(places.starts[number])
            text = piece.data[start : int(places.stops[number])]
            line = int(places.lines[number])
            found.append(BadRecord(line, start, len(text), text, bad[number], header=title))
        return tuple(found)

    def _read(
        self, piece: Piece, header: _Header, places: Sequence[int]
    ) -> tuple[TextColumns, dict[int, str]]:
        """Return the text of the rows, and the reasons why other records are none."""
        data, dialect = piece.data, _context(piece).dialect
        width = len(header.names)
        if (dialect.comment and dialect.comment in data) or not is_utf8(data):
            return self._read_exactly(data, width, places, dialect)
        return self._read_plain(data, width, places, dialect)

    def _read_plain(
        self, data: bytes, width: int, places: Sequence[int], dialect: Dialect
    ) -> tuple[TextColumns, dict[int, str]]:
        nulls = self._options.null_value
        read = read_columns(data, width, places, dialect, nulls)
        if read.ragged and self._options.ragged_rows == "pad":
            read = with_padding(read, data, width, places, dialect, nulls)
        return read, {
            number: f"{fields} fields instead of {width}" for number, fields in read.ragged.items()
        }

    def _places(self, header: _Header) -> Sequence[int]:
        """Return the places of the columns that are read."""
        if self._rescues or self._schema.evolves:
            return range(len(header.names))
        return sorted(header.places.values())

    def _read_exactly(
        self, data: bytes, width: int, places: Sequence[int], dialect: Dialect
    ) -> tuple[TextColumns, dict[int, str]]:
        """Read without the records that are not UTF-8, and without comments."""
        records = dialect.records(data)
        texts = [
            data[start:end]
            for start, end in zip(records.starts.tolist(), records.ends.tolist(), strict=True)
        ]
        numbers = np.array([n for n, text in enumerate(texts) if is_utf8(text)], np.int64)
        joined = b"".join(texts[number] for number in numbers.tolist())
        read, bad = self._read_plain(joined, width, places, replace(dialect, comment=b""))
        reasons = dict.fromkeys(range(len(texts)), "not valid UTF-8")
        for number in numbers.tolist():
            del reasons[number]
        reasons |= {int(numbers[number]): reason for number, reason in bad.items()}
        return read.moved(numbers), reasons

    def _declared(self, read: TextColumns, header: _Header) -> pa.RecordBatch:
        """Return the declared columns by name; a missing one is null."""
        rows = len(read.at)
        columns = [
            read.columns[header.places[spec.name]]
            if spec.name in header.places
            else pa.nulls(rows, pa.string())
            for spec in self._schema.fields
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        names = [spec.name for spec in self._schema.fields]
        return pa.RecordBatch.from_arrays(columns, names)

    def _others(self, read: TextColumns, header: _Header) -> Iterator[dict[str, str | None]]:
        """Yield for each row the texts of the columns that are not declared."""
        names = [header.names[place] for place in header.others]
        columns = [read.columns[place].to_pylist() for place in header.others]
        if not names:
            yield from ({} for _ in range(len(read.at)))
        for texts in zip(*columns, strict=True):
            yield dict(zip(names, texts, strict=True))

    def _rescued(self, read: TextColumns, header: _Header, rows: LineNumbers) -> pa.Array:
        """Return the other columns of these rows as JSON objects of texts; null without any."""
        found = []
        for texts in self._others(read, header):
            present = {name: text for name, text in texts.items() if text is not None}
            found.append(json.dumps(present, ensure_ascii=False) if present else None)
        return pa.array(found, pa.string()).take(pa.array(rows))

    def _header(self, piece: Piece) -> _Header:
        """Return the columns of a file. Raises `FileFailed` if they cannot be used."""
        known = self._headers.get(piece.context)
        if known is None:
            if len(self._headers) >= _HEADERS:
                self._headers.clear()
            names = names_of(_context(piece), self._options, self._schema)
            known = self._headers[piece.context] = self._checked(names)
        return known

    def _checked(self, header: tuple[str, ...]) -> _Header:
        fields = {spec.name: spec for spec in self._schema.fields}
        if len(header) > CSV_COLUMNS:
            raise FileFailed("parse", f"has more than {CSV_COLUMNS:,} columns; is it CSV?")
        of_table = self._schema.of_table
        names = table_names(header, list(fields)) if of_table else column_names(header, fields)
        places = {name: place for place, name in enumerate(names) if name in fields}
        others = tuple(place for place, name in enumerate(names) if name not in fields)
        if not places and fields and not self._schema.of_table:
            raise FileFailed("parse", _no_column(header, list(fields), self._options))
        # A blank name can be no column, so it may come often.
        twice = {name for name, count in Counter(filter(None, names)).items() if count > 1}
        if not (self._rescues or self._schema.evolves):
            twice &= fields.keys()
        if twice:
            raise FileFailed("parse", f"the header has {_shown(sorted(twice))} twice; rename one")
        missing = [
            name for name, spec in fields.items() if not spec.nullable and name not in places
        ]
        if missing and not self._schema.of_table:
            raise FileFailed(
                "parse",
                f"the header lacks {_shown(missing)}, which schema.fields requires; the header is:"
                f" {_shown(names)}",
            )
        if others and self._schema.unexpected_fields == "fail":
            unexpected = _shown([names[place] for place in others])
            raise FileFailed("parse", f"unexpected columns in the header: {unexpected}")
        return _Header(names, places, others)


def _context(piece: Piece) -> CsvContext:
    return cast("CsvContext", piece.context)


def names_of(context: CsvContext, options: CsvOptions, schema: RowSchema) -> tuple[str, ...]:
    """Return the names of a file's columns."""
    if context.header is None:
        return tuple(options.columns) or tuple(spec.name for spec in schema.fields)
    return split_header(context.header, context.dialect)


def table_names(header: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in a header, in the spelling of the table's ``names``.

    A column has a name of the table if they differ only in case and outer blanks, and no other
    column or name is alike.
    """
    columns = Counter(map(_folded, header))
    known = Counter(map(_folded, names))
    spelling = {_folded(name): name for name in names}
    return tuple(
        spelling[folded] if columns[folded] == known[folded] == 1 else name
        for name in header
        for folded in [_folded(name)]
    )


def _folded(name: str) -> str:
    return name.strip().casefold()


def split_header(line: bytes, dialect: Dialect) -> tuple[str, ...]:
    """Return the names in a header, without blanks around them. Raises `FileFailed`."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise FileFailed(
            "parse", "the header is not UTF-8; set format.encoding to the file's encoding"
        ) from error
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter.decode(),
        quotechar=dialect.quote.decode() or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        escapechar=dialect.escape.decode() or None,
    )
    try:
        return tuple(name.strip() for name in next(rows, []))
    except csv.Error as error:
        raise FileFailed("parse", f"the header cannot be read: {error}") from error


def _no_column(names: Sequence[str], fields: Sequence[str], options: CsvOptions) -> str:
    found = f"the header has none of the columns of schema.fields: {_shown(names)}"
    if len(names) == 1:
        own = set(fields)
        for delimiter in _DELIMITERS:
            parts = [part.strip().strip(options.quote or "") for part in names[0].split(delimiter)]
            if own & set(parts):
                return f"{found}; set format.delimiter: {json.dumps(delimiter)}"
    lower = {name.casefold() for name in names}
    if any(field.casefold() in lower for field in fields):
        return f"{found}; names must be written alike, in capitals or not"
    return f"{found}; correct schema.fields, or set format.header: false"


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"

"""Directories of CSV files as a source: each file is scanned, rows are filtered.

Everything is read as text; the kernel converts it to the declared types. An unquoted empty field is
null, a quoted one is the empty text. Names in headers match without regard to case and outer blanks
if exactly one column fits.

These rows are bad records: rows with another number of fields than the header, with text that is
not UTF-8, or with an unclosed quote. They are read once, with the window of the file's highest
value. A file without the watermark's column is also a bad record.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from blizzard_core.errors import SourceError
from blizzard_core.limits import CSV_BAD_ROWS, CSV_COLUMNS
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.declared_columns import (
    DeclaredColumn,
    declare_columns,
    watermark_columns,
)
from blizzard_py.connections.lakes.directory import DirectoryConnection
from blizzard_py.connections.lakes.file_facts import FileFacts
from blizzard_py.connections.lakes.file_plan import PlannedFile, files_of, window_of
from blizzard_py.connections.lakes.filters import Filter, parse
from blizzard_py.connections.lakes.locations import (
    StorageCache,
    format_options,
    storage_options,
    translate_errors,
)
from blizzard_py.connections.lakes.text_files import (
    RangeCollector,
    accepted,
    blocks,
    filter_columns,
)
from blizzard_py.connections.lakes.window import RowWindow
from blizzard_py.connections.lakes.window_rows import check_unchanged
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.lines.codecs.names import CODEC_ENDINGS
from blizzard_py.reading import Access, BoundKind
from blizzard_py.slices.column_order import Range

# The longest row. Twice this much is held in memory.
_BLOCK_BYTES = 8 << 20
_BAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The format CSV as a `Form`."""

    columns: Sequence[DeclaredColumn]
    delimiter: str
    names: Sequence[str] = ()
    driver: str = "csv"
    endings: tuple[str, ...] = tuple(f".csv{end}" for end in ("", *CODEC_ENDINGS.values()))
    bounds: tuple[BoundKind, ...] = ("rows",)
    has_schema: bool = True

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        """Scan the watermark's columns once; without columns read only the header."""
        tally = RangeCollector(self.columns)
        check_unchanged(storage, file)
        with _opened(storage, file, self.delimiter, self.names) as table:
            schema = pa.schema([(name, pa.string()) for name in table.own])
            present = [each.name for each in self.columns if each.name in table.own]
            if not columns or not present:
                nothing = Range(nulls=bool(table.header), values=False)
                return FileFacts(schema, {}, dict.fromkeys(columns, nothing))
            for batch in table.batches(present):
                arrays, unread = _values(batch, self.columns)
                tally.add(arrays, unread)
                tally.bad += len(table.bad)
                table.bad.clear()
            tally.bad += len(table.bad)
        check_unchanged(storage, file)
        return FileFacts(schema, tally.orders, tally.ranges, tally.unread_in_all)

    def extra(self) -> Mapping[str, Any]:
        """Return the delimiter."""
        return {"delimiter": self.delimiter}


def connect(access: Access, selection: ReadSelection) -> DirectoryConnection:
    """Return the CSV files of a directory; the option ``delimiter`` is one character."""
    delimiter = format_options(access).get("delimiter", ",")
    names = (*(each.name for each in selection.fields), *selection.columns)
    form = CsvForm(watermark_columns(selection), delimiter, names)
    return DirectoryConnection(access, selection, form)


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield text columns of the window's rows, and lines for rows that are not valid.

    A `Reader` of `blizzard_py.connections.protocol`.
    """
    stores = StorageCache(storage_options(access))
    window = window_of(spec)
    condition = parse(spec["filter"])
    columns = declare_columns(filter_columns(window, condition), fields)
    wanted = [each.name for each in fields] or list(spec["columns"])
    for file in files_of(spec):
        storage = stores.at(file.name.root)
        with translate_errors("a planned file"):
            check_unchanged(storage, file)
            names = [*wanted, *(each.name for each in columns)]
            with _opened(storage, file, spec["delimiter"], names) as table:
                yield from _rows(table, window, condition, columns, wanted, file)
            check_unchanged(storage, file)


def _rows(
    table: _Table,
    window: RowWindow | None,
    condition: Filter | None,
    columns: Sequence[DeclaredColumn],
    wanted: Sequence[str],
    file: PlannedFile,
) -> Iterator[pa.RecordBatch | bytes]:
    lacks = [name for name in window.columns if name not in table.own] if window else []
    if window and len(lacks) == len(window.columns):
        if table.header and file.has_bad:
            yield table.unusable(lacks)
        return
    names = dict.fromkeys([*wanted, *(each.name for each in columns)])
    for batch in table.batches([name for name in names if name in table.own]):
        if table.bad and file.has_bad:
            yield b"".join(table.bad)
        table.bad.clear()
        if columns:
            arrays, _ = _values(batch, columns)
            known = dict(zip([each.name for each in columns], arrays, strict=True))
            keep = accepted(window, condition, known, batch.num_rows, file.name.path)
            batch = batch.filter(keep)  # noqa: PLW2901  # fewer of the same rows
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)
                    for name in wanted
                ],
                list(wanted),
            )
    if table.bad and file.has_bad:
        yield b"".join(table.bad)


def _values(batch: pa.RecordBatch, columns: Sequence[DeclaredColumn]) -> tuple[list[pa.Array], int]:
    """Return the watermark columns in their types, and how many values could not be read."""
    arrays, unread = [], 0
    for column in columns:
        if column.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, column.type))
            continue
        texts = batch.column(column.name)
        array = column.array([column.of_text(text) for text in texts.to_pylist()])
        unread += array.null_count - texts.null_count
        arrays.append(array)
    return arrays, unread


_QUOTE = '"'
# Precedes the hexadecimal digits of each byte that is not UTF-8. No text has this character.
_ODD = "\ufdd0"
_MARK = re.compile(_ODD.encode() + rb"([0-9a-f]{2})")


def _marked(error: UnicodeError) -> tuple[str, int]:
    """Handle decoding errors for `codecs` by marking the bytes."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(f"{_ODD}{byte:02x}" for byte in found), error.end


codecs.register_error("csv-marked", _marked)


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a forward-only file, with ``end`` after an odd number of quotes.

    Arrow treats an open quote at the end as closed, and everything after it as one value. Bytes
    that are not UTF-8 are marked, because Arrow cannot show a row that has them.
    """

    def __init__(self, found: Iterator[bytes], end: bytes) -> None:
        super().__init__()
        self._found = found
        self._is_over = False
        self._rest = memoryview(b"")
        self._end = end
        self._last = b"\n"
        self._decoder = codecs.getincrementaldecoder("utf-8")("csv-marked")
        self.is_odd = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._is_over:
            block = next(self._found, None)
            self._is_over = block is None
            self._rest = memoryview(self._checked(block or b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _checked(self, block: bytes) -> bytes:
        if self._decoder.getstate()[0] or not block.isascii():
            block = self._decoder.decode(block, final=self._is_over).encode()
        self.is_odd ^= bool(block.count(b'"') % 2)
        self._last = block[-1:] or self._last
        if self._is_over and self.is_odd:
            block += (b"" if self._last == b"\n" else b"\n") + self._end
        return block


@dataclass(slots=True)
class _Table:
    """An open CSV file: its header, its rows, and invalid rows as lines for the parser.

    ``own`` maps the table's column names to the file's.
    """

    where: str
    header: Sequence[str]
    own: Mapping[str, str]
    stream: _Blocks
    delimiter: str
    bad: list[bytes] = field(default_factory=list)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, of about 8 MB of the file at a time."""
        if not self.header:
            return
        try:
            reader = pacsv.open_csv(
                pa.PythonFile(io.BufferedReader(self.stream, _BLOCK_BYTES), mode="r"),
                read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=self._refused,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(self.header, pa.string()),
                    include_columns=[self.own[name] for name in columns],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                ),
            )
            for batch in reader:
                yield self._good(batch.rename_columns(list(columns)))
        except pa.ArrowInvalid as error:
            if len(self.bad) > CSV_BAD_ROWS:
                raise SourceError(
                    f"{self.where}: has more than {CSV_BAD_ROWS:,} consecutive rows without the"
                    f" {len(self.header)} fields of its header; repair or remove the file, or set"
                    " the option delimiter"
                ) from error
            if "Empty CSV file" in str(error):
                return  # a header, and not even a newline
            raise SourceError(
                f"{self.where}: cannot be read as CSV: a row is longer than 8 MiB, or a quote is"
                " not closed; repair the file"
            ) from error

    def unusable(self, lacks: Sequence[str]) -> bytes:
        """Return the line for a file whose rows cannot be assigned to a window."""
        header = self.delimiter.join(self.header)
        return _line(
            f"no row is read: the file has no column {', '.join(lacks)}; correct its header or set"
            f" the option delimiter; the header is: {header}".encode("utf-8", "surrogateescape")
        )

    def _refused(self, row: Any) -> str:
        text = row.text
        end = _end(self.header, self.delimiter)
        if self.stream.is_odd and text.endswith(end):
            # The appended text: alone on its line if no quote was open.
            text = text.removesuffix(end)
            if not text:
                return "skip"
            problem = f"a quote is not closed: {text}"
        else:
            problem = f"{row.actual_columns} fields instead of {row.expected_columns}: {text}"
        self.bad.append(_line(_unmarked(problem)))
        # If no row is valid, Arrow reads on to the end and would hold all of them.
        return "skip" if len(self.bad) <= CSV_BAD_ROWS else "error"

    def _good(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without those that are not UTF-8."""
        odd = pa.repeat(pa.scalar(value=False), batch.num_rows)
        for column in batch.columns:
            odd = pc.or_(odd, pc.fill_null(pc.match_substring(column, _ODD), fill_value=False))
        if len(self.header) == 1 and self.stream.is_odd:
            # Then the appended text is a row as well, if no quote was open.
            end = _end(self.header, self.delimiter).removeprefix(_QUOTE) + "\n"
            mask = pc.fill_null(pc.not_equal(batch.column(0), end), fill_value=True)
            batch, odd = batch.filter(mask), odd.filter(mask)
        if not pc.any(odd).as_py():
            return batch
        for row in batch.filter(odd).to_pylist():
            fields = self.delimiter.join(value or "" for value in row.values())
            self.bad.append(_line(b"not UTF-8: " + _unmarked(fields)))
        return batch.filter(pc.invert(odd))


def _unmarked(text: str) -> bytes:
    """Return the text's bytes as they are in the file."""
    return _MARK.sub(
        lambda found: bytes([int(found[1], 16)]), text.encode("utf-8", "surrogateescape")
    )


def _line(number: bytes) -> bytes:
    """Return a line that the line parser treats as a bad record and shows to people."""
    return b"csv row, " + number[:_BAD_BYTES].replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


@contextmanager
def _opened(
    storage: Storage, file: PlannedFile, delimiter: str, names: Sequence[str] = ()
) -> Iterator[_Table]:
    """Yield the file with its header read, as columns of these names.

    Raises `SourceError` for a header that cannot be used.
    """
    where = f"{storage.uri}/{file.name.path}"
    with blocks(storage, file) as found:
        first = next(found, b"")
        text = first.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        try:
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            header = next((row for row in rows if row), [])
        except csv.Error as error:
            raise SourceError(f"{where}: its header cannot be read: {error}") from error
        if len(header) > CSV_COLUMNS:
            raise SourceError(f"{where}: has more than {CSV_COLUMNS:,} columns; is it CSV?")
        twice = sorted(name for name, times in Counter(header).items() if times > 1)
        if twice:
            raise SourceError(f"{where}: the header has {', '.join(twice)} twice; rename them")
        end = f"{_end(header, delimiter)}\n".encode()
        stream = _Blocks(chain([first], found), end)
        yield _Table(where, header, _own(header, names), stream, delimiter)


def _end(header: Sequence[str], delimiter: str) -> str:
    """Return a line that closes an open quote and whose row has too many fields."""
    return _QUOTE + delimiter * max(len(header), 8)


def _own(header: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the file's columns by the table's ``names``, in the table's spelling.

    A column is matched to a table name if three conditions hold. They differ only in case and outer
    blanks; the file has no column of exactly that name; and no other column or name is alike.
    """
    own = {name: name for name in header}
    names = list(dict.fromkeys(names))
    for name in names:
        alike = [each for each in header if _folded(each) == _folded(name)]
        rivals = [each for each in names if _folded(each) == _folded(name)]
        if len(alike) == 1 == len(rivals) and name not in own:
            del own[alike[0]]
            own[name] = alike[0]
    return own


def _folded(name: str) -> str:
    return name.strip().casefold()

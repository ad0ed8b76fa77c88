"""Directories of CSV files as a source: scanned whole, filtered by row.

Everything is read as text, and the kernel makes the declared types of it. An unquoted empty field
is null, a quoted one is the empty text. Rows with another number of fields than the header, or
text that is no UTF-8, are bad records, once: with the window that the file's highest value lies in.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from blizzard_core.bounds import CSV_BAD_ROWS, CSV_COLUMNS
from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.declared import Declared, declared, watermark_columns
from blizzard_py.connections.lakes.directory import DirectoryConnection, Facts
from blizzard_py.connections.lakes.filters import Filter, parse
from blizzard_py.connections.lakes.places import Stores, format_options, storage_options, told
from blizzard_py.connections.lakes.planned import PlannedFile, files_of, window_of
from blizzard_py.connections.lakes.rows import check_unchanged
from blizzard_py.connections.lakes.text_files import Tally, accepted, asked_columns, blocks
from blizzard_py.connections.lakes.window import Range, RowWindow
from blizzard_py.connections.protocol import Selection
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind

# No row may be longer. Twice this is held.
_BLOCK_BYTES = 8 << 20
_BAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CsvForm:
    """CSV as a `Form`."""

    columns: Sequence[Declared]
    delimiter: str
    driver: str = "csv"
    endings: tuple[str, ...] = (".csv", ".csv.gz", ".csv.zst")
    bounds: tuple[BoundKind, ...] = ("rows",)
    has_schema: bool = True

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> Facts:
        """One scan of the watermark's columns; without them the header alone."""
        tally = Tally(self.columns)
        check_unchanged(storage, file)
        with _opened(storage, file, self.delimiter) as table:
            schema = pa.schema([(name, pa.string()) for name in table.header])
            present = [each.name for each in self.columns if each.name in table.header]
            if not columns or not present:
                return Facts(schema, {}, dict.fromkeys(columns, Range(values=False)))
            for batch in table.batches(present):
                arrays, unread = _values(batch, self.columns)
                tally.add(arrays, unread)
                tally.bad += len(table.bad)
                table.bad.clear()
            tally.bad += len(table.bad)
        check_unchanged(storage, file)
        return Facts(schema, tally.orders, tally.ranges, tally.unread_in_all)

    def extra(self) -> Mapping[str, Any]:
        """The delimiter."""
        return {"delimiter": self.delimiter}


def connect(access: Access, selection: Selection) -> DirectoryConnection:
    """The CSV files of a directory; the option ``delimiter`` is one character."""
    delimiter = format_options(access).get("delimiter", ",")
    form = CsvForm(watermark_columns(selection), delimiter)
    return DirectoryConnection(access, selection, form)


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """A `Reader`: text columns of the rows of the window, and lines for rows that are none."""
    stores = Stores(storage_options(access))
    window = window_of(spec)
    kept = parse(spec["filter"])
    columns = declared(asked_columns(window, kept), fields)
    wanted = [each.name for each in fields] or list(spec["columns"])
    for file in files_of(spec):
        storage = stores.at(file.name.root)
        with told("a planned file"):
            check_unchanged(storage, file)
            with _opened(storage, file, spec["delimiter"]) as table:
                yield from _rows(table, window, kept, columns, wanted, file)
            check_unchanged(storage, file)


def _rows(
    table: _Table,
    window: RowWindow | None,
    kept: Filter | None,
    columns: Sequence[Declared],
    wanted: Sequence[str],
    file: PlannedFile,
) -> Iterator[pa.RecordBatch | bytes]:
    names = dict.fromkeys([*wanted, *(each.name for each in columns)])
    for batch in table.batches([name for name in names if name in table.header]):
        if table.bad and file.has_bad:
            yield b"".join(table.bad)
        table.bad.clear()
        if columns:
            arrays, _ = _values(batch, columns)
            known = dict(zip([each.name for each in columns], arrays, strict=True))
            keep = accepted(window, kept, known, batch.num_rows, file.name.path)
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


def _values(batch: pa.RecordBatch, columns: Sequence[Declared]) -> tuple[list[pa.Array], int]:
    """The watermark's columns as their types, and how many values could not be read."""
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


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a file that is read forward."""

    def __init__(self, found: Iterator[bytes]) -> None:
        super().__init__()
        self._found = found
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._found, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


@dataclass(slots=True)
class _Table:
    """An open CSV file: its header, its rows, and those that are none as lines for the parser."""

    where: str
    header: Sequence[str]
    stream: _Blocks
    delimiter: str
    bad: list[bytes] = field(default_factory=list)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns as text, of about 8 MB of the file at a time."""
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
                    column_types=dict.fromkeys(self.header, pa.binary()),
                    include_columns=list(columns),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                ),
            )
            for batch in reader:
                yield self._decoded(batch)
        except pa.ArrowInvalid as error:
            if len(self.bad) > CSV_BAD_ROWS:
                raise SourceError(
                    f"{self.where}: has more than {CSV_BAD_ROWS:,} rows in a row without the"
                    f" {len(self.header)} fields of its header; mend or remove the file, or set the"
                    " option delimiter"
                ) from error
            if "Empty CSV file" in str(error):
                return  # a header, and not even a newline
            raise SourceError(
                f"{self.where}: cannot be read as CSV: a row is longer than 8 MiB, or a quote is"
                " not closed; mend the file"
            ) from error

    def _refused(self, row: Any) -> str:
        told = f"{row.actual_columns} fields instead of {row.expected_columns}: {row.text}"
        self.bad.append(_line(told.encode("utf-8", "surrogateescape")))
        # Where no row is good Arrow reads on to the end, and all of them would be held.
        return "skip" if len(self.bad) <= CSV_BAD_ROWS else "error"

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.cast(pa.schema([(name, pa.string()) for name in batch.schema.names]))
        except pa.ArrowInvalid:
            pass
        rows = batch.to_pylist()
        good = [all(map(_is_utf8, row.values())) for row in rows]
        for row, keeps in zip(rows, good, strict=True):
            if not keeps:
                fields = self.delimiter.encode().join(value or b"" for value in row.values())
                self.bad.append(_line(b"not UTF-8: " + fields))
        kept = batch.filter(pa.array(good))
        return kept.cast(pa.schema([(name, pa.string()) for name in batch.schema.names]))


def _line(told: bytes) -> bytes:
    """A line that the line parser takes for a bad record, and shows to people."""
    return b"csv row, " + told[:_BAD_BYTES].replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _opened(storage: Storage, file: PlannedFile, delimiter: str) -> Iterator[_Table]:
    """The file with its header read. Raises `SourceError` for a header that cannot be used."""
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
        yield _Table(where, header, _Blocks(chain([first], found)), delimiter)

"""Whole records of CSV to columns of text, by pyarrow."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from blizzard_py.formats.csv.dialect import Dialect
from blizzard_py.formats.protocol import LineNumbers


class TextColumns:
    """The records of a piece: columns by their place, and the record of each row, from 0.

    ``ragged`` has the number of fields of each record with another one than ``width``. These are
    no rows, unless `with_padding` makes some of them.
    """

    def __init__(
        self, columns: Mapping[int, pa.Array], at: LineNumbers, ragged: Mapping[int, int]
    ) -> None:
        self.columns = columns
        self.at = at
        self.ragged = ragged

    @property
    def count(self) -> int:
        """The number of all records."""
        return len(self.at) + len(self.ragged)

    def moved(self, numbers: LineNumbers) -> TextColumns:
        """Return them as records of a larger piece: ``numbers`` are their places there."""
        ragged = {int(numbers[number]): fields for number, fields in self.ragged.items()}
        return TextColumns(self.columns, numbers[self.at], ragged)


def read_columns(
    data: bytes, width: int, places: Sequence[int], dialect: Dialect, nulls: Sequence[str]
) -> TextColumns:
    """Read the columns at these places, of records with ``width`` fields. The data is UTF-8."""
    # Without any column pyarrow would not tell how many rows there are.
    wanted = [str(place) for place in places or [0]]
    names = [str(place) for place in range(width)]
    ragged: dict[int, int] = {}

    def refused(row: pacsv.InvalidRow) -> str:
        ragged[row.number - 1] = row.actual_columns
        return "skip"

    # pyarrow drops a byte order mark at the start of any data; behind a line end it is text.
    data = b"\n" + data if data.startswith(BOM_UTF8) else data
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=_parse_options(dialect, refused),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=wanted,
                null_values=list(nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise
        table = pa.table({name: pa.array([], pa.string()) for name in wanted})
    columns = {int(name): table.column(name).combine_chunks() for name in wanted}
    at = np.arange(table.num_rows + len(ragged))
    return TextColumns(columns, np.delete(at, list(ragged)), ragged)


def with_padding(
    read: TextColumns,
    data: bytes,
    width: int,
    places: Sequence[int],
    dialect: Dialect,
    nulls: Sequence[str],
) -> TextColumns:
    """Return the columns with ragged records: short ones are filled with null.

    Empty fields beyond the width are dropped; a record with others stays ragged. Records of one
    number of fields are read together, as records of that width.
    """
    records = dialect.records(data)
    tables = [_table(read.columns, places, len(read.at))]
    at = [read.at]
    ragged = dict(read.ragged)
    for fields in sorted(set(read.ragged.values())):
        numbers = np.array([n for n, count in read.ragged.items() if count == fields], np.int64)
        some = b"".join(
            data[begin:end]
            for begin, end in zip(
                records.starts[numbers].tolist(), records.ends[numbers].tolist(), strict=True
            )
        )
        beyond = range(width, fields)
        chosen = [place for place in places if place < fields]
        found = read_columns(some, fields, [*chosen, *beyond], dialect, nulls)
        if len(found.at) < len(numbers):
            continue  # they are no records of so many fields to both readers
        fits = np.ones(len(numbers), np.bool_)
        for place in beyond:
            fits &= np.array([not text for text in found.columns[place].to_pylist()], np.bool_)
        mask = pa.array(fits)
        tables.append(_table(found.columns, places, len(numbers)).filter(mask))
        at.append(numbers[fits])
        for number in numbers[fits].tolist():
            del ragged[number]
    everything = np.concatenate(at)
    order = np.argsort(everything)
    table = pa.concat_tables(tables).take(pa.array(order))
    columns = {place: table.column(str(place)).combine_chunks() for place in places or [0]}
    return TextColumns(columns, everything[order], ragged)


def _table(columns: Mapping[int, pa.Array], places: Sequence[int], rows: int) -> pa.Table:
    missing = pa.nulls(rows, pa.string())
    return pa.table({str(place): columns.get(place, missing) for place in places or [0]})


def _parse_options(
    dialect: Dialect, refused: Callable[[pacsv.InvalidRow], str]
) -> pacsv.ParseOptions:
    return pacsv.ParseOptions(
        delimiter=dialect.delimiter.decode(),
        quote_char=dialect.quote.decode() or False,
        escape_char=dialect.escape.decode() or False,
        # The data ends where no quote is open.
        newlines_in_values=False,
        invalid_row_handler=refused,
    )

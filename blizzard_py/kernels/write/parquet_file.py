"""A Parquet file that is being written."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_core.handover.outputs import NAN_COLUMNS_KEY, OUTPUT_ID_KEY
from blizzard_core.storage.file_sink import FileSink
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.nan_columns import nan_columns
from blizzard_py.job import OutputLayout, SortKey

# Enough to distinguish a column of some thousand values from one that never repeats.
_SAMPLE_ROWS = 1 << 14
_SAMPLE_SLICES = 8
# Values of more bytes on average are written without a dictionary, and binary ones without
# statistics, which nobody reads: the writer would copy each value several times.
_LONG_VALUES = 64 << 10


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The format of Parquet files: the columns in them, and what their layout says."""

    schema: pa.Schema
    layout: OutputLayout


class ParquetFile:
    """An open file in staging; ``sample`` are rows that decide its encodings."""

    def __init__(
        self, storage: Storage, form: ParquetFormat, staged: str, output_id: str, sample: pa.Table
    ) -> None:
        self.staged = staged
        self.output_id = output_id
        self.rows = 0
        self._arrow_bytes = 0
        self._nan: set[int] = set()
        self._sink = FileSink(storage.open_output(staged), f"{storage.uri}/{staged}")
        self._writer = _writer(self._sink, form, sample)
        self._writer.add_key_value_metadata({OUTPUT_ID_KEY: output_id})

    @property
    def bytes(self) -> int:
        """The file's size so far."""
        return self._sink.written

    def write(self, table: pa.Table) -> None:
        """Write the rows as one row group."""
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._nan |= nan_columns(table)
        self.rows += table.num_rows
        self._arrow_bytes += table.nbytes

    def stored(self, arrow_bytes: int) -> int:
        """Return how much so many bytes of rows would add to the file, by its content so far."""
        return self.bytes * arrow_bytes // max(1, self._arrow_bytes)

    def finish(self) -> None:
        """Write the footer. Only then the file is valid."""
        self._writer.add_key_value_metadata({NAN_COLUMNS_KEY: _numbers(self._nan)})
        self._writer.close()
        self._sink.close()

    def abandon(self) -> None:
        """Close it; the remains must not be reported."""
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(Exception):
            self._sink.close()


def empty_file(form: ParquetFormat, output_id: str, nan: Collection[int] | None = None) -> bytes:
    """Return a file without rows, whose footer names ``nan`` as columns that hold NaN."""
    sink = pa.BufferOutputStream()
    with _writer(sink, form, form.schema.empty_table()) as writer:
        writer.add_key_value_metadata({OUTPUT_ID_KEY: output_id})
        if nan is not None:
            writer.add_key_value_metadata({NAN_COLUMNS_KEY: _numbers(nan)})
    return bytes(sink.getvalue())


def _numbers(columns: Collection[int]) -> str:
    return ",".join(str(number) for number in sorted(columns))


def stored_bytes(table: pa.Table, form: ParquetFormat) -> int:
    """Return the size of the rows in a file, found by writing them to a null device."""
    sink = pa.MockOutputStream()
    with _writer(sink, form, table) as writer:
        writer.write_table(table)
    return int(sink.size())


@dataclass(frozen=True, slots=True)
class Encodings:
    """Parquet columns by path: those with a dictionary, and those with statistics or all."""

    dictionary: Sequence[str] | bool
    statistics: Sequence[str] | bool


def encodings(table: pa.Table) -> Encodings:
    """Return what suits the values: a dictionary helps only columns whose values repeat.

    Decided by rows from all over the table. Fields of structs, lists and maps are separate columns
    in Parquet, named by their path.
    """
    sample = table
    if table.num_rows > _SAMPLE_ROWS:
        share = _SAMPLE_ROWS // _SAMPLE_SLICES
        step = table.num_rows // _SAMPLE_SLICES
        sample = pa.concat_tables(
            table.slice(number * step, share) for number in range(_SAMPLE_SLICES)
        )
    dictionary: list[str] = []
    statistics: list[str] = []
    without_statistics = False
    for name in sample.schema.names:
        for path, values in _leaves(name, sample.column(name).combine_chunks()):
            kind = values.type
            is_long = values.nbytes > _LONG_VALUES * max(1, len(values))
            if is_long and pa.types.is_binary(kind):
                without_statistics = True
            else:
                statistics.append(path)
            # A boolean has one bit already.
            can_repeat = not is_long and not pa.types.is_boolean(kind)
            if can_repeat and 2 * pc.count_distinct(values).as_py() <= len(values):
                dictionary.append(path)
    return Encodings(dictionary or False, statistics if without_statistics else True)


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values


def _writer(sink: Any, form: ParquetFormat, sample: pa.Table) -> pq.ParquetWriter:
    suited, compression = encodings(sample), form.layout.compression
    return pq.ParquetWriter(
        sink,
        form.schema,
        compression="none" if compression == "uncompressed" else compression,
        use_dictionary=suited.dictionary,
        write_statistics=suited.statistics,
        sorting_columns=_sorting_columns(form.schema, form.layout.sort_by) or None,
    )


def _sorting_columns(schema: pa.Schema, keys: Sequence[SortKey]) -> list[pq.SortingColumn]:
    """Return the order for readers, by number: names would be ambiguous with nested columns."""
    names = [key.column for key in keys]
    if not names:
        return []
    order = [(key.column, "descending" if key.descending else "ascending") for key in keys]
    return list(pq.SortingColumn.from_ordering(schema, order, null_placement="at_end"))


def output_format(layout: OutputLayout, schema: pa.Schema) -> ParquetFormat:
    """Return the format of files with such rows: without columns that are in the directory."""
    moved = {rule.column for rule in layout.partition_rules if rule.moves}
    return ParquetFormat(pa.schema([each for each in schema if each.name not in moved]), layout)

"""Rows of active files: counting of replaced rows, and rewriting of the remaining ones.

One row group is in memory at a time. A rewritten file keeps the order of rows, the codec, the
key-value metadata and the useful dictionaries of its original, and has statistics of all columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.file_sink import FileSink
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.intake.file_statistics import file_statistics
from penguin_py.model import Add
from penguin_py.planning.replacement import TextRanges, mask_replaced

# Codecs as footers call them and as the writer wants them.
_CODECS = {"UNCOMPRESSED": "none", "LZ4": "lz4"}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file made of the rows that stay of another one."""

    path: str
    size: int
    metadata: pq.FileMetaData
    schema: pa.Schema

    def add(
        self,
        columns: pa.Schema,
        properties: Mapping[str, str],
        now: float,
        partition_values: Mapping[str, str | None] = {},
    ) -> Add:
        """Return its ``add``, with statistics of a table's columns by its ``properties``."""
        stats = file_statistics(self.metadata, self.schema, columns, properties)
        return Add(Entry(self.path, self.size, now), partition_values, stats, None)


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The number of replaced rows of a file, of how many, and whether it lacks the columns."""

    leaving: int
    rows: int
    lacks: bool = False


def count_replaced(
    storage: Storage, path: str, size: int, wanted: Mapping[str, TextRanges]
) -> ReplacedRows:
    """Count the replaced rows of one file from its columns. Raises `SchemaMismatch`."""
    with open_parquet(storage, path, size, wanted) as file:
        columns = _text_columns(file.schema_arrow, wanted)
        if not columns:
            return ReplacedRows(0, file.metadata.num_rows, lacks=True)
        mask_replaced = 0
        for number in range(file.num_row_groups):
            values = file.read_row_group(number, columns=columns)
            mask_replaced += int(pc.sum(_leaving(values, wanted)).as_py() or 0)
        return ReplacedRows(mask_replaced, file.metadata.num_rows)


def rewrite(
    storage: Storage, path: str, size: int, target: str, wanted: Mapping[str, TextRanges]
) -> Rewritten:
    """Write the rows that are not replaced to ``target``; as `rewrite_rows`."""
    return rewrite_rows(storage, path, size, target, lambda rows: _leaving(rows, wanted))


def rewrite_rows(
    storage: Storage, path: str, size: int, target: str, leaving: Callable[[pa.Table], Any]
) -> Rewritten:
    """Write the remaining rows of ``path`` to ``target``, durably. Raises `SchemaMismatch`.

    ``leaving`` gets the row groups in order, and returns which rows of each leave.
    """
    with open_parquet(storage, path, size) as file:
        schema = _without_view_columns(file.schema_arrow)
        # In a footer that contradicts itself, reading rows raises an error, but accessing
        # column chunks crashes the process. So rows are read first.
        first = file.read_row_group(0).cast(schema)

        def remaining() -> Iterator[pa.Table]:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number).cast(schema) if number else first
                going = leaving(rows)
                yield rows.filter(pc.invert(going)) if pc.any(going).as_py() else rows

        return write_rows(storage, target, schema, remaining(), **_settings_of(file, first))


def write_rows(
    storage: Storage, path: str, schema: pa.Schema, groups: Iterable[pa.Table], **settings: Any
) -> Rewritten:
    """Write row groups to a new file, durably; ``settings`` are those of its writer."""
    sink = FileSink(storage.open_output(path), f"{storage.uri}/{path}")
    collected: list[pq.FileMetaData] = []
    try:
        with pq.ParquetWriter(sink, schema, metadata_collector=collected, **settings) as writer:
            for rows in groups:
                if rows.num_rows:
                    writer.write_table(rows, row_group_size=rows.num_rows)
    finally:
        sink.close()
    storage.sync(path)
    return Rewritten(path, sink.written, collected[0], schema)


def _leaving(rows: pa.Table, wanted: Mapping[str, TextRanges]) -> Any:
    values = {name: rows[name] for name in _text_columns(rows.schema, wanted)}
    return mask_replaced(values, wanted, rows.num_rows)


def _text_columns(schema: pa.Schema, wanted: Mapping[str, TextRanges]) -> list[str]:
    """Return the wanted columns that hold values. Raises `SchemaMismatch` if one is not text."""
    places = {name: schema.get_field_index(name) for name in wanted}
    there = [
        name
        for name, place in places.items()
        if place >= 0 and not pa.types.is_null(schema.field(place).type)
    ]
    for name in there:
        kind = schema.field(name).type
        if not _is_text(kind):
            raise SchemaMismatch(
                f"has {name} as {kind}, so its rows cannot be identified; delete or rewrite it"
            )
    return there


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    # Some writers leave out that bytes are text.
    of_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    of_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_of(kind) for is_of in (*of_text, *of_bytes))


def _without_view_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema without view types, which delta-rs writes and Arrow cannot filter."""
    fields = [field.with_type(_without_views(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(_without_views(kind.key_type), item.with_type(_without_views(item.type)))
    if pa.types.is_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_without_views(element.type)))
    return kind


def _settings_of(file: pq.ParquetFile, rows: pa.Table) -> dict[str, Any]:
    """Return the settings of a writer by the file that is read, and rows of its first row group.

    A dictionary of values that hardly repeat costs a third of the time, and makes a larger file.
    """
    group = file.metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    codecs = [str(column.compression) for column in columns]
    codec = max(set(codecs), key=codecs.count) if codecs else "ZSTD"
    return {
        "compression": _CODECS.get(codec, codec.lower()),
        "use_dictionary": [
            column.path_in_schema
            for column in columns
            if column.has_dictionary_page and _is_smaller(column, rows)
        ],
        "sorting_columns": group.sorting_columns or None,
    }


def _is_smaller(column: pq.ColumnChunkMetaData, rows: pa.Table) -> bool:
    """Return whether a dictionary makes the column smaller than its values, or nobody knows."""
    name = column.path_in_schema
    if name not in rows.column_names:
        return True  # a leaf of a nested column
    # No value of a file takes less than four bytes, but those that have no dictionary.
    return bool(column.total_uncompressed_size < max(rows[name].nbytes, 4 * rows.num_rows))


@contextlib.contextmanager
def open_parquet(
    storage: Storage, path: str, size: int, dictionaries: Iterable[str] = ()
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of the store. Raises `SchemaMismatch` if it cannot be read.

    Columns in ``dictionaries`` are read as such, which costs a fraction where values repeat.
    """
    try:
        source = pa.PythonFile(RangeFile(partial(storage.read_range, path), size), mode="r")
        metadata = pq.read_metadata(source)
        there = {metadata.schema.column(index).path for index in range(metadata.num_columns)}
        with pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=[name for name in dictionaries if name in there],
            pre_buffer=True,
            coerce_int96_timestamp_unit="us",
        ) as file:
            yield file
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{path} {error}") from error
    except BlizzardError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise SchemaMismatch(f"{path} is in the table and cannot be read: {text}") from error

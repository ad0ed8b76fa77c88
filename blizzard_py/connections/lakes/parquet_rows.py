"""The rows of a Parquet file in bounded batches, whatever the file holds.

How many rows are decoded at once follows from the types, from the longest text of each
dictionary, and last from what the footer says. Before Arrow is given a page it is certain what
it makes of it at most (`page_watch`); what is not certain is read apart (`reading_apart`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from blizzard_core.bounds import TABLE_ROW_BYTES, TABLE_WATCHED_BYTES
from blizzard_core.errors import SourceError
from blizzard_core.table.schema_fit import Misfit
from blizzard_py.columns.leaves import with_leaves
from blizzard_py.connections.lakes.page_headers import DICTIONARY_PAGE, page_header
from blizzard_py.connections.lakes.page_watch import Leaf, PageWatch, Unproven
from blizzard_py.connections.lakes.reading_apart import Order, apart
from blizzard_py.connections.lakes.reading_apart import allowed as allowed_apart
from blizzard_py.connections.lakes.watched_file import PIECE_BYTES, TableFile

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
# Of all columns together; where there are many each has smaller pieces.
_PIECES_BYTES = 64 << 20
_LEAST_PIECE = 64 << 10
# A dictionary up to here counts as one text, one above is not unpacked to look at its texts.
_SHORT_DICTIONARY, _LONG_DICTIONARY = 1 << 6, 16 << 20
# What a value takes in Arrow's arrays: of a text its place, of small numbers what they may become.
_WIDTHS = {"BOOLEAN": 1, "FLOAT": 4, "BYTE_ARRAY": 4, "INT96": 16}
_LIST_BYTES = 4  # where a list in a list begins
_LEAST_VALUES = 1024  # Arrow makes room for as many
_NULL_BYTES = 2  # whether it is null, for as long as Arrow remembers that
_LENGTH = struct.Struct("<I")
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_VIEW_IDS = frozenset(kind.id for kind in _VIEWS)


def batches(
    file: TableFile,
    groups: Sequence[int],
    columns: Sequence[str],
    allowed: int = TABLE_WATCHED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Rows of these row groups, of at most 64 Ki rows and about 16 MB.

    ``columns`` are top-level names; those that the file lacks are left out. ``allowed`` is what
    a batch may take here, for callers that read several files at a time. Raises `SourceError`
    for a file of which a row takes more than its bound.
    """
    present = set(file.schema_arrow.names)
    wanted = [name for name in columns if name in present]
    for place, group in enumerate(groups):
        done = 0
        try:
            for batch in _watched(file, group, wanted, allowed):
                done += batch.num_rows
                yield from cut(batch, file.watched.where)
        except Unproven as unproven:
            column = unproven.column
        else:
            continue
        finally:
            file.watched.unwatched()
        left = tuple(groups[place:])
        most = allowed_apart(max(_stored(file, each, wanted) for each in left))
        order = Order(file.metadata, left, tuple(wanted), done, column, most)
        for batch in apart(file.watched, order):
            yield from cut(batch, file.watched.where)
        return


def _stored(file: TableFile, group: int, wanted: Sequence[str]) -> int:
    """The bytes of the columns in a row group, as the footer says, and no more than there are."""
    file.check(group, wanted)
    about = file.metadata.row_group(group)
    stored = 0
    for place in _places(about, wanted):
        stored += max(0, about.column(place).total_compressed_size)
    return min(file.watched.size(), stored)


def cut(batch: pa.RecordBatch, where: str) -> Iterator[pa.RecordBatch]:
    """Smaller ones where rows turned out larger than was to be expected, without views."""
    batch = _without_views(batch)
    pieces = -(-batch.nbytes // BATCH_BYTES)
    rows = max(1, -(-batch.num_rows // max(1, pieces)))
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if piece.nbytes > TABLE_ROW_BYTES and rows == 1:
            raise SourceError(
                f"{where}: a row of {piece.nbytes >> 20:,} MB, the most of it in column"
                f" {max(piece.schema.names, key=lambda name: piece.column(name).nbytes)}; rows of"
                f" more than {TABLE_ROW_BYTES >> 20} MiB are not read: write it anew without"
            )
        yield piece


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Texts as they were before there were views: Arrow cannot take some rows of such a column."""
    kinds = batch.schema.types
    plain = [
        _plain_type(kind) if kind.num_fields or kind.id in _VIEW_IDS else kind for kind in kinds
    ]
    if plain == kinds:
        return batch
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, plain, strict=True)]
    return batch.cast(pa.schema(fields))


@lru_cache(4096)  # a table may have a thousand columns, and thousands of batches
def _plain_type(kind: pa.DataType) -> pa.DataType:
    return with_leaves(kind, lambda leaf: _VIEWS.get(leaf, leaf))


def _watched(
    file: TableFile, group: int, wanted: Sequence[str], allowed: int
) -> Iterator[pa.RecordBatch]:
    """Raises `Unproven` where a batch may be larger than it may be."""
    file.check(group, wanted)
    about = file.metadata.row_group(group)
    places = _places(about, wanted)
    piece = max(_LEAST_PIECE, min(PIECE_BYTES, _PIECES_BYTES // max(1, len(places))))
    leaves = [_leaf(file, about, place, piece) for place in places]
    width = _row_width(leaves)
    # An eighth of what is allowed if the footer is right, a third if all texts are the longest.
    expected = max(1, about.total_byte_size // max(1, about.num_rows))
    rows = max(1, min(BATCH_ROWS, allowed // 8 // expected, allowed // 3 // max(1, width)))
    reader = file if piece == PIECE_BYTES else TableFile(file.watched, file.metadata, piece)
    found = reader.iter_batches(
        batch_size=rows, row_groups=[group], columns=wanted, use_threads=False
    )
    watch = file.watched.watch = PageWatch(leaves, allowed)
    done = 0
    while True:
        watch.begin(done, rows, width)
        batch = next(found, None)
        if batch is None:
            return
        done += batch.num_rows
        yield batch if batch.schema.names == wanted else batch.select(wanted)


def _places(about: Any, wanted: Sequence[str]) -> list[int]:
    """Those columns of values that Arrow reads for these names."""
    starts = tuple(f"{name}." for name in wanted)
    names = set(wanted)
    paths = ((place, about.column(place).path_in_schema) for place in range(about.num_columns))
    return [place for place, path in paths if path in names or path.startswith(starts)]


def _leaf(file: TableFile, about: Any, place: int, piece: int) -> Leaf:
    chunk, column = about.column(place), file.schema.column(place)
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    kind = chunk.physical_type
    is_binary = kind == "BYTE_ARRAY"
    width = column.length if kind == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(kind, 8)
    end = begin + chunk.total_compressed_size
    if begin < 0 or end <= begin or width * _LEAST_VALUES > BATCH_BYTES:
        raise Unproven(chunk.path_in_schema)
    longest = 0
    if is_binary:
        head = file.watched.look(begin, min(end, begin + piece))
        longest = _longest(head, chunk.compression, chunk.path_in_schema)
    return Leaf(
        chunk.path_in_schema,
        begin,
        end,
        width + _LIST_BYTES * max(0, column.max_repetition_level - 1),
        is_binary,
        column.max_repetition_level == 0,
        longest,
    )


def _longest(head: bytes, codec: str, column: str) -> int:
    """The longest text of the dictionary that a column begins with; 0 without one."""
    try:
        page, at = page_header(head, 0)
    except (IndexError, Misfit) as error:
        raise Unproven(column) from error
    if page.kind != DICTIONARY_PAGE:
        return 0
    stored = head[at : at + page.stored]
    if not _SHORT_DICTIONARY < page.unpacked <= _LONG_DICTIONARY or len(stored) < page.stored:
        return page.unpacked
    if codec == "UNCOMPRESSED":
        data = stored
    else:
        try:
            name = "lz4_raw" if codec == "LZ4" else codec.lower()
            data = pa.decompress(stored, page.unpacked, name, asbytes=True)
        except (pa.ArrowException, OSError, ValueError):
            return page.unpacked
    longest, at, last = 0, 0, len(data) - _LENGTH.size
    length = _LENGTH.unpack_from
    for _ in range(page.values):
        if at > last:
            break
        (size,) = length(data, at)
        at += size + 4
        if size > longest:  # noqa: PLR1730  # a call for each text takes twice as long
            longest = size
    return min(longest, page.unpacked)


def _row_width(leaves: Sequence[Leaf]) -> int:
    """What a row takes in columns without lists: its values and the texts of dictionaries."""
    return sum(leaf.width + leaf.longest + _NULL_BYTES for leaf in leaves if leaf.is_flat)

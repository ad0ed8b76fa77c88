"""Rows in one chunk and one form, whatever path they took.

The written file depends on the buffers of rows: where a page ends, how many bytes wait. So two
paths to the same rows must produce the same buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def one_table(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return one table with each column in one chunk, as if everything was parsed in one call."""
    if len(tables) == 1:
        return tables[0]
    if not tables:
        return schema.empty_table()
    return with_bare(pa.concat_tables(tables).combine_chunks())


def with_bare(table: pa.Table) -> pa.Table:
    """Return the table with `bare` columns, each in one chunk."""
    if not table.num_rows:
        return table.schema.empty_table()
    columns = [bare(column.chunk(0)) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def bare(column: pa.Array) -> pa.Array:
    """Return a column without validity if it has no null; Arrow's kernels may keep or add it."""
    if column.offset:
        column = pa.concat_arrays([column])
    kind, own = column.type, column.buffers()
    inner: list[pa.Array] = []
    if pa.types.is_struct(kind):
        own = own[:1]
        inner = [bare(column.field(number)) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        own = own[:2]
        inner = [bare(column.values)]
    validity = own[0] if column.null_count else None
    buffers = [validity, *own[1:]]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, children=inner)

"""Deletes in the change table that may be newer than a change whose key is not stored.

Such a change is an old one that arrives late, if its key was deleted since. The change table keeps
all deletes, so nothing else has to. Its files as of now are as right as those of any other version:
a delete that is not merged yet will win all the same. In an ordered flow no file is read, since
bounds of the sequence leave out all that is older.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import pyarrow as pa

from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.storage.protocol import Storage
from penguin_py.keyed.deletes import are_deletes, may_have_deletes
from penguin_py.keyed.files import TableFile, read_rows
from penguin_py.keyed.order import Order
from penguin_py.keyed.pruning import lowest_bound, may_exceed


def newer_deletes(
    storage: Storage,
    files: Sequence[TableFile],
    pending: Container[str],
    fresh: pa.Table,
    schema: pa.Schema,
    order: Order,
    condition: DeleteCondition,
) -> Iterator[pa.Table]:
    """Yield deletes, file by file, that may be newer than a row of ``fresh``.

    ``files`` are the change table's, with bounds; those ``pending`` are not merged yet.
    Raises `SchemaMismatch` and `StorageError`.
    """
    first = order.sequence[0]
    lowest = lowest_bound(fresh[first])
    names = dict.fromkeys((*order.columns, condition.column))
    columns = pa.schema([schema.field(name) for name in names])
    for file in files:
        high = file.bounds.get(first, (None, None))[1]
        if file.spelled in pending or not may_exceed(high, lowest):
            continue
        low, high = file.bounds.get(condition.column, (None, None))
        if not may_have_deletes(condition, file.rows, file.nulls.get(condition.column), low, high):
            continue
        rows = read_rows(storage, file, columns)
        found = rows.filter(are_deletes(rows, condition))
        if found.num_rows:
            yield found

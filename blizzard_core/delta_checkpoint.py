"""Reader of Parquet checkpoints of Delta logs.

Both formats of checkpoints are read alike: a row has one kind of action, and the others are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile

# So many rows are held at once.
_ROWS = 1 << 14
_ARROW_TYPES = {str: pa.string(), int: pa.int64()}


def column_batches(
    storage: Storage,
    path: str,
    size: int | None,
    wanted: Sequence[str],
    certain: Mapping[str, type],
) -> Iterator[Mapping[str, list[Any]]]:
    """Yield the columns of one file; with a known ``size`` only the needed ranges are read.

    ``certain`` are the columns whose values are of a type and never missing.
    Raises `NotFound`, and `ValueError` or `OSError` if the file is no sound checkpoint.
    """
    source = (
        pa.BufferReader(storage.read(path))
        if size is None
        else pa.PythonFile(RangeFile(partial(storage.read_range, path), size), mode="r")
    )
    try:
        with pq.ParquetFile(source) as file:
            schema = file.metadata.schema
            leaves = [schema.column(i).path for i in range(len(schema))]
            # pyarrow takes the name of a kind for all of its fields.
            there = [n for n in wanted if any(f"{leaf}.".startswith(f"{n}.") for leaf in leaves)]
            for batch in file.iter_batches(_ROWS, columns=there):
                yield {name: _values(batch, name, certain.get(name)) for name in wanted}
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _values(batch: pa.RecordBatch, name: str, certain: type | None) -> list[Any]:
    """Return one column of the rows that have the kind; nulls where the checkpoint lacks it."""
    kind, _, key = name.partition(".")
    position = batch.schema.get_field_index(kind)
    if position < 0:
        return []
    bodies = batch.column(position).drop_null()
    if not key:
        return bodies.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    field = bodies.type.get_field_index(key)
    if field < 0:
        return [None] * len(bodies)
    values = bodies.flatten()[field]
    if certain is not None:
        values = values.cast(_ARROW_TYPES[certain])
        if values.null_count:
            raise ValueError(f"an action has no {name}")
    return values.to_pylist()  # type: ignore[no-any-return]  # as above

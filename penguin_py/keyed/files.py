"""Files of a Delta table: what its log says of them, and their rows as of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from blizzard_core.delta_json import relative
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.active_files import spelled_value
from penguin_py.groups.rows import open_parquet
from penguin_py.keyed.pruning import Bounds, logged_bounds


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table: its path in the directory, and as the log spells it.

    ``values`` are those of the partition columns, as text. ``bounds`` and ``nulls`` are of the
    wanted columns.
    """

    path: str
    spelled: str
    size: int
    rows: int | None
    values: Mapping[str, str | None] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    nulls: Mapping[str, int | None] = field(default_factory=dict)


def active_files(
    active: pa.Table, root: str, names: Sequence[str], partitions: Sequence[str] = ()
) -> list[TableFile]:
    """Return the files of delta-rs's flattened table, in order of writing.

    Raises `SchemaMismatch` for a file outside of the table's directory.
    """
    active = active.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    bounds, nulls = {}, {}
    for name in names:
        if f"null_count.{name}" in active.column_names:
            nulls[name] = active[f"null_count.{name}"].to_pylist()
        if f"min.{name}" in active.column_names and f"max.{name}" in active.column_names:
            lows = logged_bounds(active[f"min.{name}"], upper=False)
            highs = logged_bounds(active[f"max.{name}"], upper=True)
            bounds[name] = list(zip(lows, highs, strict=True))
    values = {name: active[f"partition.{name}"].to_pylist() for name in partitions}
    rows = active["num_records"].to_pylist()
    sizes = active["size_bytes"].to_pylist()
    found = []
    for place, spelled in enumerate(active["path"].to_pylist()):
        found.append(
            TableFile(
                inside(spelled, root),
                spelled,
                sizes[place],
                rows[place],
                {name: spelled_value(of_all[place]) for name, of_all in values.items()},
                {name: of_all[place] for name, of_all in bounds.items()},
                {name: of_all[place] for name, of_all in nulls.items()},
            )
        )
    return found


def inside(spelled: str, root: str) -> str:
    """Return a logged path relative to the table's directory. Raises `SchemaMismatch`."""
    path = relative(spelled, root)
    if path is None:
        raise SchemaMismatch(
            f"{spelled} is outside of the table's directory; rewrite the table's files there"
        )
    return path


def row_group_sizes(storage: Storage, file: TableFile) -> list[int]:
    """Return the numbers of rows of a file's row groups. Raises as `read_rows`."""
    with open_parquet(storage, file.path, file.size) as parquet:
        metadata = parquet.metadata
        return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


def read_rows(
    storage: Storage, file: TableFile, schema: pa.Schema, groups: Sequence[int] | None = None
) -> pa.Table:
    """Return a file's rows in the columns of ``schema``; null where the file lacks one.

    ``groups`` are its row groups that are read, None: all. Raises `SchemaMismatch` for a file that
    cannot be read so, and `StorageError`.
    """
    with open_parquet(storage, file.path, file.size) as parquet:
        there = set(parquet.schema_arrow.names)
        metadata = parquet.metadata
        places = list(range(metadata.num_row_groups) if groups is None else groups)
        names = [name for name in schema.names if name in there]
        found = parquet.read_row_groups(places, columns=names)
        count = sum(metadata.row_group(place).num_rows for place in places)
    columns = []
    for column in schema:
        try:
            if column.name in there:
                columns.append(found[column.name].cast(column.type))
            else:
                text = file.values.get(column.name)
                columns.append(pa.repeat(_value(text, column.type), count))
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"{file.path} has {column.name!r} in a form that is not {column.type}: {error}"
            ) from error
    return pa.table(columns, schema=schema)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value by its column's type; null is spelled as nothing, too."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        plain = pa.array([text.removesuffix("Z")]).cast(pa.timestamp("us"))
        return plain.cast(pa.timestamp("us", "UTC")).cast(kind)[0]
    return pa.array([text]).cast(kind)[0]

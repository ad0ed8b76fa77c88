"""Columns with a row's origin.

They are those of its file's path, ``_source_file``, ``_source_line``, ``_ingested_at`` and, if a
source has slices, ``_unit``, the slice by which rows are replaced. They depend only on the source
file and on the begin of its batch, so a row has the same values in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_core.text import source_file_text
from blizzard_py.formats.path_columns import path_values
from blizzard_py.job import AddedColumns
from blizzard_py.schema.types import arrow_type

if TYPE_CHECKING:  # a worker needs no settings of sources
    from blizzard_core.settings.sources import MetadataColumn

_MICROS = 1_000_000

_TYPES: dict[MetadataColumn, pa.DataType] = {
    "_source_file": pa.string(),
    "_source_line": pa.int64(),
    "_ingested_at": pa.timestamp("us", tz="UTC"),
}


class Metadata:
    """Adds the wanted columns after those of the schema; only those of the path may be null."""

    def __init__(self, added: AddedColumns, source_uri: str = "", started_ts: float = 0.0) -> None:
        self._added = added
        self._source_uri = source_uri
        self._started = round(started_ts * _MICROS)
        fields = [pa.field(spec.name, arrow_type(spec)) for spec in added.path]
        fields += [pa.field(name, _TYPES[name], nullable=False) for name in added.metadata]
        if added.unit:
            fields.append(pa.field(UNIT_COLUMN, pa.string()))  # rows of other writers have none
        self._fields = fields

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the columns."""
        return pa.schema([*schema, *self._fields], metadata=schema.metadata)

    def check_path(self, path: str) -> None:
        """Raise `FileFailed` if a file's path does not have the values of its columns."""
        path_values(path, self._added.path, self._added.path_template)

    def added(
        self,
        table: pa.Table,
        files: Sequence[tuple[str, int]],
        lines: npt.NDArray[np.int64],
        unit: str = "",
    ) -> pa.Table:
        """Return the table with the columns; ``files`` are paths with row counts, in order.

        ``lines`` has each row's line number, from 1 within its file. ``unit`` is the slice of all
        rows. Raises `FileFailed` as `check_path`.
        """
        if not self._fields:
            return table
        wanted = self._added.metadata
        which = pa.array(np.repeat(np.arange(len(files)), [rows for _, rows in files]))
        columns = [values.take(which) for values in self._of_paths([path for path, _ in files])]
        values: dict[MetadataColumn, pa.Array] = {}
        if "_source_file" in wanted:
            texts = [source_file_text(self._source_uri, path) for path, _ in files]
            values["_source_file"] = pa.array(texts, pa.string()).take(which)
        if "_source_line" in wanted:
            values["_source_line"] = pa.array(lines, pa.int64())
        if "_ingested_at" in wanted:
            started = pa.scalar(self._started, _TYPES["_ingested_at"])
            values["_ingested_at"] = pa.repeat(started, table.num_rows)
        columns += [values[name] for name in wanted]
        if self._added.unit:
            columns.append(pa.repeat(unit, table.num_rows))
        return pa.table([*table.columns, *columns], schema=self.schema(table.schema))

    def _of_paths(self, paths: Sequence[str]) -> Iterator[pa.Array]:
        """Yield the columns of the path, with a value for each file."""
        if not self._added.path or not paths:
            yield from (pa.nulls(0, arrow_type(spec)) for spec in self._added.path)
            return
        of_files = [path_values(p, self._added.path, self._added.path_template) for p in paths]
        yield from (pa.concat_arrays(column) for column in zip(*of_files, strict=True))

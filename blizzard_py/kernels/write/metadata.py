"""Columns with a row's origin.

They are ``_source_file``, ``_source_line``, ``_ingested_at`` and, if a source has slices,
``_unit``, the slice by which rows are replaced. They depend only on the source file and on the
begin of its batch, so a row has the same values in every attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_core.settings.sources import MetadataColumn
from blizzard_py.job import source_file_text

_MICROS = 1_000_000

_TYPES: dict[MetadataColumn, pa.DataType] = {
    "_source_file": pa.string(),
    "_source_line": pa.int64(),
    "_ingested_at": pa.timestamp("us", tz="UTC"),
}


class Metadata:
    """Adds the wanted columns, never null, after those of the schema."""

    def __init__(
        self,
        columns: Sequence[MetadataColumn],
        source_uri: str,
        started_ts: float,
        *,
        unit_column: bool = False,
    ) -> None:
        self._columns = tuple(columns)
        self._unit_column = unit_column
        self._source_uri = source_uri
        self._started = round(started_ts * _MICROS)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the columns."""
        for name in self._columns:
            schema = schema.append(pa.field(name, _TYPES[name], nullable=False))
        if self._unit_column:
            # Rows of other writers do not have it.
            schema = schema.append(pa.field(UNIT_COLUMN, pa.string(), nullable=True))
        return schema

    def added(
        self,
        table: pa.Table,
        files: Sequence[tuple[str, int]],
        lines: npt.NDArray[np.int64],
        unit: str = "",
    ) -> pa.Table:
        """Return the table with the columns; ``files`` are paths with row counts, in order.

        ``lines`` has each row's line number, from 1 within its file. ``unit`` is the slice of all
        rows.
        """
        if not self._columns and not self._unit_column:
            return table
        values: dict[MetadataColumn, pa.Array] = {}
        if "_source_file" in self._columns:
            texts = [source_file_text(self._source_uri, path) for path, _ in files]
            which = np.repeat(np.arange(len(files)), [rows for _, rows in files])
            values["_source_file"] = pa.array(texts, pa.string()).take(pa.array(which))
        if "_source_line" in self._columns:
            values["_source_line"] = pa.array(lines, pa.int64())
        if "_ingested_at" in self._columns:
            started = pa.scalar(self._started, _TYPES["_ingested_at"])
            values["_ingested_at"] = pa.repeat(started, table.num_rows)
        added = [values[name] for name in self._columns]
        if self._unit_column:
            added.append(pa.repeat(unit, table.num_rows))
        return pa.table(
            [*table.columns, *added],
            schema=self.schema(table.schema),
        )

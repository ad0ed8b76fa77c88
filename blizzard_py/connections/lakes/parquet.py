"""Directories of Parquet files, planned from footers. Tasks read with `lakes.window_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.column_ranges import column_range, highest
from blizzard_py.connections.lakes.directory import DirectoryConnection
from blizzard_py.connections.lakes.file_facts import FileFacts
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.formats.columnar.file import opened
from blizzard_py.formats.columnar.rows import StoredFile
from blizzard_py.formats.columnar.statistics import order_in
from blizzard_py.reading import Access, BoundKind


@dataclass(frozen=True, slots=True)
class ParquetForm:
    """The format Parquet as a `Form`."""

    endings: tuple[str, ...] = (".parquet",)
    bound: BoundKind = "max"
    counts_nulls: bool = False  # a footer may not say whether there are some
    has_schema: bool = True

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        """Read the footer, and a column if its maximum there may be rounded."""
        with opened(StoredFile.of(storage, file.name.path, file.size)) as parquet:
            orders = {name: order_in(parquet, name) for name in columns}
            ranges = {}
            for name in columns:
                known = column_range(parquet, name)
                high = highest(parquet, name) if known.values else None
                ranges[name] = replace(known, high=high, values=high is not None)
            there = {name: order for name, order in orders.items() if order is not None}
            return FileFacts(parquet.schema_arrow.remove_metadata(), there, ranges)


def connect(access: Access, selection: ReadSelection) -> DirectoryConnection:
    """Return the Parquet files of a directory."""
    return DirectoryConnection(access, selection, ParquetForm())

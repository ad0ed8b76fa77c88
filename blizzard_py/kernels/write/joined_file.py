"""Joining of Parquet files and row groups with the same columns, their pages unchanged.

**Promise**: the file has the added row groups, in order and byte for byte. Its footer has their new
positions and the columns with NaN; the rest equals the footer of a file without rows. If that is
impossible, `SchemaMismatch` is raised, and the caller rewrites the rows.

Reading and writing rows again takes as long as parsing them did. Copying them takes a tenth of
that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from blizzard_core.handover.outputs import nan_columns_of
from blizzard_core.storage.file_sink import FileSink
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.row_groups import (
    PARQUET_MAGIC,
    PARQUET_TAIL_BYTES,
    footer_of,
    footer_with,
    metadata_of,
    moved,
    row_groups_of,
    schema_of,
)
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import unreadable
from blizzard_py.formats.columnar.copying import RowGroup
from blizzard_py.kernels.write.parquet_file import ParquetFormat, empty_file


@dataclass(frozen=True, slots=True)
class _Added:
    """A row group's entry in the footer.

    ``nan`` are the columns that hold NaN; None: nobody says.
    """

    entry: bytes
    nan: frozenset[int] | None


class JoinedFile:
    """A file in staging that is joined from others."""

    def __init__(self, storage: Storage, form: ParquetFormat, staged: str, output_id: str) -> None:
        self.staged = staged
        self.output_id = output_id
        self.rows = 0
        self._form = form
        self._schema = schema_of(footer_of(empty_file(form, output_id)))
        self._groups: list[_Added] = []
        self._sink = FileSink(storage.open_output(staged), f"{storage.uri}/{staged}")
        self._sink.write(PARQUET_MAGIC)

    @property
    def size(self) -> int:
        """The size in bytes so far."""
        return self._sink.written

    @property
    def groups(self) -> int:
        """The number of row groups so far."""
        return len(self._groups)

    @property
    def footer_bytes(self) -> int:
        """The size of the row groups' entries in the footer."""
        return sum(len(group.entry) for group in self._groups)

    def add(self, data: bytes) -> None:
        """Add a whole file's rows. Raises `SchemaMismatch` if they cannot be copied unchanged."""
        if data[: len(PARQUET_MAGIC)] != PARQUET_MAGIC:
            raise SchemaMismatch("is no Parquet file")
        footer = footer_of(data)
        distance = self._sink.written - len(PARQUET_MAGIC)
        try:
            if schema_of(footer) != self._schema:
                raise SchemaMismatch("has other columns than the files that it is joined with")
            entries = [moved(entry, distance) for entry in row_groups_of(footer)]
        except IndexError:
            raise unreadable("it ends too early") from None
        pages = len(data) - PARQUET_TAIL_BYTES - len(footer)
        self._sink.write(memoryview(data)[len(PARQUET_MAGIC) : pages])
        nan = nan_columns_of(metadata_of(footer).metadata)
        self._groups += [_Added(entry, nan) for entry in entries]

    def copy(self, group: RowGroup, blocks: Iterable[bytes]) -> None:
        """Add a row group whose bytes are ``blocks``."""
        entry = moved(group.entry, self._sink.written - group.start)
        for block in blocks:
            self._sink.write(block)
        self._groups.append(_Added(entry, group.nan))

    def forget(self, groups: int) -> None:
        """Leave out all row groups but the first ones; their bytes remain without a meaning."""
        del self._groups[groups:]

    def finish(self) -> None:
        """Write the footer. Only then the file is valid."""
        nan = [group.nan for group in self._groups]
        known = None if None in nan else frozenset[int]().union(*(each or () for each in nan))
        head = footer_of(empty_file(self._form, self.output_id, known))
        entries = [group.entry for group in self._groups]
        found = metadata_of(footer_with(head, entries, 0))
        self.rows = sum(found.row_group(n).num_rows for n in range(found.num_row_groups))
        footer = footer_with(head, entries, self.rows)
        self._sink.write(footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC)
        self._sink.close()

    def abandon(self) -> None:
        """Close it; the remains must not be reported."""
        with contextlib.suppress(Exception):
            self._sink.close()

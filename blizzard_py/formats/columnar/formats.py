"""The formats Parquet and ORC: batches of columns become rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from blizzard_core.settings.formats import OrcOptions, ParquetOptions
from blizzard_py.formats.columnar.batches import (
    BatchFormat,
    FileColumns,
    file_failures,
    pieces_of,
)
from blizzard_py.formats.columnar.calendars import (
    Calendar,
    Calendars,
    Mode,
    calendars_of,
)
from blizzard_py.formats.columnar.file import ParquetFooter, batches, opened
from blizzard_py.formats.columnar.int96 import int96_columns
from blizzard_py.formats.columnar.messages import DecodeCommand
from blizzard_py.formats.columnar.process import JULIAN
from blizzard_py.formats.columnar.rows import StoredFile, allowed, decoded
from blizzard_py.formats.nested_arrays import by_column
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.formats.typed_rows import check_names
from blizzard_py.job import RowSchema
from blizzard_py.lines.framing import Piece


@dataclass(frozen=True, slots=True)
class ParquetFiles(BatchFormat):
    """Parquet files as a `Format`, without row groups that are ``copied``."""

    options: ParquetOptions
    copied: frozenset[int] = frozenset()

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece]:
        """Yield the batches of the row groups."""
        stored = StoredFile.opened(file)
        with file_failures(file.path), opened(stored) as parquet:
            about = parquet.metadata
            # The mode is the decoder's, since letters show what is stored.
            columns = columns_of(parquet, "error")
            check_names(columns.schema.names, schema)
            wanted = columns.wanted(schema)
            skipped = 0
            for is_copied, run in groupby(range(about.num_row_groups), self.copied.__contains__):
                numbers = list(run)
                if is_copied:
                    skipped = sum(about.row_group(number).num_rows for number in numbers)
                    continue
                for piece in pieces_of(file, batches(parquet, numbers, wanted), columns):
                    yield replace(piece, skipped=skipped)
                    skipped = 0


def columns_of(file: ParquetFooter, mode: Mode) -> FileColumns:
    """Return the columns of a file, with what their stored values mean."""
    about = file.metadata
    known = calendars_of(about.metadata or {}, about.created_by or "", mode)
    return FileColumns(
        file.schema_arrow.remove_metadata(), _calendars(file, known), int96_columns(file)
    )


def _calendars(file: ParquetFooter, known: Calendars) -> dict[str, tuple[Calendar, ...]]:
    if set(known) == {"gregorian"}:
        return {}
    stored = file.metadata.schema
    return by_column(
        file.schema_arrow,
        lambda at, kind: known.of(kind, stored.column(at).physical_type),
        "gregorian",
    )


@dataclass(frozen=True, slots=True)
class OrcFiles(BatchFormat):
    """ORC files as a `Format`."""

    options: OrcOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece]:
        """Yield the batches of all stripes."""
        stored = StoredFile.opened(file, "ORC")
        command = DecodeCommand(b"", file.size, (), (), allowed(file.size), "orc schema")
        with file_failures(file.path):
            [nothing, *_] = decoded(stored, command)  # a second process answers again
            found = nothing.schema.remove_metadata()
            calendars: dict[str, tuple[Calendar, ...]] = {}
            if JULIAN in (nothing.schema.metadata or {}):
                calendars = by_column(found, _julian_date, "gregorian")
            columns = FileColumns(found, calendars)
            check_names(columns.schema.names, schema)
            command = command._replace(columns=tuple(columns.wanted(schema)), kind="orc")
            yield from pieces_of(file, decoded(stored, command), columns)


def _julian_date(_number: int, kind: pa.DataType) -> Calendar:
    """Return the calendar of a column; Arrow reads no times as old as those that differ."""
    return "julian" if pa.types.is_date(kind) else "gregorian"

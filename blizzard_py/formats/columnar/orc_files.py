"""The format ORC: batches of columns become rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.settings.formats import OrcOptions
from blizzard_py.formats.columnar.batches import (
    BatchFormat,
    FileColumns,
    OpenRanges,
    file_failures,
    pieces_of,
)
from blizzard_py.formats.columnar.calendars import Calendar
from blizzard_py.formats.columnar.messages import DecodeCommand
from blizzard_py.formats.columnar.process import JULIAN
from blizzard_py.formats.columnar.rows import StoredFile, allowed, decoded
from blizzard_py.formats.nested_arrays import by_column
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.formats.typed_rows import check_names
from blizzard_py.job import RowSchema
from blizzard_py.lines.framing import Piece


@dataclass(frozen=True, slots=True)
class OrcFiles(BatchFormat):
    """ORC files as a `Format`."""

    options: OrcOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece]:
        """Yield the batches of all stripes."""
        stored = StoredFile(OpenRanges(file), file.path, file.size, file.path, "ORC")
        command = DecodeCommand(b"", file.size, (), (), allowed(file.size), "orc schema")
        with file_failures(file.path):
            [nothing, *_] = decoded(stored, command)  # a second process answers again
            is_julian = JULIAN in (nothing.schema.metadata or {})
            schema_alone = nothing.schema.remove_metadata()
            columns = FileColumns(schema_alone, _calendars(schema_alone) if is_julian else {})
            check_names(columns.schema.names, schema)
            command = command._replace(columns=tuple(columns.wanted(schema)), kind="orc")
            yield from pieces_of(file, decoded(stored, command), columns)

    @property
    def cuts_nanoseconds(self) -> bool:
        """True if the option says so."""
        return self.options.nanoseconds == "cut"


def _calendars(schema: pa.Schema) -> dict[str, tuple[Calendar, ...]]:
    return by_column(schema, _julian_date, "gregorian")


def _julian_date(_number: int, kind: pa.DataType) -> Calendar:
    """Return the calendar of a column; Arrow reads no times as old as those that differ."""
    return "julian" if pa.types.is_date(kind) else "gregorian"

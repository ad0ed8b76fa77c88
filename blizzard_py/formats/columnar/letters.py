"""Letters of rows that are columns of Arrow: their header, their lines, and batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from blizzard_py.formats.columnar.calendars import Calendar
from blizzard_py.formats.columnar.int96 import from_texts
from blizzard_py.formats.letters.header import ROWS, header_text
from blizzard_py.formats.letters.reading import Room, arrow_array
from blizzard_py.formats.letters.types import type_of, type_text


def rows_header(
    read: pa.Schema,
    names: Sequence[str],
    calendars: Mapping[str, Sequence[Calendar]],
    int96: Mapping[str, Sequence[bool]],
) -> bytes:
    """Return the header for rows of the columns ``read``, of a file with all these names."""
    columns = {column.name: type_text(column.type) for column in read}
    members: dict[str, Any] = {"columns": columns}
    for key, found in ("calendars", calendars), ("int96", int96):
        if own := {name: list(each) for name, each in found.items() if name in columns}:
            members[key] = own
    return header_text(ROWS, members, [name for name in names if name not in columns])


def columns_in(
    header: Mapping[str, Any],
) -> tuple[pa.Schema, dict[str, tuple[Calendar, ...]], dict[str, tuple[bool, ...]]]:
    """Return the columns of the file, their calendars and those of INT96.

    Those that were not read are null.

    Raises `ValueError` for a header that nobody has written.
    """
    fields = [pa.field(name, type_of(text)) for name, text in header["columns"].items()]
    unread = header.get("unread", ())
    fields += [pa.field(name, pa.null()) for name in (() if unread is True else unread)]
    calendars = {name: tuple(each) for name, each in header.get("calendars", {}).items()}
    int96 = {name: tuple(each) for name, each in header.get("int96", {}).items()}
    return pa.schema(fields), calendars, int96


def batch_in(header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return the rows of letters. Raises `ValueError` for a value that is not of its type."""
    arrays, room = [], Room()
    for name, text in header["columns"].items():
        try:
            array = arrow_array(type_of(text), [row.get(name) for row in rows], room)
            flags = header.get("int96", {}).get(name)
            arrays.append(from_texts(array, flags) if flags else array)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, list(header["columns"]))

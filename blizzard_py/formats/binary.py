"""The format binary: each file is a row, with its name, time, length and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blizzard_core.limits import WHOLE_FILE_BYTES
from blizzard_core.settings.formats import BinaryFileOptions
from blizzard_py.formats.columnar.batches import BatchFormat, FileColumns
from blizzard_py.formats.protocol import NO_OFFSET, OpenFile
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece

_MICROS = 1_000_000
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class BinaryFormat(BatchFormat):
    """Whole files as a `Format`. They are not decompressed."""

    options: BinaryFileOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece]:
        """Yield the row. Without a declared column all are read; content is read if it is declared.

        Raises `FileFailed` for a file whose content is too long for a row.
        """
        wanted = {spec.name for spec in schema.fields} or set(BinaryFileOptions.fixed_columns)
        columns = {}
        if "modification_time" in wanted:
            # Asked before the content is read, so that a change in between is noticed.
            columns["modification_time"] = pa.array([round(file.modified * _MICROS)]).cast(_TIME)
        # A letter begins with the content: a cut one must be like the row that is read again.
        if "content" in wanted:
            columns = {"content": _content(file), **columns}
        columns |= {"path": pa.array([file.uri]), "length": pa.array([file.size])}
        rows = pa.RecordBatch.from_pydict(columns)
        yield Piece(b"", NO_OFFSET, lines=1, context=FileColumns(rows.schema), rows=rows)


def _content(file: OpenFile) -> pa.Array:
    if file.size > WHOLE_FILE_BYTES:
        raise FileFailed(
            "parse",
            f"has {file.size:,} bytes, more than the {WHOLE_FILE_BYTES:,} of a row; leave the"
            " column content out of schema.fields, or leave such files out by exclude",
        )
    data = file.read_range(0, file.size)
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])

"""A Parquet file in a store: its footer, and what another process decodes (`process`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import SourceError
from blizzard_core.limits import TABLE_FOOTER_BYTES
from blizzard_core.storage.range_file import RangeFile
from blizzard_core.table.row_groups import footer_of
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_py.formats.columnar.messages import DecodeCommand
from blizzard_py.formats.columnar.rows import (
    ReaderEnded,
    StoredFile,
    allowed,
    answers,
    check_footer,
    decoded,
)
from blizzard_py.formats.columnar.statistics import from_batch
from blizzard_py.formats.nested_arrays import plain_type
from blizzard_py.slices.column_order import ColumnRange


class _FooterFile(RangeFile):
    """A `RangeFile` that refuses a footer beyond its limits, and keeps the file's ``tail``.

    Arrow reads the last 64 KiB of a file, and a longer footer as a whole.
    """

    def __init__(self, stored: StoredFile) -> None:
        super().__init__(stored.read_range, stored.size)
        self._stored = stored
        self.tail = b""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= TABLE_FOOTER_BYTES:
            raise SourceError(
                f"{self._stored.where}: has a Parquet footer of more than"
                f" {TABLE_FOOTER_BYTES >> 20} MiB;"
                " rewrite the file with larger row groups, or as several files"
            )
        start = self.tell()
        data = super().read(size)
        known = self._size - len(self.tail)
        if start < known <= start + len(data):
            self.tail = data[: known - start] + self.tail
            with suppress(SchemaMismatch):  # Arrow asks for the rest, or says what is wrong
                check_footer(self._stored, footer_of(self.tail))
        return data


class ParquetFooter(pq.ParquetFile):  # type: ignore[misc]  # pyarrow ships no types
    """A Parquet file's footer, and where its rows are."""

    def __init__(self, stored: StoredFile) -> None:
        file = _FooterFile(stored)
        super().__init__(pa.PythonFile(file, mode="r"), pre_buffer=False)
        self.stored = stored
        # Another process reads it again: pyarrow dies of writing some that it has read.
        self.footer = footer_of(file.tail)
        self.ranges: dict[str, list[ColumnRange]] = {}  # cached results

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        """The columns in the types that their batches have."""
        fields = [field.with_type(plain_type(field.type)) for field in super().schema_arrow]
        return pa.schema(fields, super().schema_arrow.metadata)


@contextmanager
def opened(stored: StoredFile) -> Iterator[ParquetFooter]:
    """Yield the file, its footer read. Raises `SourceError` if it is no complete Parquet file."""
    with stored.translate_damage(), ParquetFooter(stored) as file:
        yield file


def batches(
    file: ParquetFooter, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of these row groups, in batches of at most 64 Ki rows and about 16 MB.

    ``columns`` are top-level names; those that the file lacks are left out. Raises `SourceError` if
    a row needs more than the limit.
    """
    present = set(file.schema_arrow.names)
    wanted = tuple(name for name in columns if name in present)
    size = file.stored.size
    order = DecodeCommand(file.footer, size, tuple(groups), wanted, allowed(size))
    yield from decoded(file.stored, order)


def ranges(file: ParquetFooter, name: str) -> list[ColumnRange]:
    """Return the column's range in each row group, from the footer.

    Raises `SourceError` if the footer contradicts itself.
    """
    size = file.stored.size
    order = DecodeCommand(file.footer, size, (), (name,), allowed(size), "ranges")
    try:
        return [one for batch in answers(file.stored, order) for one in from_batch(batch)]
    except ReaderEnded as error:
        why = f"its footer contradicts itself about column {name}"
        raise file.stored.damaged(why) from error

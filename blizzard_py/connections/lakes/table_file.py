"""A Parquet file of a table in a store: its footer, and nothing else of it.

Rows are decoded in another process (`parquet_files.process`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.bounds import TABLE_FOOTER_BYTES
from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.connections.lakes.window import Range


class _FooterFile(RangeFile):
    """A `RangeFile` up to the footer, and no footer beyond its limit."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(storage, path, size)
        self.where = f"{storage.uri}/{path}"

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= TABLE_FOOTER_BYTES:
            raise SourceError(
                f"{self.where}: has a Parquet footer of more than {TABLE_FOOTER_BYTES >> 20} MiB;"
                " write the file anew with larger row groups, or in several files"
            )
        return super().read(size)


class TableFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow ships no types
    """A Parquet file's footer, and where the file lies."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        source = _FooterFile(storage, path, size)
        super().__init__(pa.PythonFile(source, mode="r"), pre_buffer=False)
        self.storage, self.path, self.size, self.where = storage, path, size, source.where
        self.ranges: dict[str, list[Range]] = {}  # what was asked for already


@contextmanager
def opened(storage: Storage, path: str, size: int) -> Iterator[TableFile]:
    """The file, its footer read. Raises `SourceError` if it is no whole Parquet file."""
    where = f"{storage.uri}/{path}"
    with translate_damage(where), TableFile(storage, path, size) as file:
        yield file


@contextmanager
def translate_damage(where: str) -> Iterator[None]:
    """Turn what Arrow cannot read into a `SourceError` that names the file, not its rows."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise damaged(where, f"{type(error).__name__}: {error}") from error


def damaged(where: str, why: str) -> SourceError:
    """The refusal of a file that Arrow cannot read."""
    return SourceError(
        f"{where}: cannot be read as Parquet ({' '.join(why.split())[:220]}); restore the file, or"
        " remove it from the table"
    )

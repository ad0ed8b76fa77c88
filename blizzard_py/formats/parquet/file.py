"""A Parquet file of a table in a store: only its footer.

Rows are decoded in another process (`parquet.process`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import SourceError
from blizzard_core.limits import TABLE_FOOTER_BYTES
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.slices.column_order import Range


class _FooterFile(RangeFile):
    """A `RangeFile` that refuses a footer beyond its limit."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(storage, path, size)
        self.where = f"{storage.uri}/{path}"

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= TABLE_FOOTER_BYTES:
            raise SourceError(
                f"{self.where}: has a Parquet footer of more than {TABLE_FOOTER_BYTES >> 20} MiB;"
                " rewrite the file with larger row groups, or as several files"
            )
        return super().read(size)


class TableFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow ships no types
    """A Parquet file's footer, and the file's location."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        source = _FooterFile(storage, path, size)
        super().__init__(pa.PythonFile(source, mode="r"), pre_buffer=False)
        self.storage, self.path, self.size, self.where = storage, path, size, source.where
        self.ranges: dict[str, list[Range]] = {}  # cached results


@contextmanager
def opened(storage: Storage, path: str, size: int) -> Iterator[TableFile]:
    """Yield the file, its footer read. Raises `SourceError` if it is no complete Parquet file."""
    where = f"{storage.uri}/{path}"
    with translate_damage(where), TableFile(storage, path, size) as file:
        yield file


@contextmanager
def translate_damage(where: str) -> Iterator[None]:
    """Turn Arrow's errors into a `SourceError` that names the file, not its rows."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise damaged(where, f"{type(error).__name__}: {error}") from error


def damaged(where: str, why: str) -> SourceError:
    """Return the error for a file that Arrow cannot read."""
    return SourceError(
        f"{where}: cannot be read as Parquet ({' '.join(why.split())[:220]}); restore the file, or"
        " remove it from the table"
    )

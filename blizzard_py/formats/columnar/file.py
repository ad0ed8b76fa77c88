"""A Parquet file in a store: only its footer. Rows are decoded in another process (`process`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import SourceError
from blizzard_core.limits import TABLE_FOOTER_BYTES
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import Ranged, RangeFile
from blizzard_core.table.row_groups import footer_of
from blizzard_py.slices.column_order import Range


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of which the decoding process requests ranges; ``where`` is its name in errors."""

    source: Ranged
    path: str
    size: int
    where: str
    kind: str = "Parquet"

    @classmethod
    def of(cls, storage: Storage, path: str, size: int) -> StoredFile:
        """Return a Parquet file of a store."""
        return cls(storage, path, size, f"{storage.uri}/{path}")

    def damaged(self, why: str) -> SourceError:
        """Return the error for a file that Arrow cannot read."""
        return SourceError(
            f"{self.where}: cannot be read as {self.kind} ({' '.join(why.split())[:220]});"
            " restore the file, or remove it"
        )

    @contextmanager
    def translate_damage(self) -> Iterator[None]:
        """Turn Arrow's errors into a `SourceError` that names the file, not its rows."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise self.damaged(f"{type(error).__name__}: {error}") from error


class _FooterFile(RangeFile):
    """A `RangeFile` that refuses a footer beyond its limit, and keeps the file's ``tail``."""

    def __init__(self, stored: StoredFile) -> None:
        super().__init__(stored.source, stored.path, stored.size)
        self._where = stored.where
        self.tail = b""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= TABLE_FOOTER_BYTES:
            raise SourceError(
                f"{self._where}: has a Parquet footer of more than {TABLE_FOOTER_BYTES >> 20} MiB;"
                " rewrite the file with larger row groups, or as several files"
            )
        start = self.tell()
        data = super().read(size)
        known = self._size - len(self.tail)
        if start < known <= start + len(data):
            self.tail = data[: known - start] + self.tail
        return data


class ParquetFooter(pq.ParquetFile):  # type: ignore[misc]  # pyarrow ships no types
    """A Parquet file's footer, and where its rows are."""

    def __init__(self, stored: StoredFile) -> None:
        file = _FooterFile(stored)
        super().__init__(pa.PythonFile(file, mode="r"), pre_buffer=False)
        self.stored = stored
        # Another process reads it again: pyarrow dies of writing some that it has read.
        self.footer = footer_of(file.tail)
        self.ranges: dict[str, list[Range]] = {}  # cached results


@contextmanager
def opened(stored: StoredFile) -> Iterator[ParquetFooter]:
    """Yield the file, its footer read. Raises `SourceError` if it is no complete Parquet file."""
    with stored.translate_damage(), ParquetFooter(stored) as file:
        yield file

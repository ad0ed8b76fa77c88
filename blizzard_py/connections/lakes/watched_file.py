"""A Parquet file of a table in a store, of which nothing reaches Arrow unseen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.bounds import TABLE_FOOTER_BYTES
from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.connections.lakes.page_watch import PageWatch

# Each column is read in pieces of this size: one request each, and no more is held.
PIECE_BYTES = 1 << 20


class _Shut(Exception):
    """Nothing is read at the moment."""


class WatchedFile(RangeFile):
    """A `RangeFile` that shows what it gives to a watch, and no footer beyond its bound.

    What was looked at ahead is kept until it is asked for, so nothing is requested twice.
    """

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(storage, path, size)
        self.where = f"{storage.uri}/{path}"
        self.watch: PageWatch | None = None
        self.at_footer = True
        self.is_shut = False
        self._ahead: dict[int, bytes] = {}

    def look(self, begin: int, end: int) -> bytes:
        """A piece that will be asked for."""
        self.seek(begin)
        self._ahead[begin] = super().read(end - begin)
        return self._ahead[begin]

    def unwatched(self) -> None:
        """Forget what was looked at, and show nothing to anybody."""
        self.watch = None
        self._ahead.clear()

    def read(self, size: int | None = -1) -> bytes:
        at = self.tell()
        if self.is_shut:
            raise _Shut
        if self.at_footer and (size is None or not 0 <= size <= TABLE_FOOTER_BYTES):
            raise SourceError(
                f"{self.where}: has a Parquet footer of more than {TABLE_FOOTER_BYTES >> 20} MiB;"
                " write the file anew with larger row groups, or in several files"
            )
        data = self._ahead.pop(at, b"")
        if data and size == len(data):
            self.seek(at + size)
        else:
            self.seek(at)
            data = super().read(size)
        if self.watch is not None:
            self.watch.passed(at, data)
        return data


class TableFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow ships no types
    """A Parquet file, and what it is read from."""

    def __init__(self, watched: WatchedFile, metadata: object = None, piece: int = 0) -> None:
        super().__init__(
            pa.PythonFile(watched, mode="r"),
            metadata=metadata,
            pre_buffer=False,
            buffer_size=piece or PIECE_BYTES,
        )
        self.watched = watched

    def check(self, group: int, columns: Sequence[str]) -> None:
        """Raise what Arrow raises if the footer makes no sense of these columns.

        To be asked before pyarrow shows what the footer says of them: that ends the process
        where it makes no sense. A reader of the same columns raises, before it reads a byte.
        """
        self.watched.is_shut = True
        try:
            with suppress(_Shut):
                next(self.iter_batches(1, [group], columns, use_threads=False), None)
        finally:
            self.watched.is_shut = False


@contextmanager
def opened(storage: Storage, path: str, size: int) -> Iterator[TableFile]:
    """The file, its footer read. Raises `SourceError` if it is no whole Parquet file."""
    watched = WatchedFile(storage, path, size)
    with damage_told(watched.where):
        file = TableFile(watched)
        watched.at_footer = False
    with file, damage_told(watched.where):
        yield file


@contextmanager
def damage_told(where: str) -> Iterator[None]:
    """What Arrow cannot read is a `SourceError` that names the file, not its rows."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise damaged(where, f"{type(error).__name__}: {error}") from error


def damaged(where: str, why: str) -> SourceError:
    """The refusal of a file that Arrow cannot read."""
    return SourceError(
        f"{where}: cannot be read as Parquet ({' '.join(why.split())[:220]}); restore the file, or"
        " remove it from the table"
    )

"""A source file that is being read, as an `OpenFile`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import Self

from blizzard_core.storage.protocol import Storage
from blizzard_core.text import utf8_name
from blizzard_py.formats.protocol import Format
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.source import ObjectRanges


class SourceFile:
    """One file of a store; a context manager that closes what was opened.

    ``counted`` gets the number of bytes of each read, decompressed. A `FileFailed` that leaves the
    context is replaced by one with outcome ``retry`` if the object changed under `read_range`.
    """

    def __init__(
        self,
        storage: Storage,
        file: JobFile,
        expansion: Expansion | None = None,
        counted: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._storage = storage
        self._file = file
        self._expansion = expansion
        self._counted = counted
        self._opened = ExitStack()

    @property
    def path(self) -> str:
        """The name, relative to the store's root."""
        return self._file.path

    @property
    def uri(self) -> str:
        """The whole name, as in ``_source_file``."""
        return utf8_name(f"{self._storage.uri}/{self._file.path}")

    @property
    def modified(self) -> float:
        """The time at which the object was written, in seconds since 1970. Raises `FileFailed`."""
        return self._ranges.modified

    @property
    def size(self) -> int:
        """The stored bytes, as `read_range` finds them. Raises `FileFailed`."""
        return self._ranges.size

    def pieces(self, form: Format, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the file in order, as `Format.pieces`.

        Raises `FileFailed` also at the end, if the object changed under `read_range`.
        """
        yield from form.pieces(self, schema)
        self._check_unchanged()

    def blocks(self) -> Iterator[bytes]:
        """Return the decompressed stream. Raises `FileFailed`, also while it is read."""
        found = self._opened.enter_context(opened(self._storage, self._file, self._expansion))
        for block in found:
            self._counted(len(block))
            yield block

    def read_range(self, start: int, end: int) -> bytes:
        """Return the stored bytes ``start`` to ``end``. Raises `FileFailed`."""
        data = self._ranges.read(start, end)
        self._counted(len(data))
        return data

    def count_unpacked(self, size: int) -> None:
        """Count bytes that the format itself has decompressed. Raises `FileFailed` for too many."""
        if self._expansion is not None:
            self._expansion.add(size)

    @cached_property
    def _ranges(self) -> ObjectRanges:
        return ObjectRanges(self._storage, self._file)

    def _check_unchanged(self) -> None:
        if "_ranges" in self.__dict__:
            self._ranges.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._opened.close()
        if isinstance(error, FileFailed) and error.outcome != "retry":
            self._check_unchanged()

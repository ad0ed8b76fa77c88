"""A source file that is being read, as an `OpenFile`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Self

from blizzard_core.storage.protocol import Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion


class SourceFile:
    """One file of a store; a context manager that closes what was opened.

    ``counted`` gets the number of bytes of each read, decompressed.
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
    def size(self) -> int:
        """The stored bytes, as listed."""
        return self._file.size

    def blocks(self) -> Iterator[bytes]:
        """Return the decompressed stream. Raises `FileFailed`, also while it is read."""
        found = self._opened.enter_context(opened(self._storage, self._file, self._expansion))
        for block in found:
            self._counted(len(block))
            yield block

    def count_unpacked(self, size: int) -> None:
        """Count bytes that the format itself has decompressed. Raises `FileFailed` for too many."""
        if self._expansion is not None:
            self._expansion.add(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

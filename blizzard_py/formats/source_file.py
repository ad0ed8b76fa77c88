"""A source file that is being read, as an `OpenFile`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Self

from blizzard_core.storage.protocol import Storage
from blizzard_core.text import utf8_name
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.archives import MemberStream, member_streams
from blizzard_py.lines.codec_names import ZIP_ENDING, ZIP_MAGICS, Codec
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import ArchiveFound, FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.source import ObjectRanges

if TYPE_CHECKING:  # it brings Arrow along
    from blizzard_py.formats.protocol import Format


class SourceFile:
    """One file of a store; a context manager that closes what was opened.

    ``counted`` gets the number of bytes of each read, decompressed. ``codecs`` are those of the
    stream that was read, and ``members`` the names of an archive's. A `FileFailed` that leaves the
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
        self._member: MemberStream | None = None
        self.codecs: list[Codec] = []
        self.members: list[str] = []

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
        """Yield the file in order, as `Format.pieces`, until the context ends.

        Raises `FileFailed` also at the end, if the object changed under `read_range`.
        """
        # A process decodes some formats: it must not wait for the garbage collector, which does
        # not see the references that Arrow has.
        return self._opened.enter_context(closing(self._pieces(form, schema)))

    def _pieces(self, form: Format, schema: RowSchema) -> Generator[Piece | RefusedRecord]:
        try:
            yield from form.pieces(self, schema)
        except ArchiveFound:
            yield from self._pieces_of_members(form, schema)
        self.check_unchanged()

    def _pieces_of_members(
        self, form: Format, schema: RowSchema
    ) -> Iterator[Piece | RefusedRecord]:
        """Yield each member as a file with its own beginning; numbers go on."""
        for member in self._members():
            self._member = member
            try:
                for item in form.pieces(self, schema):
                    yield replace(item, member=member.name)
                for _ in self.blocks():
                    pass  # its checksum is known at its end
            except FileFailed as error:
                raise error.within(member.name) from error

    def streams(self) -> Iterator[Iterator[bytes]]:
        """Yield the decompressed stream, or that of each member of an archive."""
        blocks = self.blocks()
        try:
            first = next(blocks, b"")
        except ArchiveFound:
            yield from (member.blocks for member in self._members())
        else:
            yield chain([first], blocks)

    def blocks(self) -> Iterator[bytes]:
        """Return the decompressed stream, while an archive is read that of the member.

        Raises `FileFailed`, also while it is read, and `ArchiveFound`.
        """
        if self._member is not None:
            found = self._member.blocks
        elif self.path.lower().endswith(ZIP_ENDING) and self._ranges.read(0, 4) in ZIP_MAGICS:
            raise ArchiveFound  # without another request for its beginning
        else:
            stream = opened(self._storage, self._file, self._expansion, self.codecs.append)
            found = self._opened.enter_context(stream)
        for block in found:
            self._counted(len(block))
            yield block

    def _members(self) -> Iterator[MemberStream]:
        self.codecs.append("zip")
        ranges = self._ranges
        return member_streams(ranges.read, ranges.size, self._expansion, self.members.extend)

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

    def check_unchanged(self) -> None:
        """Raise `FileFailed` for a retry if the object changed under `read_range`."""
        if "_ranges" in self.__dict__:
            self._ranges.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._opened.close()
        if isinstance(error, FileFailed) and error.outcome != "retry":
            self.check_unchanged()

"""The members of a zip archive as streams of blocks, checked by their sizes and checksums.

An archive is read by ranges, since its directory is at its end. Members have no codec of their own
beside the archive's, so an archive in an archive is refused, however often it is packed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from blizzard_core.storage.protocol import is_hidden
from blizzard_py.lines.archives.directory import Member, ReadRange, data_range, read_directory
from blizzard_py.lines.codecs.damage import BLOCK_BYTES, damaged
from blizzard_py.lines.codecs.frames import read_frames
from blizzard_py.lines.codecs.members import read_members
from blizzard_py.lines.codecs.names import ZIP_MAGICS, codec_of, first_blocks
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed

# What one request reads at least, for small members behind each other.
_AHEAD_BYTES = 4 << 20
_STORED, _DEFLATE, _BZIP2, _ZSTD, _XZ = 0, 8, 12, 93, 95
_METHODS = frozenset({_STORED, _DEFLATE, _BZIP2, _ZSTD, _XZ})


@dataclass(frozen=True, slots=True)
class MemberStream:
    """A member's name and its blocks, which are read once and in order.

    They raise `FileFailed` where the member is damaged.
    """

    name: str
    blocks: Iterator[bytes]


def _ignore(_names: list[str]) -> None:
    """Take names that nobody asks for."""


def member_streams(
    read: ReadRange,
    size: int,
    expansion: Expansion | None = None,
    note_names: Callable[[list[str]], object] = _ignore,
) -> Iterator[MemberStream]:
    """Yield the members of an archive of ``size`` bytes, without folders and hidden names.

    ``note_names`` gets the names of all of them first. Raises `FileFailed` for an archive that is
    damaged, or of which a member cannot be read.
    """
    ahead = ReadAhead(read)
    entries = read_directory(ahead.read, size)
    files = [each for each in entries if not each.is_folder]
    members = [each for each in files if not is_hidden(each.name)]
    if files and not members:
        raise FileFailed(
            "decompress",
            f"all members of the zip archive are hidden, {files[0].name!r} for one; rename those"
            " that are data",
        )
    note_names([member.name for member in members])
    for member in members:
        _check_kind(member)
    for entry in entries:
        if entry.may_hide_another and (entry.is_folder or is_hidden(entry.name)):
            data_range(entry, ahead.read)
    for member in members:
        try:
            blocks = _checked(member, ahead.read)
        except FileFailed as error:
            raise error.within(member.name) from error
        yield MemberStream(member.name, _counted(blocks, size, expansion))


def member_blocks(member: Member, read: ReadRange) -> Iterator[bytes]:
    """Return a member's blocks, which are checked at its end.

    Raises `FileFailed` for one that cannot be read, now or while it is read.
    """
    _check_kind(member)
    return _checked(member, read)


class ReadAhead:
    """Ranges of an archive; what was read last is kept, with what stands behind it."""

    def __init__(self, read: ReadRange) -> None:
        self._read = read
        self._start = 0
        self._data = b""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes; fewer at the archive's end."""
        at = start - self._start
        if at < 0 or at + (end - start) > len(self._data):
            self._data = self._read(start, max(end, start + _AHEAD_BYTES))
            self._start, at = start, 0
        return self._data[at : at + end - start]


def _check_kind(member: Member) -> None:
    reason = ""
    if member.is_encrypted:
        reason = "is encrypted; store it without a password"
    elif member.method not in _METHODS:
        reason = f"has compression method {member.method}; store it as deflate"
    elif member.is_link:
        reason = "is a link; store the file that it names"
    if reason:
        raise FileFailed("decompress", f"member {member.name!r} of the zip archive {reason}")


def _checked(member: Member, read: ReadRange) -> Iterator[bytes]:
    start, stop = data_range(member, read)
    return _verified(member, _unpacked(member.method, _ranges(read, start, stop)))


def _ranges(read: ReadRange, start: int, stop: int) -> Iterator[bytes]:
    for at in range(start, stop, BLOCK_BYTES):
        yield read(at, min(stop, at + BLOCK_BYTES))


def _unpacked(method: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if method == _STORED:
        return blocks
    if method == _ZSTD:
        return read_frames("zstd", blocks)
    return read_members("bzip2" if method == _BZIP2 else "xz" if method == _XZ else "zip", blocks)


def _verified(member: Member, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks; raise `FileFailed` if they are not what the directory says."""
    head = list(first_blocks(blocks))
    begin = b"".join(head)
    if begin.startswith(ZIP_MAGICS) or codec_of(begin) is not None:
        raise FileFailed("decompress", "is packed once more; store it unpacked in the archive")
    size = checksum = 0
    for block in chain(head, blocks):
        size += len(block)
        if size > member.size:
            break
        checksum = zlib.crc32(block, checksum)
        yield block
    if size != member.size or checksum != member.checksum:
        raise damaged("zip", "its size or checksum is not that of the directory")


def _counted(blocks: Iterator[bytes], stored: int, expansion: Expansion | None) -> Iterator[bytes]:
    for block in blocks:
        if expansion is not None:
            expansion.add(len(block), stored)
        yield block

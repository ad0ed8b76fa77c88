"""Zip archives: the directory at their end, read strictly, and their members as streams of blocks.

Readers of zip differ in what they make of archives that contradict themselves. Here each field that
is written twice must be equal, and nothing is searched for or repaired: another reading would have
other rows. Bytes that no entry names are allowed, such as a program in front. A member there is
not: its rows would be missing.

An archive is read by ranges. Members are checked by their sizes and checksums. They have no codec
of their own beside the archive's, so an archive in an archive is refused, however often it is
packed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from blizzard_core.limits import ZIP_DIRECTORY_BYTES, ZIP_MEMBERS, ZIP_NAME_BYTES
from blizzard_core.storage.protocol import is_hidden
from blizzard_py.lines.codec_names import ZIP_MAGICS, codec_of, first_blocks
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed, damaged
from blizzard_py.lines.frame_codecs import read_frames
from blizzard_py.lines.member_codecs import read_members

# Returns the bytes from the first to the second position, or to the archive's end.
ReadRange = Callable[[int, int], bytes]

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_WIDE_END = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_END_MARK, _LOCATOR_MARK, _WIDE_END_MARK = b"PK\5\6", b"PK\6\7", b"PK\6\6"
_ENTRY_MARK, _LOCAL_MARK = b"PK\1\2", b"PK\3\4"
# A member's sizes may follow it, with a mark and in 64 bits.
_SIZES_BYTES = 24
_MOST_TAIL = _WIDE_END.size + _LOCATOR.size + _END.size + 0xFFFF
# Values that stand in a field of 64 bits elsewhere.
_WIDE, _WIDE_COUNT = 0xFFFFFFFF, 0xFFFF
_WIDE_FIELD = 1
# Bits of an entry's flags.
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_SIZES_FOLLOW = 1 << 3
_UTF8 = 1 << 11
# The type of a Unix file, in an entry's attributes.
_LINK = 0xA
_UNLISTED = "it holds a member that its directory lacks"


@dataclass(frozen=True, slots=True)
class Member:
    """An entry: a stream of ``stored`` bytes that becomes ``size`` bytes.

    ``offset`` is where its own header begins, and ``end`` where the next entry's begins.
    """

    name: str
    raw_name: bytes
    flags: int
    method: int
    checksum: int
    stored: int
    size: int
    offset: int
    is_link: bool
    end: int = 0

    @property
    def is_folder(self) -> bool:
        """True for a directory."""
        return self.name.endswith("/") and not self.size

    @property
    def may_hide_another(self) -> bool:
        """True if another member fits behind it."""
        least = _LOCAL.size + len(self.raw_name) + self.stored
        return self.end - self.offset > least + _LOCAL.size

    @property
    def is_encrypted(self) -> bool:
        """True if its bytes or its header are."""
        return bool(self.flags & _ENCRYPTED)


def read_directory(read: ReadRange, size: int) -> list[Member]:
    """Return the entries of an archive of ``size`` bytes, in the order in which they lie in it.

    Raises `FileFailed` at stage ``decompress`` for an archive that is cut, changed, in several
    parts, or above a limit.
    """
    tail_at = max(0, size - _MOST_TAIL)
    tail = read(tail_at, size)
    count, directory_bytes, offset = _end_record(tail, tail_at)
    if count > ZIP_MEMBERS or directory_bytes > ZIP_DIRECTORY_BYTES:
        raise FileFailed(
            "decompress",
            f"a zip archive of {count:,} members and {directory_bytes:,} bytes of their names; at"
            f" most {ZIP_MEMBERS:,} and {ZIP_DIRECTORY_BYTES:,} are read; store several archives",
        )
    data = read(offset, offset + directory_bytes)
    members = list(_entries(data, count))
    names = {member.raw_name for member in members}
    if len(names) < len(members):
        raise damaged("zip", "two members have one name")
    starts = sorted({member.offset for member in members})
    if len(starts) < len(members) or (starts and starts[-1] >= offset):
        raise damaged("zip", "its members overlap")
    if starts[:1] != [0] and offset and read(0, len(_LOCAL_MARK)) == _LOCAL_MARK:
        raise damaged("zip", _UNLISTED)
    ends = dict(pairwise([*starts, offset]))
    members.sort(key=lambda member: member.offset)
    return [replace(member, end=ends[member.offset]) for member in members]


def data_range(member: Member, read: ReadRange) -> tuple[int, int]:
    """Return where a member's stream begins and ends.

    Raises `FileFailed` if its own header differs from the directory's entry, or if a member
    follows that has no entry.
    """
    data = read(member.offset, member.offset + _LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(_LOCAL_MARK):
        raise damaged("zip", "the directory names a place without a member")
    _, _, flags, method, _, _, checksum, stored, size, name_bytes, extra_bytes = _LOCAL.unpack(data)
    names_at = member.offset + _LOCAL.size
    start = names_at + name_bytes + extra_bytes
    names = read(names_at, start)
    if _WIDE in {stored, size}:
        size, stored = _wide_values(names[name_bytes:], [size, stored])
    # A writer of a stream may know them at the end only.
    unknown = (0, _WIDE) if flags & _SIZES_FOLLOW else ()
    known = (member.checksum, member.stored, member.size)
    told = zip((checksum, stored, size), known, strict=True)
    is_equal = all(here in {there, *unknown} for here, there in told)
    same_kind = method == member.method and not (flags ^ member.flags) & _ENCRYPTED
    if names[:name_bytes] != member.raw_name or not same_kind or not is_equal:
        raise damaged("zip", "the member's own header differs from the directory")
    stop = start + member.stored
    if stop > member.end:
        raise damaged("zip", "its members overlap")
    if member.end - stop > _LOCAL.size:
        behind = read(stop, min(member.end, stop + _SIZES_BYTES + len(_LOCAL_MARK)))
        if _LOCAL_MARK in behind:
            raise damaged("zip", _UNLISTED)
    return start, stop


def _end_record(tail: bytes, tail_at: int) -> tuple[int, int, int]:
    """Return the number of entries, and size and place of the directory."""
    at = tail.rfind(_END_MARK)
    while at >= 0 and not _reaches_end(tail, at):
        at = tail.rfind(_END_MARK, 0, at)
    if at < 0:
        raise damaged("zip", "it does not end with its directory")
    told = _END.unpack_from(tail, at)[1:-1]
    locator_at = at - _LOCATOR.size
    if locator_at >= 0 and tail.startswith(_LOCATOR_MARK, locator_at):
        at, told = _wide_end_record(tail, tail_at, locator_at, told)
    disk, first_disk, here, count, size, offset = told
    if disk or first_disk or here != count:
        raise FileFailed("decompress", "a part of a zip archive in several files; store it as one")
    if offset + size != tail_at + at:
        raise damaged("zip", "other bytes stand before it or behind its directory")
    return count, size, offset


def _reaches_end(tail: bytes, at: int) -> bool:
    end = at + _END.size
    return end <= len(tail) and end + _END.unpack_from(tail, at)[-1] == len(tail)


def _wide_end_record(
    tail: bytes, tail_at: int, locator_at: int, told: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Return where the record of 64 bits is, and its fields; ``told`` are those of the other."""
    _, disk, place, disks = _LOCATOR.unpack_from(tail, locator_at)
    at = place - tail_at
    is_there = at >= 0 and at + _WIDE_END.size == locator_at
    if disk or disks > 1 or not is_there or not tail.startswith(_WIDE_END_MARK, at):
        raise damaged("zip", "a record of its directory is missing")
    wide = _WIDE_END.unpack_from(tail, at)[4:]
    marks = (_WIDE_COUNT,) * 4 + (_WIDE,) * 2
    if any(few not in {mark, many} for few, many, mark in zip(told, wide, marks, strict=True)):
        raise damaged("zip", "the records of its directory differ")
    return at, wide


def _entries(data: bytes, count: int) -> Iterator[Member]:
    at = 0
    for _ in range(count):
        if not data.startswith(_ENTRY_MARK, at) or len(data) < at + _ENTRY.size:
            raise damaged("zip", "an entry of its directory is missing")
        fields = _ENTRY.unpack_from(data, at)
        _, _, _, flags, method, _, _, checksum, stored, size = fields[:10]
        name_bytes, extra_bytes, remark_bytes, disk, _, attributes, offset = fields[10:]
        at += _ENTRY.size
        name, extra = data[at : at + name_bytes], data[at + name_bytes :][:extra_bytes]
        at += name_bytes + extra_bytes + remark_bytes
        if name_bytes > ZIP_NAME_BYTES:
            raise FileFailed(
                "decompress",
                f"a member's name is longer than {ZIP_NAME_BYTES:,} bytes; rename it",
            )
        if disk:
            raise damaged("zip", "a member is in another file")
        size, stored, offset = _wide_values(extra, [size, stored, offset])
        is_link = attributes >> 28 == _LINK
        yield Member(
            _text(name, flags), name, flags, method, checksum, stored, size, offset, is_link
        )
    if at != len(data):
        raise damaged("zip", "its directory is longer than its entries")


def _wide_values(extra: bytes, values: list[int]) -> list[int]:
    """Return the values, those that are marked so from the field of 64 bits."""
    marked = [number for number, value in enumerate(values) if value == _WIDE]
    at = 0
    while marked and at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _WIDE_FIELD and length >= 8 * len(marked) and at + 4 + length <= len(extra):
            wide = struct.unpack_from(f"<{len(marked)}Q", extra, at + 4)
            for number, value in zip(marked, wide, strict=True):
                values[number] = value
            return values
        at += 4 + length
    return values


def _text(name: bytes, flags: int) -> str:
    """Return a name; many writers of UTF-8 do not say so."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8" if flags & _UTF8 else "cp437", "replace")


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

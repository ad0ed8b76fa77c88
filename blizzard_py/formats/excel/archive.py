"""The zip archive of a workbook: its parts by name, each a stream of limited blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from blizzard_py.formats.protocol import OpenFile
from blizzard_py.lines.archives import Member, ReadAhead, member_blocks, read_directory
from blizzard_py.lines.codec_names import ZIP_MAGICS
from blizzard_py.lines.failure import FileFailed

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_SECTOR = struct.Struct("<30xH16xI")
_OLE_HEAD_BYTES = 512
_OLE_DIRECTORY_BYTES = 4 << 10
_SAVE = "save it as an Excel workbook (.xlsx)"


class Archive:
    """The parts of one file. Raises `FileFailed` for a file that is no such archive.

    Names of parts have no slash in front, and capitals do not count.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        _check_kind(file)
        self._read = ReadAhead(file.read_range).read
        self._parts: dict[str, Member] = {}
        for member in read_directory(self._read, file.size):
            name = part_name(member.name)
            if name in self._parts:
                raise FileFailed("decompress", f"has the part {name!r} twice")
            self._parts[name] = member

    def __contains__(self, name: str) -> bool:
        return part_name(name) in self._parts

    def blocks(self, name: str, most: int | None = None) -> Iterator[bytes]:
        """Yield a part in blocks of at most 1 MiB, to its end, where its checksum is checked.

        Raises `FileFailed` if it is missing or damaged, has more than ``most`` bytes, or if the
        file becomes too much for its size.
        """
        member = self._parts.get(part_name(name))
        if member is None:
            raise FileFailed("parse", f"has no part {name!r}; {_SAVE}")
        size = 0
        for block in self._unpacked(name, member):
            size += len(block)
            if most is not None and size > most:
                raise FileFailed("parse", f"the part {name!r} has more than {most:,} bytes")
            yield block

    def count_unpacked(self, size: int) -> None:
        """Count bytes that its reader copies from what was unpacked, as `blocks` counts its own.

        Raises `FileFailed` if the file becomes too much for its size.
        """
        self._file.count_unpacked(size)

    def _unpacked(self, name: str, member: Member) -> Iterator[bytes]:
        try:
            for block in member_blocks(member, self._read):
                self._file.count_unpacked(len(block))
                yield block
        except FileFailed as error:
            raise error.within(name) from error


def part_name(name: str) -> str:
    """Return the name of a part as it is looked up."""
    return name.replace("\\", "/").lstrip("/").lower()


def _check_kind(file: OpenFile) -> None:
    """Raise `FileFailed` with a remedy for files of another kind."""
    head = file.read_range(0, _OLE_HEAD_BYTES)
    if head.startswith(_OLE):
        raise FileFailed("parse", _ole_reason(file, head))
    if not head:
        raise FileFailed("parse", "is empty, and no Excel workbook")
    if not head.startswith(ZIP_MAGICS):
        kind = (
            "a web page or XML" if head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<") else "text"
        )
        raise FileFailed(
            "parse", f"is no Excel workbook, but perhaps {kind} under its name; {_SAVE}"
        )


def _ole_reason(file: OpenFile, head: bytes) -> str:
    """Return what an older container is: an encrypted workbook, or one of the format .xls."""
    names = b""
    if len(head) == _OLE_HEAD_BYTES:
        shift, sector = _OLE_SECTOR.unpack_from(head)
        start = (sector + 1) << min(shift, 16)
        names = file.read_range(start, start + _OLE_DIRECTORY_BYTES)
    if "EncryptedPackage".encode("utf-16-le") in names:
        return "is an encrypted workbook; remove the password and save it again"
    return f"is a workbook of the format .xls; {_SAVE}"

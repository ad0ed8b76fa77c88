"""The ends of records in a block's bytes, without decoding them.

It is slow and needed rarely: where a block may become more values than a piece may have, and to
find a record that kills a process.
"""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_py.formats.avro.schema import AvroType
from blizzard_py.lines.failure import FileFailed

_VARINT_BYTES = 10
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def damaged_block(what: object) -> FileFailed:
    """Return the failure of a file with a block whose bytes are no records."""
    return FileFailed("parse", f"a block of the Avro file is damaged: {what}; store it again")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place after it. Raises `FileFailed` if it does not end."""
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value >> 1 ^ -(value & 1), place + 1
        shift += 7
    raise damaged_block("a number does not end")


def record_ends(records: AvroType, count: int, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each record ends, and how many values it has. Raises `FileFailed`."""
    walk = _Walk(data)
    for _ in range(count):
        before = walk.cells
        walk.skip(records)
        yield walk.at, walk.cells - before
    if walk.at != len(data):
        raise damaged_block(f"{len(data) - walk.at:,} bytes follow its last record")


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self.cells = 0

    def skip(self, node: AvroType) -> None:
        """Move behind a value."""
        self.cells += 1
        match node.kind:
            case "int" | "long" | "enum":
                self._long()
            case "string" | "bytes":
                self._pass(self._long())
            case "fixed":
                self._pass(node.size)
            case "record":
                for child in node.children:
                    self.skip(child)
            case "union":
                index = self._long()
                if not 0 <= index < len(node.children):
                    raise damaged_block(f"a union has no branch {index}")
                self.skip(node.children[index])
            case "array" | "map":
                self._items(node)
            case kind:
                self._pass(_SIZES[kind])

    def _items(self, node: AvroType) -> None:
        while number := self._long():
            if number < 0:
                self._long()
            for _ in range(abs(number)):
                if node.kind == "map":
                    self._pass(self._long())
                self.skip(node.children[0])

    def _long(self) -> int:
        value, self.at = read_long(self._data, self.at)
        return value

    def _pass(self, size: int) -> None:
        self.at += size
        if size < 0 or self.at > len(self._data):
            raise damaged_block("a value is longer than its block")

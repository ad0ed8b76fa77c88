"""A source file in memory, for formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from blizzard_py.lines.expansion import Expansion


@dataclass
class MemoryFile:
    """An `OpenFile` of bytes, in blocks of ``block``; ``reads`` counts ranges that were read."""

    data: bytes
    block: int = 1 << 20
    path: str = "a.file"
    expansion: Expansion = field(default_factory=lambda: Expansion(1 << 20, 256))
    reads: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def blocks(self) -> Iterator[bytes]:
        for start in range(0, len(self.data), self.block):
            yield self.data[start : start + self.block]

    def read_range(self, start: int, end: int) -> bytes:
        self.reads += 1
        return self.data[start:end]

    def count_unpacked(self, size: int) -> None:
        self.expansion.add(size)

"""Blocks of bytes become chunks that end at a line end.

The JSON reader gets a few megabytes at a time. That limits memory, and reading a large file as a
whole is also slower. A line above the limit is skipped: only its first bytes are kept, to show
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from blizzard_core.limits import LINE_BYTES, RAW_BYTES

CHUNK_BYTES = 2 << 20

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineChunk:
    r"""Whole lines, the last ending with ``\n`` too; ``offset`` counts from the stream's start.

    ``cells`` is how many values they may become, if that was counted (`portions`).
    """

    data: bytes
    offset: int
    cells: int = 0


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line above the limit: its start, its length, its first bytes."""

    offset: int
    length: int
    head: bytes
    reason: str


def framed(
    blocks: Iterable[bytes], target: int = CHUNK_BYTES, limit: int = LINE_BYTES
) -> Iterator[LineChunk | LongLine]:
    """Yield chunks of about ``target`` bytes, and the lines above ``limit`` bytes, in order.

    A byte order mark at the start is dropped (offsets count it), a missing final newline added. At
    most ``limit``, ``target`` and a block are held in memory. A line that ends in the block in
    which it exceeds the limit is still accepted.
    """
    stream = iter(blocks)
    parts: list[bytes] = []
    size = 0
    open_line = 0  # bytes since the last newline
    offset = 0  # of the first byte in parts
    block = next(stream, None)
    while block is not None:
        cut = block.rfind(b"\n") + 1
        open_line = len(block) - cut if cut else open_line + len(block)
        size += len(block)
        if cut and size >= target:
            chunk = b"".join([*parts, block[:cut]])
            yield _chunk(chunk, offset)
            offset += len(chunk)
            parts, size = [block[cut:]], len(block) - cut
        else:
            parts.append(block)
        if open_line <= limit:
            block = next(stream, None)
            continue
        whole = b"".join(parts)
        start = len(whole) - open_line
        if start:
            yield _chunk(whole[:start], offset)
        length, block = _passed_over(stream)
        length += open_line
        yield _long_line(whole[start : start + RAW_BYTES], offset + start, length, limit)
        offset += start + length + 1
        parts, size, open_line = [], 0, 0
    rest = b"".join(parts)
    if rest and (last := _chunk(rest, offset)).data:
        yield last if rest.endswith(b"\n") else LineChunk(last.data + b"\n", last.offset)


def _passed_over(stream: Iterator[bytes]) -> tuple[int, bytes | None]:
    """Return the length of the rest of the open line, and the bytes after it (None: the end)."""
    length = 0
    for block in stream:
        end = block.find(b"\n")
        if end >= 0:
            return length + end, block[end + 1 :]
        length += len(block)
    return length, None


def _chunk(data: bytes, offset: int) -> LineChunk:
    skipped = _mark(data, offset)
    return LineChunk(data[skipped:], skipped) if skipped else LineChunk(data, offset)


def _long_line(head: bytes, offset: int, length: int, limit: int) -> LongLine:
    skipped = _mark(head, offset)
    reason = f"longer than {limit} bytes"
    return LongLine(offset + skipped, length - skipped, head[skipped:], reason)


def _mark(data: bytes, offset: int) -> int:
    return len(_BOM) if offset == 0 and data.startswith(_BOM) else 0

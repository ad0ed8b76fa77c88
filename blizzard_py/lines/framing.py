"""Blocks of bytes become chunks that end at a line end.

The JSON reader gets a few megabytes at a time. That limits memory, and reading a large file as a
whole is also slower. A line above the limit is skipped: only its first bytes are kept, to show
them.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blizzard_core.limits import LINE_BYTES, RAW_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive whole records of one file.

    ``data`` are their bytes; lines and CSV records end with a line end. ``offset`` is the place of
    the first byte in the file's decompressed stream, -1 if there is none. ``cells`` is how many
    values they may become, if that was counted. ``skipped`` is how many numbers before the first
    record belong to none, such as a header's lines. ``lines`` is how many numbers the records use,
    0 for one each line end.

    ``member`` is the name within an archive, whose members have offsets of their own.

    Pieces with an equal ``context`` may be joined; it is what the file says once for all records,
    such as a header. Where a library reads, ``rows`` are the records, and ``data`` is empty.
    """

    data: bytes
    offset: int
    cells: int = 0
    skipped: int = 0
    lines: int = 0
    context: Hashable = None
    rows: pa.RecordBatch | None = None
    member: str = ""


def cut_in_two(piece: Piece, end: int, lines: int = 0) -> tuple[Piece, Piece]:
    """Return the records up to byte ``end``, which use so many ``lines``, and those behind."""
    cells = piece.cells // 2
    behind = replace(
        piece,
        data=piece.data[end:],
        offset=piece.offset + end,
        lines=piece.lines - lines,
        cells=piece.cells - cells,
        skipped=0,
    )
    return replace(piece, data=piece.data[:end], lines=lines, cells=cells), behind


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that cannot be parsed: its start, its length, its first bytes, the reason.

    ``skipped`` and ``member`` are as in a `Piece`; ``header`` is what a letter needs beside the
    record.
    """

    offset: int
    length: int
    head: bytes
    reason: str
    skipped: int = 0
    header: bytes = b""
    member: str = ""


def framed(
    blocks: Iterable[bytes],
    target: int = CHUNK_BYTES,
    limit: int = LINE_BYTES,
    *,
    end: bytes = b"\n",
) -> Iterator[Piece | RefusedRecord]:
    """Yield chunks of about ``target`` bytes, and the lines above ``limit`` bytes, in order.

    Lines end with the byte ``end``.

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
        cut = block.rfind(end) + 1
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
        length, block = _passed_over(stream, end)
        length += open_line
        yield _long_line(whole[start : start + RAW_BYTES], offset + start, length, limit)
        offset += start + length + 1
        parts, size, open_line = [], 0, 0
    rest = b"".join(parts)
    if rest and (last := _chunk(rest, offset)).data:
        yield last if rest.endswith(end) else Piece(last.data + end, last.offset)


def _passed_over(stream: Iterator[bytes], end: bytes) -> tuple[int, bytes | None]:
    """Return the length of the rest of the open line, and the bytes after it (None: the end)."""
    length = 0
    for block in stream:
        at = block.find(end)
        if at >= 0:
            return length + at, block[at + 1 :]
        length += len(block)
    return length, None


def _chunk(data: bytes, offset: int) -> Piece:
    skipped = _mark(data, offset)
    return Piece(data[skipped:], skipped) if skipped else Piece(data, offset)


def _long_line(head: bytes, offset: int, length: int, limit: int) -> RefusedRecord:
    skipped = _mark(head, offset)
    reason = f"longer than {limit} bytes"
    return RefusedRecord(offset + skipped, length - skipped, head[skipped:], reason)


def _mark(data: bytes, offset: int) -> int:
    return len(BOM_UTF8) if offset == 0 and data.startswith(BOM_UTF8) else 0

"""Blocks of bytes become chunks that end at a line end.

The JSON reader gets a few megabytes at a time. That bounds memory, and reading
a large file whole is also slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CHUNK_BYTES = 2 << 20
MAX_LINE_BYTES = 64 << 20

_BOM = b"\xef\xbb\xbf"


class LineTooLong(ValueError):
    """The line after the last chunk is longer than the limit."""


def framed(
    blocks: Iterable[bytes], target: int = CHUNK_BYTES, limit: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    r"""Chunks of about ``target`` bytes, each of whole lines and ending with ``\n``.

    A byte order mark at the start is dropped, a missing final newline added.
    Raises `LineTooLong` once a line exceeds ``limit`` bytes; every line before
    it has been yielded by then.
    """
    parts: list[bytes] = []
    size = 0
    open_line = 0  # bytes since the last newline
    first = True
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        open_line = len(block) - cut if cut else open_line + len(block)
        size += len(block)
        if cut and size >= target:
            chunk = b"".join([*parts, block[:cut]])
            yield _without_bom(chunk) if first else chunk
            first = False
            parts, size = [block[cut:]], len(block) - cut
        else:
            parts.append(block)
        if open_line > limit:
            whole = b"".join(parts)
            if lines := whole[: len(whole) - open_line]:
                yield _without_bom(lines) if first else lines
            raise LineTooLong(f"longer than {limit} bytes")
    rest = b"".join(parts)
    if first:
        rest = _without_bom(rest)
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _without_bom(chunk: bytes) -> bytes:
    return chunk.removeprefix(_BOM)

"""Single lines of a source file, read again: for dead letters that hold only a line's beginning."""

from __future__ import annotations

from collections.abc import Collection

from blizzard_core.limits import LINE_BYTES
from blizzard_core.storage.protocol import Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion


def read_lines(
    storage: Storage,
    path: str,
    size: int,
    wanted: Collection[int],
    most: int,
) -> dict[int, bytes]:
    """Return the wanted lines (numbered from 1) without line ends; lines past the end are missing.

    Reads up to the last of them and keeps no other line. ``size`` is the
    object's, in bytes as stored; each of them may become ``most`` (`Expansion`).
    Raises `FileFailed` if the file cannot be read or decompressed that far,
    `ValueError` if a wanted line is too long to be ingested.
    """
    found: dict[int, bytes] = {}
    numbers = sorted(set(wanted))
    number = 1  # of the line that the next byte is of
    parts: list[bytes] = []
    with opened(storage, JobFile(path, size), Expansion(size, most)) as blocks:
        for block in blocks:
            start = 0
            newlines = block.count(b"\n")
            if numbers and number + newlines < numbers[0]:
                number += newlines
                continue
            while numbers:
                end = block.find(b"\n", start)
                piece = block[start:] if end < 0 else block[start:end]
                if number == numbers[0]:
                    parts.append(piece)
                    if sum(map(len, parts)) > LINE_BYTES:
                        raise ValueError(f"line {number} is longer than {LINE_BYTES} bytes")
                if end < 0:
                    break
                if number == numbers[0]:
                    found[numbers.pop(0)] = b"".join(parts)
                    parts = []
                number += 1
                start = end + 1
            if not numbers:
                return found
    if numbers and number == numbers[0] and parts:
        found[number] = b"".join(parts)
    return found

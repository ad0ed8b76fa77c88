"""What comes of the pieces of a file: parsed, or the reason why not."""

from __future__ import annotations

from blizzard_py.kernels.decode.isolate import IsolatedParser
from blizzard_py.kernels.decode.parse import BadLine, LineParser, Parsed
from blizzard_py.lines.framing import Chunk, LongLine

Outcome = tuple[Chunk, Parsed] | BadLine | LongLine  # of what comes out of `framed`


def outcome_of(parser: LineParser | IsolatedParser, item: Chunk | LongLine) -> Outcome:
    """The piece with its rows, or what is wrong with it."""
    if isinstance(item, LongLine):
        return item
    try:
        return item, parser.parse(item.data)
    except BadLine as error:
        return error


def bytes_of(item: Chunk | LongLine) -> int:
    """What waiting for its turn costs: bytes, or values that it becomes if those are more."""
    return len(item.head) if isinstance(item, LongLine) else max(len(item.data), item.cells)

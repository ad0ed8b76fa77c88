"""Failures of one file, which pass through the kernels without affecting other files."""

from __future__ import annotations

from typing import Literal

from blizzard_core.limits import REASON_CHARACTERS
from blizzard_py.job import Outcome

Stage = Literal["read", "decompress", "parse", "partition"]


class FileFailed(Exception):
    """A file's failure: ``quarantined`` because of its content, ``retry`` because of its store."""

    def __init__(self, stage: Stage, reason: str, outcome: Outcome = "quarantined") -> None:
        super().__init__(stage, reason, outcome)
        self.stage = stage
        self.reason = bounded(reason)
        self.outcome = outcome

    def within(self, member: str) -> FileFailed:
        """Return the failure with the name of the archive's member that it is about."""
        reason = f"member {member!r}: {self.reason}" if member else self.reason
        return FileFailed(self.stage, reason, self.outcome)


class ArchiveFound(FileFailed):
    """The object is a zip archive, which has no stream of its own but several members."""

    def __init__(self) -> None:
        reason = "is a zip archive, which is not read here; store its files by themselves"
        super().__init__("decompress", reason)


def bounded(text: str, limit: int = REASON_CHARACTERS) -> str:
    """Return one line of at most ``limit`` characters; parsers quote values of any length."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


BLOCK_BYTES = 1 << 20
_SHOWN_BYTES = 4


def damaged(codec: str, what: str) -> FileFailed:
    """Return the failure of a stream that is cut short or changed."""
    return FileFailed("decompress", f"not a complete {codec} stream: {what}; store it again")


def followed_by(codec: str, data: bytes = b"") -> FileFailed:
    """Return the failure of a complete stream with other bytes after it."""
    shown = f" ({first_bytes(data)})" if data else ""
    return FileFailed(
        "decompress",
        f"a complete {codec} stream, followed by other bytes{shown}; store it again without them,"
        " if they are not rows",
    )


def first_bytes(data: bytes) -> str:
    """Return the first bytes of a stream for a message."""
    return data[:_SHOWN_BYTES].hex(" ")

"""The failure of one file, which passes through the kernels without affecting other files."""

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

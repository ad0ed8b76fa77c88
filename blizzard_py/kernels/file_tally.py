"""A source file on its way through a task: its chunks, and what its lines turned out to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Chunk, LongLine


@dataclass(slots=True)
class FileTally:
    """``chunks`` come from `framed`; ``lines``, ``rows`` and ``bad`` count what was parsed."""

    file: JobFile
    chunks: Iterator[Chunk | LongLine] = field(default_factory=lambda: iter(()))
    bytes_read: int = 0
    ended: bool = False
    lines: int = 0
    rows: int = 0
    bad: int = 0
    first_bad: str = ""

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The blocks, counted; ``ended`` is set when there are no more."""
        for block in blocks:
            self.bytes_read += len(block)
            yield block
        self.ended = True

    def recount(self) -> None:
        """Back to the start of the file."""
        self.lines = self.rows = self.bad = 0
        self.first_bad = ""

    def note_bad(self, line: int, reason: str) -> None:
        """One line (from 1) is not a record."""
        self.first_bad = self.first_bad or f"line {line}: {reason}"
        self.bad += 1

    def check(self, max_bad_fraction: float) -> None:
        """Raise `FileFailed` if too much of the file is bad."""
        total = self.rows + self.bad
        if self.bad and self.bad / total > max_bad_fraction:
            raise FileFailed(
                "parse",
                f"{self.bad} of {total} lines are bad, which is more than"
                f" max_bad_fraction = {max_bad_fraction:g}; first {self.first_bad}",
            )

    def ingested(self) -> FinishedFile:
        """The verdict on a file whose records are in the outputs."""
        return FinishedFile(
            self.file.path,
            "ingested",
            rows=self.rows,
            bytes_read=self.bytes_read,
            error=self.first_bad,
            bad_rows=self.bad,
        )

    def failed(self, error: FileFailed) -> FinishedFile:
        """The verdict on a file of which nothing is."""
        return FinishedFile(
            self.file.path,
            error.outcome,
            bytes_read=self.bytes_read,
            error=error.reason,
            stage=error.stage,
        )

"""A source file on its way through a task: its chunks, and the outcomes of its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from blizzard_py.formats.grouping import FileShare
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.protocol import BadLine, Decoder, Parsed
from blizzard_py.job import FileLimits, FinishedFile, JobFile, PartitionRule
from blizzard_py.kernels.write.partition import RowDirectories, place_rows, without_moved
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord

Outcome = tuple[Piece, Parsed] | BadLine | RefusedRecord  # for an item of `Format.pieces`

PlacedRows = tuple[str | RowDirectories, pa.Table]  # where in the table, and rows that belong there


def outcome_of(decoder: Decoder | IsolatedDecoder, item: Piece | RefusedRecord) -> Outcome:
    """Return the piece with its rows, or its error, whose number counts from before the piece."""
    if isinstance(item, RefusedRecord):
        return item
    try:
        return item, decoder.decode(item)
    except BadLine as error:
        return BadLine(item.skipped + error.index, error.reason)
    except FileFailed as error:
        raise error.within(item.member) from error


def bytes_of(item: Piece | RefusedRecord) -> int:
    """Return the cost of an item in the queue: its bytes, or its values if they are more."""
    return len(item.head) if isinstance(item, RefusedRecord) else max(len(item.data), item.cells)


_UNLETTERED = "have no letter"


@dataclass(slots=True)
class FileTally:
    """``chunks`` come from `Format.pieces`; ``lines``, ``rows`` and ``bad`` count what was parsed.

    ``unlettered`` counts bad lines without a letter; ``directories`` are those of the rows.
    ``copied_rows`` are in ``rows``, too; ``row_groups`` is the outcome of `FinishedFile`.
    """

    file: JobFile
    limits: FileLimits
    expansion: Expansion = field(init=False)
    chunks: Iterator[Piece | RefusedRecord] = field(default_factory=lambda: iter(()))
    bytes_read: int = 0
    lines: int = 0
    rows: int = 0
    bad: int = 0
    first_bad: str = ""
    unlettered: int = 0
    copied_rows: int = 0
    row_groups: str = ""
    directories: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin to count what it becomes."""
        self.expansion = Expansion(self.file.size, self.limits.expansion)

    def read(self, size: int) -> None:
        """Count bytes that were read."""
        self.bytes_read += size

    def weighed(self, items: Iterable[Piece | RefusedRecord]) -> Iterator[Piece | RefusedRecord]:
        """Yield the chunks and count what they may become."""
        for item in items:
            if isinstance(item, Piece):
                self.expansion.add_cells(item.cells)
            yield item

    def recount(self) -> None:
        """Return to the start of the file."""
        self.lines = self.bad = self.unlettered = 0
        self.rows = self.copied_rows
        self.first_bad = ""
        self.directories.clear()

    def note_bad(self, line: int, reason: str, count: int) -> None:
        """Count bad lines; ``line`` is the first of them (from 1)."""
        self.first_bad = self.first_bad or f"line {line}: {reason}"
        self.bad += count

    def check(self, max_bad_fraction: float, *, so_far: bool = False) -> None:
        """Raise `FileFailed` if too much of the file is bad, or of what was read ``so_far``.

        The latter is checked once there are more bad lines than letters. A file with so many bad
        lines is hardly ever valid in the end, and its cost would be unlimited.
        """
        total = self.rows + self.bad
        if not self.bad or self.bad / total <= max_bad_fraction:
            return
        of, then = str(total), ""
        if so_far:
            of = f"the first {total}"
            then = f"; with more than {self.limits.letters:,} bad lines the rest is not read"
        raise FileFailed(
            "parse",
            f"{self.bad} of {of} lines are bad, which is more than"
            f" max_bad_fraction = {max_bad_fraction:g}{then}; first {self.first_bad}",
        )

    def went_to(self, directories: Iterable[str]) -> None:
        """Add directories of rows. Raises `FileFailed` if there are too many now."""
        self.directories.update(directories)
        if len(self.directories) > self.limits.directories:
            raise FileFailed(
                "partition",
                f"its rows go to more than {self.limits.directories:,} directories of the table,"
                " each with its own output; if that is intended, raise"
                " error_handling.advanced.max_directories_per_file",
            )

    def ingested(self) -> FinishedFile:
        """Return the outcome of a file whose records are in the outputs."""
        rest = f"; {self.unlettered:,} more {_UNLETTERED}" if self.unlettered else ""
        return FinishedFile(
            self.file.path,
            "ingested",
            rows=self.rows,
            bytes_read=self.bytes_read,
            error=self.first_bad + rest,
            bad_rows=self.bad,
            row_groups=self.row_groups,
        )

    def failed(self, error: FileFailed) -> FinishedFile:
        """Return the outcome of a file without any record in the outputs."""
        return FinishedFile(
            self.file.path,
            error.outcome,
            bytes_read=self.bytes_read,
            error=error.reason,
            stage=error.stage,
        )


def within_tolerance(
    files: Sequence[FileTally], found: Sequence[FileShare], max_bad_fraction: float
) -> tuple[list[tuple[FileTally, FileShare]], list[tuple[FileTally, FileFailed]]]:
    """Return the files with their rows, and those of which too much is bad."""
    kept: list[tuple[FileTally, FileShare]] = []
    lost: list[tuple[FileTally, FileFailed]] = []
    for content, share in zip(files, found, strict=True):
        content.recount()
        content.rows = share.rows
        if share.bad:
            content.note_bad(share.bad[0].index + 1, share.bad[0].reason, len(share.bad))
        try:
            content.check(max_bad_fraction)
        except FileFailed as error:
            lost.append((content, error))
        else:
            kept.append((content, share))
    return kept, lost


def placed_rows(
    table: pa.Table, kept: Sequence[tuple[FileTally, FileShare]], rules: Sequence[PartitionRule]
) -> Iterator[PlacedRows]:
    """Yield the rows of these files, by directory.

    Raises `FileFailed` if a file's rows go to too many directories.
    """
    if rules:
        slices = [table.slice(share.start, share.rows) for _, share in kept]
        rows = pa.concat_tables(slices or [table.slice(0, 0)])
        places = place_rows(rows, rules)
        _check_directories(places, kept)
        yield places, without_moved(rows, rules)
        return
    start = end = 0
    partition = ""
    for content, share in kept:
        if share.start != end or content.file.partition != partition:
            if end > start:
                yield partition, table.slice(start, end - start)
            start, partition = share.start, content.file.partition
        end = share.start + share.rows
    if end > start:
        yield partition, table.slice(start, end - start)


def _check_directories(places: RowDirectories, kept: Sequence[tuple[FileTally, FileShare]]) -> None:
    """Raise `FileFailed` if a file's rows go to too many; ``places`` are for all rows, in order."""
    end = 0
    for content, share in kept:
        start, end = end, end + share.rows
        if len(places.directories) > content.limits.directories:
            codes = np.unique(places.codes[start:end])
            content.went_to(places.directories[code] for code in codes.tolist())

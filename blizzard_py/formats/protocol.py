"""The contract of a file format, and the results that its two halves exchange.

`Format.pieces` reads a file in order and yields pieces of whole records. `Decoder.decode` makes
rows of one piece. The verdict on a record depends on the record and its file's header alone. It
does not depend on the piece, its neighbours, the thread or the process.

**Numbers.** Each record has a number within its file, which letters and ``_source_line`` show: the
physical line for text formats, the row for binary ones. `Parsed` counts them from 0 within its
piece; the task adds what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from blizzard_core.settings.formats import FileFormat
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece, RefusedRecord

LineNumbers = npt.NDArray[np.int64]
# The bytes of a record: where they begin in the piece's data, the bytes, and the file's header.
RecordBytes = tuple[int, bytes, bytes]
# Rows by their index to the records of which they are made, in order.
RowRecords: TypeAlias = Callable[[Sequence[int]], Sequence[RecordBytes]]
# The offset is `NO_OFFSET` where a file has no bytes of the record's own, as in compressed blocks.
NO_OFFSET = -1


class BadLine(ValueError):
    """A record that does not fit the schema. ``index`` counts numbers from 0 within its piece."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


class BadRecord(msgspec.Struct, frozen=True):
    """A record that does not fit: its number from 0 and its first byte, within the piece.

    ``length`` is in bytes without a line end. ``head`` is the record, or the start of one that is
    too long. ``header`` is the file's, if the record cannot be read without it. ``offset`` is
    `NO_OFFSET` if the format has no addresses. ``member`` is the name within an archive.

    A file of short bad lines has millions, and a frozen dataclass takes ten times as long to make.
    """

    index: int
    offset: int
    length: int
    head: bytes
    reason: str
    stage: str = "parse"
    header: bytes = b""
    member: str = ""

    @classmethod
    def of(cls, record: RefusedRecord) -> BadRecord:
        """Return a record that was not even decoded."""
        return cls(
            0, record.offset, record.length, record.head, record.reason, header=record.header
        )

    def moved(self, numbers: int, offset: int, member: str = "") -> BadRecord:
        """Return the record so many numbers and bytes further; one without an offset stays so."""
        there = NO_OFFSET if self.offset == NO_OFFSET else self.offset + offset
        return structs.replace(self, index=self.index + numbers, offset=there, member=member)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A piece's rows, and how many numbers it uses: each is blank, bad, a row, or part of one.

    ``rows_at`` has the index of each row's record, ``bad`` the bad records in order. ``unexpected``
    are fields of the rows without a column, as far as they were seen.
    """

    table: pa.Table
    lines: int
    rows_at: LineNumbers
    bad: tuple[BadRecord, ...] = ()
    unexpected: frozenset[str] = frozenset()

    def without(
        self, reasons: Mapping[int, str], stage: str, records: Mapping[int, RecordBytes]
    ) -> Parsed:
        """Return the result with some rows as bad records.

        ``reasons`` are by row; ``records`` are those of `Decoder.records`.
        """
        rows = np.array(list(reasons), np.int64)
        remaining = np.ones(len(self.rows_at), np.bool_)
        remaining[rows] = False
        bad = list(self.bad)
        for index, reason in zip(self.rows_at[rows].tolist(), reasons.values(), strict=True):
            offset, head, header = records[index]
            bad.append(BadRecord(index, offset, len(head), head, reason, stage, header))
        return Parsed(
            self.table.filter(pa.array(remaining)),
            self.lines,
            self.rows_at[remaining],
            tuple(sorted(bad, key=lambda each: each.index)),
            self.unexpected,
        )


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The records of a piece as the source has them, for sources that are tables.

    ``rows`` are columns of text (CSV, XML), lines (JSON), or columns with the types of the file.
    Digests of rows are made of them, so they must stay what they are. ``keys`` are the columns that
    were asked for in their types, with null for a value that cannot be read; ``unread`` counts such
    rows. ``schema`` are the columns of the file. The records in ``bad`` are no rows. ``records``
    are those of rows in columns; a line is its own.
    """

    schema: pa.Schema
    rows: pa.RecordBatch | Sequence[bytes]
    keys: Sequence[pa.Array] = ()
    unread: int = 0
    bad: Sequence[BadRecord] = ()
    records: RowRecords | None = None


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a file, and the records that their letters have."""

    batch: pa.RecordBatch
    records: RowRecords


class OpenFile(Protocol):
    """A source file that is being read."""

    @property
    def path(self) -> str:
        """The name, relative to the store's root."""

    @property
    def uri(self) -> str:
        """The whole name, as in ``_source_file``."""

    @property
    def modified(self) -> float:
        """The time at which the object was written, in seconds since 1970. Raises `FileFailed`.

        What is read afterwards is of that time: a change makes the file fail for a retry.
        """

    @property
    def size(self) -> int:
        """The stored bytes, as `read_range` finds them. Raises `FileFailed`."""

    def blocks(self) -> Iterator[bytes]:
        """Return the decompressed stream, in blocks of at most 1 MiB.

        Raises `FileFailed`, also while it is read.
        """

    def read_range(self, start: int, end: int) -> bytes:
        """Return the stored bytes ``start`` to ``end`` (exclusive), or to the object's end.

        Each call is a request, unless the object is small. Raises `FileFailed`.
        """

    def count_unpacked(self, size: int) -> None:
        """Count bytes that the format itself has decompressed. Raises `FileFailed` for too many."""


class Decoder(Protocol):
    """The second half of a format, for the columns of one source."""

    def decode(self, piece: Piece) -> Parsed:
        """Return every record that fits as a row, every other one in ``bad``.

        A decoder that is not tolerant raises `BadLine` for the first record that does not fit.
        Raises `FileFailed` where the whole file cannot be read as the columns.
        """

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the records by their index in the piece, in order."""

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of about half the records each; None for a single record."""

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns that the piece's file names in a header or a schema, in order.

        None is the type of a column that only its values have. There are none in formats whose
        records name their fields.
        """

    def as_lines(self, piece: Piece) -> bytes:
        """Return a line of JSON for each number of the piece, with the fields without a column.

        Columns are made of their values where the schema evolves; else it may return nothing.
        """


class TableDecoder(Decoder, Protocol):
    """The decoder of a format that tables may have."""

    def source_rows(
        self, piece: Piece, columns: Sequence[str], keys: Sequence[FieldSpec]
    ) -> SourceRows:
        """Return the records with these columns, and the values of ``keys``.

        What the file lacks is null. Raises `FileFailed` as `decode` does.
        """


class Format(Protocol):
    """A file format with its options; picklable."""

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the file in order; formats that store columns read those of ``schema``.

        Raises `FileFailed` where what follows cannot be read, or where the file has none of the
        declared columns.
        """

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> Decoder:
        """Return the second half. ``fast`` allows compiled code, which gives equal rows."""

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the contents of files that bring the letters' records again, each by itself.

        Such a file is read in the format `replay_settings`, and the letters have one header. No
        record may change the meaning of another one, so some formats need several files.
        """

    def replay_settings(self) -> FileFormat:
        """Return the format of files that `replay_contents` makes, with the options of today."""

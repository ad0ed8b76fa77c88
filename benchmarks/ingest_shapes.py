"""The batches that `benchmarks.ingest` measures: the same bytes in every run and on every machine.

Click events of ten fields, of which the schema names nine, ordered in time; or edits
(`benchmarks.edit_events`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from isal import igzip

from benchmarks.edit_events import EDIT_FIELDS, edit
from blizzard_py.job import FieldSpec

FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    FieldSpec("time", "timestamp", nullable=False),
    FieldSpec("user", "string", nullable=False),
    FieldSpec("event", "string", nullable=False),
    FieldSpec("url", "string", nullable=True),
    FieldSpec("country", "string", nullable=True),
    FieldSpec("duration", "float64", nullable=True),
    FieldSpec("bytes", "int64", nullable=True),
    FieldSpec("mobile", "boolean", nullable=True),
)
EVENTS = ("view", "view", "view", "click", "scroll", "search", "buy")
COUNTRIES = ('"DE"', '"US"', '"FR"', '"IN"', '"BR"', "null")
START = datetime(2024, 5, 6, tzinfo=UTC)

_PIECE_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """``files`` gzip files of ``rows`` rows each.

    Of a ``huge`` one the memory is measured, and it takes no warm-up round, having followed the
    others. ``edits`` are events of twenty fields.
    """

    name: str
    files: int
    rows: int
    huge: bool = False
    edits: bool = False

    @property
    def fields(self) -> tuple[FieldSpec, ...]:
        """The columns."""
        return EDIT_FIELDS if self.edits else FIELDS

    @property
    def total(self) -> int:
        """Rows in all."""
        return self.files * self.rows


FULL = (
    Shape("100 x 20,000 rows", 100, 20_000),
    Shape("1,000 x 2,000 rows", 1000, 2000),
    Shape("100 x 10,000 edits", 100, 10_000, edits=True),
    Shape("10,000 x 50 rows", 10_000, 50),
    Shape("1 x 20,000 rows", 1, 20_000),
    Shape("1 x 9,600,000 rows", 1, 9_600_000, huge=True),
)
QUICK = (
    Shape("20 x 5,000 rows", 20, 5000),
    Shape("100 x 1,000 rows", 100, 1000),
    Shape("20 x 2,000 edits", 20, 2000, edits=True),
    Shape("300 x 50 rows", 300, 50),
    Shape("1 x 20,000 rows", 1, 20_000),
    Shape("1 x 200,000 rows", 1, 200_000, huge=True),
)


def write_shape(shape: Shape, folder: Path, pool: Executor) -> int:
    """Write the shape's files to the folder; return their raw bytes."""
    folder.mkdir()
    share = max(1, shape.files // 64)
    return sum(pool.map(partial(_write_files, shape, folder, share), range(0, shape.files, share)))


def _write_files(shape: Shape, folder: Path, share: int, first: int) -> int:
    raw = 0
    for number in range(first, min(first + share, shape.files)):
        # Level 2 of isal is gzip's default in size, near enough, and ten times as fast.
        with igzip.open(folder / f"{1715000000 + number}.ndjson.gz", "wb", 2) as file:  # type: ignore[no-untyped-call]  # isal leaves it untyped
            for piece in _lines(shape, number * shape.rows):
                file.write(piece)
                raw += len(piece)
    return raw


def _lines(shape: Shape, first: int) -> Iterator[bytes]:
    """Rows by their number, so that every shape holds the same events."""
    event = edit if shape.edits else _click
    for start in range(first, first + shape.rows, _PIECE_ROWS):
        count = min(_PIECE_ROWS, first + shape.rows - start)
        yield "".join(event(number) for number in range(start, start + count)).encode()


def _click(number: int) -> str:
    draw = random.Random(number).random
    when = (START + timedelta(milliseconds=37 * number)).isoformat(timespec="milliseconds")
    return (
        f'{{"id":{number},"time":"{when[:-6]}Z","user":"user-{int(draw() * 200_000):06d}",'
        f'"event":"{EVENTS[int(draw() * 7)]}",'
        f'"url":"/products/{int(draw() * 50_000)}?ref={int(draw() * (1 << 32)):08x}",'
        f'"country":{COUNTRIES[int(draw() * 6)]},"duration":{draw() * 20:.3f},'
        f'"bytes":{int(draw() * (1 << 20))},"mobile":{"true" if draw() < 0.6 else "false"},'
        f'"session":"{int(draw() * (1 << 52)):016x}"}}\n'
    )

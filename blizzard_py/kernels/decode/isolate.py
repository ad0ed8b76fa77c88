"""Parsing and reading in child processes, after a worker has died.

If a child dies, the lines of its chunk are halved until the line is found that kills a child by
itself. That line is a bad record if it kills a second child as well: a child may also die because
the machine has no memory left, which no line causes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from blizzard_core.limits import PARSER_DEATHS
from blizzard_core.storage.opening import open_source
from blizzard_py.job import FileLimits, JobFile, Place
from blizzard_py.kernels.decode.child_process import ChildProcess, Died
from blizzard_py.kernels.decode.columns import RecordSchema
from blizzard_py.kernels.decode.parse import BadLine, BadRecord, LineParser, Parsed
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed


class IsolatedParser:
    """A `LineParser` that survives its input; for one file.

    Raises `FileFailed` if the file has killed `PARSER_DEATHS` children.
    """

    def __init__(
        self,
        nursery: ChildProcess,
        schema: RecordSchema,
        *,
        tolerant: bool,
        thorough: bool = False,
    ) -> None:
        self._nursery = nursery
        self._schema = schema
        self._tolerant = tolerant
        self._thorough = thorough
        self._deaths = 0

    def parse(self, chunk: bytes) -> Parsed:
        """Parse as `LineParser.parse` does; a line that kills the parser is a bad record."""
        try:
            return self._parsed(chunk)
        except Died as died:
            self._count(died)
            lines = _lines(chunk)
            return self._halved(lines) if len(lines) > 1 else self._alone(chunk, died)

    def _parsed(self, chunk: bytes) -> Parsed:
        tolerant, thorough = self._tolerant, self._thorough
        return self._nursery.call(_parse, self._schema, chunk, tolerant=tolerant, thorough=thorough)

    def _halved(self, lines: list[bytes]) -> Parsed:
        middle = len(lines) // 2
        first = self.parse(b"".join(lines[:middle]))
        try:
            return _joined(first, middle, self.parse(b"".join(lines[middle:])), lines)
        except BadLine as error:
            raise BadLine(error.index + middle, error.reason) from error

    def _alone(self, line: bytes, died: Died) -> Parsed:
        try:
            return self._parsed(line)
        except Died:
            self._count(died)
        reason = f"the parser died of this line: {died.how}"
        if not self._tolerant:
            raise BadLine(0, reason) from died
        head = line.removesuffix(b"\n")
        bad = BadRecord(0, 0, len(head), head, reason)
        return Parsed(self._schema.table.empty_table(), 1, np.arange(0), (bad,))

    def _count(self, died: Died) -> None:
        self._deaths += 1
        if self._deaths > PARSER_DEATHS:
            raise FileFailed(
                "parse", f"the parser died {self._deaths} times of its lines, last: {died.how}"
            ) from died


def check_readable(nursery: ChildProcess, source: Place, file: JobFile, limits: FileLimits) -> None:
    """Raise `FileFailed` if reading and decompressing the file kills two children."""
    for _ in range(2):
        try:
            nursery.call(_read_through, source, file, limits)
        except Died as died:
            how = died.how
        else:
            return
    raise FileFailed("decompress", f"a process that reads it dies: {how}")


def _parse(schema: RecordSchema, chunk: bytes, *, tolerant: bool, thorough: bool) -> Parsed:
    parser = LineParser(schema, tolerant=tolerant, fast=False, thorough=thorough)
    return parser.parse(chunk)


def _read_through(source: Place, file: JobFile, limits: FileLimits) -> None:
    storage = open_source(source.uri, dict(source.options))
    expansion = Expansion(file.size, limits.expansion)
    try:
        with opened(storage, file, expansion) as blocks:
            for _ in blocks:
                pass
    except FileFailed:
        return  # the task will meet and report the same error


def _lines(chunk: bytes) -> list[bytes]:
    return [line + b"\n" for line in chunk.split(b"\n")[:-1]]


def _joined(first: Parsed, middle: int, second: Parsed, lines: list[bytes]) -> Parsed:
    offset = sum(map(len, lines[:middle]))
    return Parsed(
        pa.concat_tables([first.table, second.table]),
        first.lines + second.lines,
        np.concatenate([first.rows_at, second.rows_at + middle]),
        (
            *first.bad,
            *(replace(b, index=b.index + middle, offset=b.offset + offset) for b in second.bad),
        ),
        first.unexpected | second.unexpected,
    )

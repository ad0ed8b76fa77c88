"""The fast path against the exact one: the same rows, lines, reasons and bytes, or a difference."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.fast.sandbox import Program, compiled
from blizzard_py.formats.ndjson.fast.scanner import Scanner
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.ndjson.unexpected import MOST
from blizzard_py.formats.protocol import BadLine, Parsed
from tests.blizzard_py.formats.ndjson.fast.nasty import Chunk


@dataclass
class Tally:
    """Counts of compared lines, and of their outcomes on the fast path."""

    lines: int = 0
    certain: int = 0
    handed_over: int = 0
    bad: int = 0

    def add(self, other: Tally) -> None:
        self.lines += other.lines
        self.certain += other.certain
        self.handed_over += other.handed_over
        self.bad += other.bad


class Difference(AssertionError):
    """The two paths do not agree on a chunk."""


class Pair:
    """Both paths over the same chunks. ``program`` takes the artefact's place."""

    def __init__(self, program: Program | None = None) -> None:
        found = program or compiled()
        assert found is not None
        self._program = found
        self._scanners: dict[Any, Scanner] = {}

    def compare(self, chunk: Chunk) -> Tally:
        """Raises `Difference`."""
        schema = RecordSchema(chunk.fields, chunk.unexpected)
        # Every name of the exact path is told, as all of the fast path are.
        exact = LineParser(schema, tolerant=chunk.tolerant, thorough=True)
        key = (chunk.fields, chunk.unexpected)
        if key not in self._scanners:
            self._scanners[key] = Scanner(self._program, *key)
        scanner = _Watched(self._scanners[key])
        fast = LineParser(schema, tolerant=chunk.tolerant, thorough=True)
        fast._scanner = scanner  # type: ignore[assignment]  # noqa: SLF001  # watched, of another program
        fast._nested.worth = 100  # noqa: SLF001  # everything is tried
        one, other = _outcome(fast, chunk.data), _outcome(exact, chunk.data)
        for name in one.keys() | other.keys():
            if one.get(name) != other.get(name):
                raise Difference(f"{name}: {_short(one.get(name))} != {_short(other.get(name))}")
        lines, bad = chunk.data.count(b"\n"), len(other.get("bad", ()))
        return Tally(lines, scanner.certain, scanner.handed_over, bad)


class _Watched:
    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self.certain = self.handed_over = 0

    def pause(self) -> None:
        """Nested columns may have made nothing of it."""

    def scan(self, chunk: bytes, *, utf8: bool) -> Any:
        self._scanner._pause = 0  # noqa: SLF001  # everything is tried
        found = self._scanner.scan(chunk, utf8=utf8)
        if found is None:
            raise Difference("the program has failed")
        self.certain, self.handed_over = found.table.num_rows, len(found.left)
        return found


def _outcome(parser: LineParser, data: bytes) -> dict[str, Any]:
    try:
        parsed = parser.parse(data)
    except BadLine as error:
        return {"line": error.index, "reason": error.reason}
    return comparable(parsed)


def comparable(parsed: Parsed) -> dict[str, Any]:
    """All that is seen of it, in a form that compares."""
    try:
        parsed.table.validate(full=True)
        file = parquet(parsed.table)
    except pa.ArrowInvalid as error:
        return {"invalid": str(error)}
    return {
        "lines": parsed.lines,
        "rows_at": parsed.rows_at.tolist(),
        "bad": tuple(structs.replace(bad, head=bytes(bad.head)) for bad in parsed.bad),
        "schema": parsed.table.schema,
        "rows": parsed.table.num_rows,
        "pieces": [column.num_chunks for column in parsed.table.columns if parsed.table.num_rows],
        "bytes": parsed.table.nbytes,
        "unexpected": parsed.unexpected if len(parsed.unexpected) < MOST else None,
        "parquet": file,
    }


def parquet(table: pa.Table) -> bytes:
    """As a file of its own."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="snappy", use_dictionary=False)
    return out.getvalue()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}… ({len(text)})"

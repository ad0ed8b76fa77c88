"""Cost of bad records: the exact path against the parser alone.

    python -m benchmarks.records

40,000 click events of ``benchmarks.ingest`` are parsed in chunks as a task does, with 0
to 4,000 of them spoiled in turn in each of a few common ways. Ratios are within one run,
to the same chunks without a bad line; medians over the rounds.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.ingest_shapes import FIELDS, Shape, write_shape
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.lines.framing import Piece, framed

LINES = 40_000
COUNTS = (0, 1, 100, 400, 4000)


def spoiled(line: bytes, kind: int) -> bytes:
    """Return the line as a bad record: cut short, wrong type, bad time, or two in one."""
    match kind % 4:
        case 0:
            return line[:-9]
        case 1:
            return line.replace(b'"id":', b'"id":"x', 1).replace(b",", b'",', 1)
        case 2:
            return line.replace(b'"time":"2', b'"time":"x', 1)
        case _:
            return line + line


def chunks_with(lines: list[bytes], bad: int) -> list[bytes]:
    changed = list(lines)
    for number in range(bad):
        index = number * len(lines) // bad
        changed[index] = spoiled(lines[index], number)
    data = b"\n".join(changed) + b"\n"
    stream = (data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20))
    return [item.data for item in framed(stream) if isinstance(item, Piece)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    prepare_process()
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ThreadPoolExecutor(1) as pool:
        folder = Path(name) / "source"
        write_shape(Shape("lines", 1, LINES), folder, pool)
        [file] = folder.iterdir()
        lines = gzip.decompress(file.read_bytes()).splitlines()
    cases = {bad: chunks_with(lines, bad) for bad in COUNTS}
    seconds: dict[int, list[float]] = {bad: [] for bad in COUNTS}
    for turn in range(rounds + 1):
        for bad, chunks in cases.items():
            line_parser = LineParser(RecordSchema(FIELDS), tolerant=True)
            start = time.perf_counter()
            parsed = [line_parser.parse(chunk) for chunk in chunks]
            elapsed = time.perf_counter() - start
            found = sum(len(part.bad) for part in parsed)
            rows = sum(part.table.num_rows for part in parsed)
            if (found, rows) != (bad, LINES - bad):
                raise SystemExit(f"{found} bad and {rows} good lines, with {bad} spoiled")
            if turn:
                seconds[bad].append(elapsed)
    fast = statistics.median(seconds[0])
    print(f"{LINES} lines, {len(cases[0])} chunks, medians of {rounds}\n")
    print(f"{'bad lines':>10}{'seconds':>10}{'x fast':>8}")
    for bad, values in seconds.items():
        median = statistics.median(values)
        print(f"{bad:10,}{median:10.3f}{median / fast:8.1f}")


if __name__ == "__main__":
    main()

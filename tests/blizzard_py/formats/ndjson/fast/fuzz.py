"""The differential fuzz: seeded chunks through the fast path and the exact one (`make fuzz-fast`).

    python -m tests.blizzard_py.formats.ndjson.fast.fuzz --lines 10000000 [--seed N]
        [--library PATH]

A difference is told with the seed of its chunk and the lines that show it alone. ``--library``
is a build of `scan.c` for this machine (`build.checked`), which ends the process where it does
what it must not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.blizzard_py.formats.ndjson.fast.differential import Difference, Pair, Tally
from tests.blizzard_py.formats.ndjson.fast.library import Library
from tests.blizzard_py.formats.ndjson.fast.nasty import Chunk, chunk

LINES = 500  # of a chunk
_SAY_SECS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first chunk")
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    pair = Pair(Library(options.library) if options.library else None)
    start = time.monotonic()
    total, said = Tally(), start
    for seed in itertools.count(options.seed):
        total.add(compared(pair, [seed], LINES))
        if total.lines >= options.lines:
            break
        if time.monotonic() - said > _SAY_SECS:
            said = time.monotonic()
            print(f"{said - start:.0f} s: {total}", file=sys.stderr, flush=True)
    print(f"{time.monotonic() - start:.0f} s: {total}, no difference")


def compared(pair: Pair, seeds: Iterable[int], lines: int) -> Tally:
    """The chunks of these seeds. Raises `Difference`, which says how to see it again."""
    total = Tally()
    for seed in seeds:
        made = chunk(seed, lines)
        try:
            total.add(pair.compare(made))
        except Difference as error:
            raise Difference(f"chunk({seed}, {lines}): {error}\n{culprits(pair, made)}") from error
    return total


def culprits(pair: Pair, made: Chunk) -> str:
    """The lines that differ alone, if any does."""
    found = []
    for number, line in enumerate(made.data.split(b"\n")[:-1]):
        try:
            pair.compare(replace(made, data=line + b"\n"))
        except Difference as error:
            found.append(f"line {number}: {line[:2000]!r}: {error}")
    return "\n".join(found[:5]) or "no line differs alone"


if __name__ == "__main__":
    main()

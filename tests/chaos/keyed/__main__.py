"""Command line of `tests.chaos.keyed`: many histories."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import Executor
from pathlib import Path

import structlog

from tests.chaos.keyed.delta import play_on_delta
from tests.chaos.keyed.memory import play
from tests.support.table_harness import footer_pool


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--delta", action="store_true", help="on real tables, not in memory")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    sys.stdout.write(f"seed {options.seed}, {options.histories} histories\n")
    counts: Counter[str] = Counter()
    with footer_pool() as pool:
        for seed in range(options.seed, options.seed + options.histories):
            try:
                if options.delta:
                    counts += one(seed, pool)
                else:
                    play(seed)
            except BaseException:
                sys.stdout.write(f"seed {seed}\n")
                raise
    for what, count in sorted(counts.items()):
        sys.stdout.write(f"{count:9,}  {what}\n")
    sys.stdout.write("all equal\n")


def one(seed: int, pool: Executor) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        return play_on_delta(Path(folder), pool, seed)


if __name__ == "__main__":
    main()
